"""`local_model`: what it refuses before anything is fetched or started, and a real server shared by users."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cotkit.chat import ModelError, embedded, weights
from cotkit.chat.embedded_server import ServerFolder, _birth_by_ps, birth

LIMIT_S = 60  # of a wait; only a failing test comes near


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """Nothing fetched, nothing to fetch it from."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("COTKIT_MODELS", raising=False)
    monkeypatch.setenv(embedded.KEY_VARIABLE, "")  # so that it is restored
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    yield tmp_path / "cache"
    embedded.release_local_models()


@pytest.fixture
def smollm2(tmp_path, monkeypatch):
    """The weights, out of the user's own cache, and servers that belong to this test alone."""
    file = weights.path("smollm2-135m", say=lambda line: None)
    monkeypatch.setenv("COTKIT_MODELS", str(file))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(embedded.KEY_VARIABLE, "")  # so that it is restored
    yield file
    embedded.release_local_models()
    for state in server_states():
        wait_for_the_end(state["pid"])


def server_states() -> list[dict]:
    folders = [file.parent for file in embedded._servers().glob("*/state.json")]
    return [state for folder in folders if (state := ServerFolder(folder).state())]


def wait_for_the_end(pid: int) -> None:
    """Blocks until the process has ended, zombie or gone."""
    with contextlib.suppress(ProcessLookupError):
        watch = os.pidfd_open(pid)
        try:
            assert select.select([watch], [], [], LIMIT_S)[0], f"process {pid} still runs"
        finally:
            os.close(watch)


