"""How a request reaches an endpoint: through the `openai` client, or straight over aiohttp.

Both send one body and give the decoded answer or raise a Failure; everything else (queues, retries, cache,
cost) is above them and the same for both. "openai" is the default, and what a client of yours is used
through. "aiohttp" leaves the client's layers out: a fraction of the CPU time a call, for thousands in flight.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import pydantic_core

from cotkit import __version__
from cotkit.chat.config import OPENAI_HOST, EndpointOptions, is_loopback
from cotkit.chat.errors import Failure, classify
from cotkit.runs import dump_compact

if TYPE_CHECKING:
    import aiohttp

_Answer = tuple[int, Mapping[str, str], bytes]  # status, headers, content

CONNECT_S = 20.0
MOST_BYTES = 64 << 20  # of an answer: 32,000 tokens with 20 alternatives each take 50 MB
OF_OPENAI = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
KEEP_ALIVE_S = 4.0  # common servers close idle connections after 5 s; a request must not meet that
LIBRARIES = {"aiohttp", "httpx", "httpx2", "httpcore", "httpcore2", "anyio"}  # whose errors are the network's


class Transport(Protocol):
    """Made and used in the engine's loop."""

    async def post(self, body: dict[str, Any]) -> Any:
        """The decoded body of the answer. Raises Failure; the timeout runs from here."""

    async def close(self) -> None:
        """Closes the connections; a second time does nothing."""


class OpenAITransport:
    """The `openai` package's AsyncOpenAI with its retries off; `client` is one from outside, left open."""

    def __init__(self, options: EndpointOptions, base_url: str, host: str, key: str, client: Any = None):
        self._timeout, self._given = options.timeout, client is not None
        self._client = client or _openai_client(base_url, host, key, 2 * options.max_concurrency)

    async def post(self, body: dict[str, Any]) -> Any:
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._client.post(
                    "/chat/completions", cast_to=object, body=body, options={"max_retries": 0}
                )
            # The client decodes only what is called JSON; some servers call it text, or nothing.
            return _read(answer.encode()) if isinstance(answer, str) else answer
        except Exception as error:
            failure = self._failure_of(error, body)
            if failure is None:
                raise
        raise failure  # outside of `except`: a traceback must not show the client's own error, key and all

    def _failure_of(self, error: Exception, sent: dict[str, Any]) -> Failure | None:
        import openai

        if isinstance(error, openai.APIStatusError):
            answer = error.response  # `error.body` is a part of it
            return classify(error.status_code, answer.headers, _decoded(answer.content), sent)
        failure = _network_failure(error, self._timeout)
        if failure is None and isinstance(error, openai.APIConnectionError):
            return _connection_failure(error)
        return failure

    async def close(self) -> None:
        if not self._given:
            await self._client.close()


