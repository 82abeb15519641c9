"""A scripted OpenAI-compatible endpoint on 127.0.0.1, standard library only.

    with MockServer(lambda request: Reply("The answer is \\boxed{4}.")) as server:
        ChatModel("m", base_url=server.base_url, ...)

The script is called once a request with a `Request` and returns a `Reply` (or a plain string). The
server keeps a log, counts requests in flight and remembers the peak.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Request:
    body: dict
    headers: dict
    path: str
    number: int  # 0-based, over the server's life
    nth: int  # how many times the same body was asked before
    at: float = field(default_factory=time.monotonic)

    @property
    def messages(self) -> list[dict]:
        return self.body.get("messages", [])

    @property
    def user(self) -> str:
        return "\n".join(m["content"] for m in self.messages if m["role"] == "user")

    @property
    def system(self) -> str:
        return "\n".join(m["content"] for m in self.messages if m["role"] == "system")


@dataclass
class Reply:
    content: str | None = ""
    status: int = 200
    headers: dict = field(default_factory=dict)
    error: str | dict | None = None  # message, or the whole error object
    delay: float = 0.0
    finish_reason: str | None = "stop"
    usage: dict | str | None = "count"  # "count" | "absent" | None | a dict
    reasoning: object = None
    reasoning_field: str = "reasoning_content"
    refusal: str | None = None
    model: str | None = None  # the model name served; None echoes the request's
    logprobs: dict | None = None
    n: list[str] | None = None  # contents of n choices, when more than one is served
    raw: bytes | None = None  # sent as the body as it is
    drop: bool = False  # close the connection without an answer
    truncate_body: bool = False  # promise more bytes than are sent


class MockServer:
    def __init__(self, script, *, models=("mock",)):
        self.script, self.models = script, models
        self.log: list[Request] = []
        self.peak = self.in_flight = 0
        self._seen: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    @property
    def calls(self) -> int:
        return len(self.log)

    def __enter__(self) -> MockServer:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *args):
                pass

            def do_GET(self):
                if self.path.endswith("/models"):
                    data = [{"id": m, "object": "model"} for m in owner.models]
                    self._send(200, json.dumps({"object": "list", "data": data}).encode())
                else:
                    self._send(200, b'{"status":"ok"}')

            def do_POST(self):
                raw = self.rfile.read(int(self.headers.get("content-length", 0)))
                body = json.loads(raw or b"{}")
                with owner._lock:
                    key = json.dumps(body, sort_keys=True)
                    nth = owner._seen.get(key, 0)
                    owner._seen[key] = nth + 1
                    request = Request(body, dict(self.headers), self.path, len(owner.log), nth)
                    owner.log.append(request)
                    owner.in_flight += 1
                    owner.peak = max(owner.peak, owner.in_flight)
                try:
                    reply = owner.script(request)
                    if not isinstance(reply, Reply):
                        reply = Reply(reply)
                    if reply.delay:
                        time.sleep(reply.delay)
                finally:
                    with owner._lock:
                        owner.in_flight -= 1
                with contextlib.suppress(OSError):
                    self._answer(request, reply)

            def _answer(self, request, reply):
                if reply.drop:
                    self.close_connection = True
                    self.connection.close()
                elif reply.raw is not None:
                    self._send(reply.status, reply.raw, reply.headers)
                elif reply.status != 200:
                    error = reply.error
                    if not isinstance(error, dict):
                        error = {"message": error or f"status {reply.status}", "type": "mock"}
                    self._send(reply.status, json.dumps({"error": error}).encode(), reply.headers)
                else:
                    data = json.dumps(completion(request, reply)).encode()
                    self._send(200, data, reply.headers, cut=reply.truncate_body)

            def _send(self, status, data, headers=(), cut=False):
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data) + (50 if cut else 0)))
                for name, value in dict(headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)
                if cut:
                    self.close_connection = True

        class Server(ThreadingHTTPServer):
            request_queue_size = 1024
            daemon_threads = True

            def handle_error(self, request, client_address):
                pass

        self._http = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exc) -> None:
        self._http.shutdown()
        self._http.server_close()


def completion(request: Request, reply: Reply) -> dict:
    choices = []
    for i, content in enumerate(reply.n if reply.n is not None else [reply.content]):
        message = {"role": "assistant", "content": content}
        if reply.reasoning is not None:
            message[reply.reasoning_field] = reply.reasoning
        if reply.refusal is not None:
            message["refusal"] = reply.refusal
        choice = {"index": i, "message": message, "finish_reason": reply.finish_reason}
        if reply.logprobs is not None:
            choice["logprobs"] = reply.logprobs
        choices.append(choice)
    body = {
        "id": f"chatcmpl-{request.number}",
        "object": "chat.completion",
        "created": 1700000000,
        "model": reply.model or request.body.get("model", "mock"),
        "choices": choices,
    }
    if reply.usage == "count":
        prompt = sum(len(m["content"].split()) for m in request.messages)
        answer = sum(len((c["message"]["content"] or "").split()) for c in choices)
        body["usage"] = {
            "prompt_tokens": prompt,
            "completion_tokens": answer,
            "total_tokens": prompt + answer,
        }
    elif reply.usage != "absent":
        body["usage"] = reply.usage
    return body