# What is refused


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"name": "qwen"}, ValueError, "smollm2-135m, qwen2.5-coder-0.5b, qwen2.5-coder-1.5b"),
        ({"parallel": 0}, ValueError, "parallel must be a whole number, at least 1: got 0"),
        ({"parallel": 2.5}, ValueError, "parallel"),
        ({"parallel": True}, ValueError, "parallel"),
        ({"ctx": 16}, ValueError, "ctx must be a whole number, at least 128"),
        ({"threads": -1}, ValueError, "threads"),
        ({"adapter": "/no/adapter.gguf"}, ValueError, "there is no file /no/adapter.gguf"),
        ({"temprature": 0.5}, TypeError, "temprature"),
        ({"temperature": "hot"}, TypeError, "temperature"),
        ({"base_url": "http://elsewhere/v1"}, TypeError, "local_model sets base_url itself"),
        ({"revive": print}, TypeError, "local_model sets revive itself"),
        ({"price": (1, 1), "api_key_env": "KEY"}, TypeError, "sets api_key_env, price itself"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_fetched(empty_cache, options, error, words):
    with pytest.raises(error, match=words):
        embedded.local_model(**options)
    assert not empty_cache.exists()


def test_weights_that_cannot_be_had_are_an_error_with_the_fix(empty_cache):
    with pytest.raises(weights.WeightsError, match="COTKIT_MODELS"):
        embedded.local_model("smollm2-135m", say=lambda line: None)
    with pytest.raises(weights.WeightsError, match="cotkit models pull smollm2-135m"):
        embedded.local_model("smollm2-135m", offline=True)


def test_without_the_runtime_the_error_names_the_install_line(empty_cache, monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(ImportError, match="pip install xllamacpp"):
        embedded.local_model()


def test_a_server_that_dies_at_its_start_gives_the_end_of_its_log(empty_cache, monkeypatch):
    damaged = empty_cache.parent / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + bytes(200))
    monkeypatch.setattr(weights, "path", lambda *args, **options: damaged)
    with pytest.raises(RuntimeError, match="failed to load model") as error:
        embedded.local_model("smollm2-135m")
    assert "exit code 1" in str(error.value) and "server.log ends with" in str(error.value)
    assert server_states() == []


@pytest.fixture
def no_server(empty_cache, monkeypatch):
    """Only the small model's weights can be had, and its server is already there."""

    def only_the_small_one(name, fetch=True, say=print):
        if name != "smollm2-135m":
            raise weights.WeightsError(f"no {name}")
        return Path("small.gguf")

    monkeypatch.setattr(weights, "path", only_the_small_one)
    monkeypatch.setattr(embedded, "_running_or_started", lambda place, settings: 1)


def test_auto_falls_back_to_the_small_model_and_says_so(no_server, capsys):
    assert embedded.local_model("auto", temperature=0.5).model == "smollm2-135m"
    assert "no qwen2.5-coder-0.5b" in (said := capsys.readouterr().out) and "much weaker" in said
    with pytest.raises(weights.WeightsError):
        embedded.local_model("qwen2.5-coder-0.5b")


def test_a_model_with_an_adapter_is_another_model(no_server, tmp_path):
    names = {embedded.local_model("smollm2-135m").model}
    for content in (b"GGUF first training", b"GGUF second training"):
        (tmp_path / "student.gguf").write_bytes(content)
        names.add(embedded.local_model("smollm2-135m", adapter=tmp_path / "student.gguf").model)
    assert len(names) == 3 and all(name.startswith("smollm2-135m") for name in names)


def test_options_of_the_chat_model_are_passed_on(no_server):
    plain = embedded.local_model("smollm2-135m", parallel=3)
    assert plain.max_concurrency == 3 and plain.describe()["endpoints"][0]["endpoint"] == "embedded"
    chosen = embedded.local_model("smollm2-135m", temperature=0.5, max_tokens=7)
    assert chosen.describe()["endpoints"][0]["parameters"] == {"temperature": 0.5, "max_tokens": 7}


def test_a_server_that_cannot_be_started_again_is_named_with_its_log_and_the_fix(no_server, monkeypatch):
    model = embedded.local_model("smollm2-135m")  # nobody listens at its port

    def ends_at_once(place, settings):
        assert settings["weights"] == "small.gguf"
        raise RuntimeError("it ended at its start")

    monkeypatch.setattr(embedded, "_running_or_started", ends_at_once)
    words = r"server died; log: .*server\.log; call cotkit\.local_model\(\) again \(it ended at its start\)"
    with pytest.raises(ModelError, match=words) as error:
        model.complete("hi")
    assert error.value.stops_run


# The folder of a server


def test_a_process_is_known_by_pid_and_start_time():
    assert birth(os.getpid()) == birth(os.getpid()) is not None
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert birth(child.pid) is not None
    assert not shutil.which("ps") or _birth_by_ps(child.pid) == _birth_by_ps(child.pid) is not None
    child.kill()
    wait_for_the_end(child.pid)
    assert birth(child.pid) is None  # a zombie: nobody has waited for it yet
    assert not shutil.which("ps") or _birth_by_ps(child.pid) is None
    child.communicate()
    assert birth(child.pid) is None


def test_users_that_ended_are_forgotten_and_a_pid_used_again_is_no_user(tmp_path):
    place = ServerFolder(tmp_path)
    place.join(os.getpid())
    place.join(os.getpid())
    (place.users_folder / f"{os.getpid()}-1").touch()  # an earlier process of the same pid
    (place.users_folder / "999999999-1").touch()
    assert place.users() == [os.getpid()]
    assert len(list(place.users_folder.iterdir())) == 1
    place.leave(os.getpid())
    assert place.users() == []


@pytest.mark.parametrize(
    "left", ['{"pid": 999999999, "started": "1", "port": 1}', "{", "[]", '{"pid": 1}'], ids=str
)
def test_the_state_a_killed_server_left_is_removed(tmp_path, left):
    (tmp_path / "state.json").write_text(left)
    assert ServerFolder(tmp_path).state() is None
    assert not (tmp_path / "state.json").exists()


def test_everyone_gets_the_same_key_and_only_the_owner_can_read_it(tmp_path):
    barrier = threading.Barrier(8)
    keys = set()

    def ask(number):
        place = ServerFolder(tmp_path / str(number))
        barrier.wait()
        keys.add(place.key())

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 1 and len(keys.pop()) >= 32
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


# A real server

USER = """
import json, sys
from cotkit.chat.embedded import local_model
print("ready", flush=True)
while True:
    try:
        line = sys.stdin.readline()
        if line == "":
            break
        if line == "start\\n":
            model = local_model("smollm2-135m", ctx=512)
            print(json.dumps(model.describe()), flush=True)
        else:
            print(json.dumps(model.complete(line, temperature=0, max_tokens=4).text), flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


class User:
    """A process of its own, in its own process group, like a notebook's kernel."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.answer() == "ready"

    def say(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        return self.process.stdout.readline().rstrip("\n")


@pytest.fixture
def users():
    started = [User(), User()]
    yield started
    for user in started:
        user.process.kill()
        user.process.communicate()


@pytest.mark.model
def test_a_server_is_shared_and_ends_with_its_last_user(smollm2, users):
    first, second = users
    for user in users:  # both at once: one starts it, the other waits and joins
        user.say("start")
    descriptions = [user.answer() for user in users]
    (state,) = server_states()
    server = state["pid"]
    assert descriptions[0] == descriptions[1]
    assert str(state["port"]) not in descriptions[0] and "embedded" in descriptions[0]

    first.say("What is 3 + 4?")
    second.say("What is 3 + 4?")
    assert first.answer() == second.answer() != ""

    for user in users:  # as Jupyter interrupts a cell
        os.killpg(user.process.pid, signal.SIGINT)
        assert user.answer() == "interrupted"
    first.say("What is 3 + 4?")
    assert first.answer()

    first.process.communicate()  # the end of its input: it leaves
    assert first.process.returncode == 0
    second.say("What is 3 + 4?")
    assert second.answer()
    assert birth(server) == state["started"]

    second.process.kill()  # kill -9 of a kernel
    wait_for_the_end(server)
    assert server_states() == []


@pytest.mark.model
def test_this_process_starts_joins_and_releases_a_server(smollm2, capsys):
    model = embedded.local_model("smollm2-135m", ctx=512, temperature=0, max_tokens=8)
    again = embedded.local_model("smollm2-135m", ctx=512)
    (state,) = server_states()
    assert model.max_concurrency == 4 and model.describe() != again.describe()  # other parameters
    completion = model.complete("What is 3 + 4?")
    assert completion.text and completion.endpoint == "embedded" and completion.usage.cost_usd == 0

    key = os.environ[embedded.KEY_VARIABLE]
    folder = next(embedded._servers().glob("smollm2-135m-*"))
    for file in [*folder.rglob("*"), folder.parent / "key"]:
        if file.is_file():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
            assert file.name == "key" or key not in file.read_text()
    command_and_environment = [
        Path(f"/proc/{state['pid']}/{name}").read_bytes() for name in ("cmdline", "environ")
    ]
    assert not [text for text in command_and_environment if key.encode() in text]
    assert key not in repr(model) + json.dumps(model.describe()) + capsys.readouterr().out
    with pytest.raises(embedded.urllib.request.HTTPError, match="401"):
        embedded.urllib.request.urlopen(f"http://127.0.0.1:{state['port']}/v1/models", timeout=10)

    os.kill(state["pid"], signal.SIGKILL)  # it crashes: the next call starts another
    wait_for_the_end(state["pid"])
    second = model.complete("What is 3 + 4?")
    assert second.text == completion.text and [a.kind for a in second.attempts] == ["connection"]
    assert again.complete("What is 3 + 4?", max_tokens=4).text  # finds the one that `model` started
    (other,) = server_states()
    assert other["pid"] != state["pid"]
    assert not Path(f"/proc/{state['pid']}").exists()  # not even a zombie

    embedded.release_local_models()
    wait_for_the_end(other["pid"])