class AiohttpTransport:
    """aiohttp's connections and its parser.

    An endpoint's requests differ in their body alone. So the head is made once, and a request goes straight
    to a connection of the pool: half the time of a `ClientSession`, which makes a dozen objects for each. The
    session serves what is rare: a proxy, an answer that redirects.
    """

    def __init__(self, options: EndpointOptions, base_url: str, host: str, key: str):
        import aiohttp
        import yarl

        self._timeout, self._url = options.timeout, f"{base_url}/chat/completions"
        self._headers = {"User-Agent": f"cotkit/{__version__}", "Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        for name, variable in OF_OPENAI.items() if host == OPENAI_HOST else ():
            if value := os.environ.get(variable, "").strip():
                if not (value.isascii() and value.isprintable()):
                    raise Failure("auth", f"{variable} holds what no header can carry")
                self._headers[name] = value
        self._request = aiohttp.ClientRequest(
            "POST", yarl.URL(self._url), headers=self._headers, loop=asyncio.get_running_loop()
        )
        lines = [f"POST {self._request.url.raw_path_qs} HTTP/1.1"]
        lines += [f"{k}: {v}" for k, v in self._request.headers.items() if k.lower() != "content-length"]
        self._head = "\r\n".join([*lines, "Content-Length: "]).encode()
        self._connector = aiohttp.TCPConnector(
            limit=2 * options.max_concurrency, keepalive_timeout=KEEP_ALIVE_S
        )
        self._timeouts = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)  # `post` has the total
        self._proxy = _proxy_for(base_url, host)
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            timeout=self._timeouts,
            cookie_jar=aiohttp.DummyCookieJar(),  # an API has none
            proxy=self._proxy,
        )

    async def post(self, body: dict[str, Any]) -> Any:
        content = dump_compact(body)
        try:
            async with asyncio.timeout(self._timeout):
                if self._proxy is None:
                    status, headers, answer = await self._exchange(content)
                else:
                    status, headers, answer = await self._by_session(
                        "POST", self._url, self._headers, content
                    )
                if status in (301, 302, 303, 307, 308) and headers.get("Location"):
                    status, headers, answer = await self._follow(status, headers["Location"], content)
            if status < 400:
                return _read(answer)
            failure = classify(status, headers, _decoded(answer), body)
        except Exception as error:
            failure = _network_failure(error, self._timeout)
            if failure is None:
                raise
        raise failure

    async def _exchange(self, content: bytes) -> _Answer:
        """What `ClientSession` does with its connector, for a request that is written already."""
        try:
            connection = await self._connector.connect(self._request, [], self._timeouts)
        except TimeoutError:
            raise Failure("timeout", f"no connection within {CONNECT_S:g} s") from None
        try:
            transport, protocol = connection.transport, connection.protocol
            protocol.set_response_params(read_until_eof=True)
            if transport is None or protocol.should_close:  # else each answer would be the next one's
                raise Failure("connection", "the server closed, or said what nobody had asked for")
            request = b"%b%d\r\n\r\n%b" % (self._head, len(content), content)
            # At the end of this turn of the loop, together with those of others: a server that is woken for
            # each costs half as much again.
            asyncio.get_running_loop().call_soon(transport.write, request)
            message, payload = await protocol.read()
            while message.code in (100, 102, 103):
                message, payload = await protocol.read()
            answer = await _whole(payload)
        except BaseException:
            connection.close()
            raise
        connection.close() if transport.get_write_buffer_size() else connection.release()
        return message.code, message.headers, answer

    async def _by_session(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> _Answer:
        async with self._session.request(method, url, data=content, headers=headers) as response:
            return response.status, response.headers, await _whole(response.content)

    async def _follow(self, status: int, location: str, content: bytes) -> _Answer:
        """As browsers do, and without the key where it leads elsewhere."""
        import yarl

        try:
            url = self._request.url.join(yarl.URL(location))
            own = self._request.url
            same = url.origin() == own.origin() or _is_own_https(own, url)
            headers = {k: v for k, v in self._headers.items() if same or k in ("User-Agent", "Content-Type")}
            if status in (307, 308):
                return await self._by_session("POST", str(url), headers, content)
            return await self._by_session("GET", str(url), headers)
        except ValueError as error:
            raise Failure("connection", f"the server redirects to what is no address: {error}") from None

    async def close(self) -> None:
        await self._session.close()


def open_transport(
    options: EndpointOptions, base_url: str, host: str, key: str, client: Any = None
) -> Transport:
    if options.transport == "aiohttp":
        return AiohttpTransport(options, base_url, host, key)
    return OpenAITransport(options, base_url, host, key, client)


def _openai_client(base_url: str, host: str, key: str, connections: int) -> Any:
    import openai

    limits = type(openai.DEFAULT_CONNECTION_LIMITS)(  # our queue is the limit, never the pool
        max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=KEEP_ALIVE_S
    )
    timeout = openai.Timeout(None, connect=CONNECT_S)
    client = openai.AsyncOpenAI(
        api_key=key or "none",
        base_url=base_url,
        max_retries=0,
        timeout=timeout,
        http_client=openai.DefaultAioHttpClient(
            limits=limits,
            timeout=timeout,
            trust_env=not is_loopback(host),
            event_hooks={"response": [_bound_body()]},
        ),
    )
    if host != OPENAI_HOST:
        client.organization = client.project = None  # from OPENAI_ORG_ID: nobody else's business
    return client


def _bound_body() -> Callable[[Any], Awaitable[None]]:
    """A hook that has the client read no more of an answer than `MOST_BYTES`."""
    import openai

    client = next(c for c in openai.DefaultAioHttpClient.__mro__ if c.__name__ == "AsyncClient")
    httpx = importlib.import_module(client.__module__)  # httpx2, or httpx below openai 3.57

    class Bounded(httpx.AsyncByteStream):
        def __init__(self, stream: Any):
            self._stream = stream

        def __aiter__(self) -> AsyncIterator[bytes]:
            return _bounded(aiter(self._stream))

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: Any) -> None:
        response.stream = Bounded(response.stream)

    return bound


