"""`local_model(...)`: a ChatModel on a model of this machine, no account and (once fetched) no network.

The model runs in llama.cpp's server, in a process of its own (`cotkit.chat.embedded_server`). Notebooks and
scripts of one person that ask for the same model with the same settings share one server; it ends when the
last of them has ended, however that came about. Interrupting a cell does not touch it. Should it die, the
next call starts it again.

The server listens on another port each time, so the endpoint is called `embedded` wherever it is written
down: resuming a run and the response cache do not depend on the port.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from cotkit.chat import weights
from cotkit.chat.embedded_server import ServerFolder
from cotkit.cores import available_cores

if TYPE_CHECKING:
    from cotkit.chat.model import ChatModel

DEFAULT = "qwen2.5-coder-0.5b"
FALL_BACK = "smollm2-135m"
KEY_VARIABLE = "COTKIT_EMBEDDED_KEY"
START_S = 180.0  # a large file on a slow disk
TIMEOUT_S = 600.0  # of a call: a long answer beside three others on two busy cores
MAX_THREADS = 8  # models this small gain nothing from more
PACKAGE_PARENT = Path(__file__).resolve().parents[2]


def local_model(
    name: str = DEFAULT,
    *,
    parallel: int | None = None,
    ctx: int | None = None,
    threads: int | None = None,
    adapter: str | os.PathLike | None = None,
    gguf: str | os.PathLike | None = None,
    offline: bool = False,
    say: weights.Say = print,
    **chat_options,
) -> ChatModel:
    """A ChatModel on the embedded model `name`; its weights are fetched and its server started when needed.

    name: one of `cotkit models list`, or "auto": the default teacher, else, when its weights cannot be
        had, smollm2-135m with a notice.
    parallel, ctx: calls in flight, and tokens each may use (prompt and answer); None = the model's own.
    threads: None = the cores this process may use, at most 8.
    adapter: a LoRA file of llama.cpp to put on the weights (`cotkit.train.to_llama_adapter`). Its hash is in
        the model's name, so rows, run folders and the response cache tell one training from the next.
    gguf: a whole GGUF file to serve in place of the weights (`cotkit.train.to_llama_model`); named likewise.
    offline: never touch the network.
    say: takes the progress lines of a download.
    chat_options: ChatModel's own options (temperature, max_tokens, ...).

    Raises ValueError or TypeError for wrong settings, WeightsError when the weights cannot be had,
    ImportError without the runtime, RuntimeError when the server does not start; each says what to do.
    """
    from cotkit.chat.model import ChatModel

    model = weights.find_model(DEFAULT if name == "auto" else name)
    settings = _settings(model, parallel, ctx, threads, {"adapter": adapter, "gguf": gguf})
    options = _chat_options(ChatModel, model, settings, chat_options)
    try:
        file = settings["gguf"] or weights.path(model.name, fetch=not offline, say=say)
    except weights.WeightsError as error:
        if name != "auto":
            raise
        say(f"{error}\nUsing {FALL_BACK}, a much weaker model, instead.")
        given = {"parallel": parallel, "ctx": ctx, "threads": threads, "adapter": adapter, "offline": offline}
        return local_model(FALL_BACK, say=say, **given, **chat_options)
    place = ServerFolder(_servers() / _folder_name(model, settings))
    settings["weights"] = str(file)
    revive = functools.partial(_revived, place.folder, settings)
    return ChatModel(base_url=_base_url(place.folder, settings), revive=revive, **options)


def release_local_models() -> None:
    """This process is done with its embedded models: servers nobody else uses end within seconds."""
    for folder in _servers().glob("*/users"):
        ServerFolder(folder.parent).leave(os.getpid())


def _settings(
    model: weights.EmbeddedModel,
    parallel: int | None,
    ctx: int | None,
    threads: int | None,
    files: dict[str, str | os.PathLike | None],
) -> dict:
    """What the server is told, all defaults filled in; ValueError and ImportError before anything starts."""
    settings = {
        "parallel": model.parallel if parallel is None else parallel,
        "ctx": model.ctx if ctx is None else ctx,
        "threads": min(available_cores(), MAX_THREADS) if threads is None else threads,
    }
    for option, least in (("parallel", 1), ("ctx", 128), ("threads", 1)):
        if type(settings[option]) is not int or settings[option] < least:
            raise ValueError(f"{option} must be a whole number, at least {least}: got {settings[option]!r}")
    settings |= {"name": model.name}
    for option, given in files.items():
        settings |= {option: None, f"{option}_sha256": None}
        if given is None:
            continue
        file = Path(given).expanduser().resolve()
        if not file.is_file():
            raise ValueError(f"{option}: there is no file {file}")
        with open(file, "rb") as stream:
            if stream.read(4) != b"GGUF":
                made = {"adapter": "to_llama_adapter", "gguf": "to_llama_model"}[option]
                raise ValueError(f"{option}: {file} is no GGUF file; cotkit.train.{made}() writes one")
            stream.seek(0)
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        settings |= {option: str(file), f"{option}_sha256": digest}
    try:
        settings["runtime"] = importlib.metadata.version("xllamacpp")
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(
            "local_model needs the package xllamacpp, which holds llama.cpp's server: `pip install xllamacpp`"
        ) from None
    return settings


def _chat_options(chat_model: type, model: weights.EmbeddedModel, settings: dict, chosen: dict) -> dict:
    """The options of the ChatModel; a wrong one raises here, before anything is fetched."""
    served = model.name
    for option in ("gguf", "adapter"):  # another model than the bare one: in rows, and in the cache's keys
        if settings[option]:
            served += f"+{Path(settings[option]).stem}-{settings[f'{option}_sha256'][:12]}"
    defaults = {"max_tokens": model.max_tokens, "timeout": TIMEOUT_S, "max_retries": 2}
    defaults["max_concurrency"] = settings["parallel"]
    fixed = {"api_key_env": KEY_VARIABLE, "endpoint_name": "embedded", "price": (0, 0), "supports_n": False}
    if taken := sorted({"model", "base_url", "client", "revive", *fixed} & chosen.keys()):
        raise TypeError(f"local_model sets {', '.join(taken)} itself")
    options = {"model": served, **defaults, **chosen, **fixed}
    chat_model(base_url="http://127.0.0.1/v1", **{**options, "api_key_env": ""})  # checks them all
    return options


def _servers() -> Path:
    """Where the servers of this machine are noted: a home folder may be shared by several machines."""
    return weights.cache_folder().parent / "servers" / (platform.node() or "here")


def _folder_name(model: weights.EmbeddedModel, settings: dict) -> str:
    told = {**settings, "sha256": model.sha256}
    return f"{model.name}-{hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]}"


def _base_url(folder: Path, settings: dict) -> str:
    """Where the server of `folder` answers, started when it has to be; its key is in KEY_VARIABLE then."""
    place = ServerFolder(folder)
    port = _running_or_started(place, settings)
    os.environ[KEY_VARIABLE] = place.key()  # ChatModel takes keys by the name of a variable
    return f"http://127.0.0.1:{port}/v1"


def _revived(folder: Path, settings: dict) -> str:
    """`_base_url`, for a ChatModel that finds its server gone; RuntimeError when that cannot be mended."""
    try:
        return _base_url(folder, settings)
    except Exception as error:
        log = ServerFolder(folder).log
        raise RuntimeError(
            f"the embedded model's server died; log: {log}; call cotkit.local_model() again ({error})"
        ) from error


def _running_or_started(place: ServerFolder, settings: dict) -> int:
    """The port of the server that `place` describes, with this process among its users."""
    with place.lock.acquire(timeout=2 * START_S):
        place.join(os.getpid())
        if (state := place.state()) is not None:
            if _answers(state["port"]):
                return state["port"]
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(state["pid"], signal.SIGKILL)  # it hangs
        return _start(place, settings)


def _start(place: ServerFolder, settings: dict) -> int:
    place.write("settings.json", settings)
    (place.folder / "state.json").unlink(missing_ok=True)
    place.log.touch(mode=0o600)
    with open(place.log, "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "cotkit.chat.embedded_server", str(place.folder)],
            cwd=PACKAGE_PARENT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # an interrupt of a cell or a terminal is not meant for the server
        )
    threading.Thread(target=process.wait, daemon=True).start()  # no zombie, should it end before us
    try:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise RuntimeError(_why_it_ended(process.returncode, settings["name"], place))
            state = place.state()
            if state is not None and _answers(state["port"]):
                return state["port"]
            time.sleep(0.05)
        raise RuntimeError(
            f"the server of {settings['name']} did not answer within {START_S:.0f} s: its log is {place.log}"
        )
    except BaseException:
        process.kill()
        raise


def _why_it_ended(code: int, name: str, place: ServerFolder) -> str:
    why = {
        -signal.SIGILL: "the processor lacks instructions the runtime needs (AVX2): use another machine",
        -signal.SIGKILL: "it was killed, probably for want of memory: lower parallel or ctx",
    }.get(code, "see its log below; if it names a library, reinstall xllamacpp")
    log = place.log.read_text(errors="replace").strip().splitlines()[-8:]
    return f"the server of {name} ended at its start (exit code {code}): {why}.\n{place.log} ends with:\n" + (
        "\n".join(log) or "(nothing)"
    )


def _answers(port: int) -> bool:
    """Whether the server is healthy; asked without the proxies of the environment."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"http://127.0.0.1:{port}/health", timeout=10) as response:
            return response.status == 200
    except OSError:
        return False