async def _bounded(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    size = 0
    async for part in parts:
        size += len(part)
        _check_size(size)
        yield part


async def _whole(content: aiohttp.StreamReader) -> bytes:
    parts, size = [], 0
    while part := await content.readany():
        parts.append(part)
        size += len(part)
        _check_size(size)
    return b"".join(parts)


def _is_own_https(own: Any, url: Any) -> bool:
    """Whether `url` is the encrypted way to the same host."""
    ports = (own.scheme, own.port, url.scheme, url.port)
    return own.host == url.host and ports == ("http", 80, "https", 443)


def _check_size(size: int) -> None:
    if size > MOST_BYTES:
        raise Failure("malformed", f"the body has more than {MOST_BYTES >> 20} MB: the rest was not read")


def _read(content: bytes) -> Any:
    """JSON, three times as fast as by `json`, which also reads what is odd and says best what is wrong."""
    try:
        return pydantic_core.from_json(content)
    except ValueError:
        return json.loads(content)


def _proxy_for(base_url: str, host: str) -> str | None:
    """The environment's proxy. (aiohttp's `trust_env` would also look into ~/.netrc, at every request.)"""
    if is_loopback(host) or urllib.request.proxy_bypass(host):  # no proxy reaches this machine's own servers
        return None
    return urllib.request.getproxies().get(base_url.partition(":")[0])


def _network_failure(error: Exception, timeout: float) -> Failure | None:
    """What went wrong on the way, or with reading what came; None for a bug of ours."""
    if isinstance(error, Failure):
        return error
    if _is_unreadable(error):
        begins = f"; it begins {error.doc[:120]!r}" if getattr(error, "doc", "") else ""
        return Failure("malformed", f"the body is not JSON: {error}{begins}")
    if _package(error) in LIBRARIES:
        return _connection_failure(error)
    if isinstance(error, TimeoutError):
        return Failure("timeout", f"no answer within {timeout:g} s (the option timeout)")
    return None


def _connection_failure(error: BaseException) -> Failure:
    """The transports map a dropped connection to a timeout: the innermost error says what it was."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    ours = [e for e in chain if _package(e) == "aiohttp"]
    timed_out = isinstance(ours[0], TimeoutError) if ours else "Timeout" in type(error).__name__
    inner = ours[0] if ours else chain[-1]
    return Failure("timeout" if timed_out else "connection", f"{type(inner).__name__}: {inner}")


def _is_unreadable(error: Exception) -> bool:
    """Whether the decoder refused the body: no JSON, nested too deeply, or a number without end."""
    if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError, RecursionError)):
        return True
    return isinstance(error, ValueError) and "integer string conversion" in str(error)


def _decoded(content: bytes) -> Any:
    """An error's body: JSON where it is, else text."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content.decode("utf-8", "replace")


def _package(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]
