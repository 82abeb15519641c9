"""Where a training's base model is found, and what becomes of one that is gone: needs no training library."""

from __future__ import annotations

import hashlib
import json
import os
import sys

import pytest
from tiny import needs_training

from cotkit import chat
from cotkit.train import bases
from cotkit.train.disk import whole


@pytest.fixture
def made(tmp_path, monkeypatch):
    """An embedded model whose conversion writes two files; the calls of it."""
    gguf, calls = tmp_path / "small.gguf", []
    gguf.write_bytes(b"GGUF")

    def from_gguf(file, folder):
        calls.append(folder)
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"weights")

    monkeypatch.setattr(chat, "model_path", lambda name: gguf)
    monkeypatch.setattr(bases, "from_gguf", from_gguf)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return calls


def test_an_embedded_model_is_converted_once_and_again_when_its_cache_is_cleared(made):
    folder = bases.transformers_folder("smollm2-135m")
    assert bases.transformers_folder("smollm2-135m") == folder and len(made) == 1
    for file in ("config.json", "model.safetensors"):  # half cleared
        (folder / file).unlink()
        assert bases.transformers_folder("smollm2-135m") == folder and (folder / file).is_file()
    assert len(made) == 3 and list(folder.parent.glob("*.part")) == []


def test_a_conversion_that_finds_no_room_says_so_and_leaves_nothing(made, monkeypatch):
    def full(file, folder):
        folder.mkdir()
        raise Exception("Error while serializing: I/O error: No space left on device (os error 28)")

    with monkeypatch.context() as patched:
        patched.setattr(bases, "from_gguf", full)
        with pytest.raises(OSError, match=r"No space left on device: .*smollm2-135m"):
            bases.transformers_folder("smollm2-135m")
    assert bases.transformers_folder("smollm2-135m").is_dir()


def adapter_on(folder, below) -> str:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(below)}))
    return str(folder)


def test_an_adapters_base_in_a_cleared_cache_is_made_again(made, tmp_path):
    digest = hashlib.sha256(b"GGUF").hexdigest()[:12]
    adapter = adapter_on(tmp_path / "adapter", f"/elsewhere/transformers/smollm2-135m-{digest}")
    found = bases.find_base(adapter)
    assert found.folder == bases.transformers_folder("smollm2-135m") and str(found.adapter) == adapter


@pytest.mark.parametrize("gone", ["smollm2-135m-0123456789ab", "some-model"])
def test_an_adapters_base_that_cannot_be_had_again_is_named_with_what_to_do(made, tmp_path, gone):
    adapter = adapter_on(tmp_path / "adapter", f"/elsewhere/{gone}")
    with pytest.raises(ValueError, match=rf"trained on /elsewhere/{gone}, which is not there. Put it back"):
        bases.find_base(adapter)


@needs_training
def test_a_model_in_the_hugging_face_cache_is_found_by_its_name_without_a_network(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    home, revision = tmp_path / "models--some-one--small", "0" * 40
    (home / "snapshots" / revision).mkdir(parents=True)
    (home / "snapshots" / revision / "config.json").write_text("{}")
    (home / "refs").mkdir()
    (home / "refs/main").write_text(revision)
    assert bases.find_base("some-one/small").folder.name == revision
    with pytest.raises(ValueError, match="`hf download NAME` puts it there"):
        bases.find_base("some-one/other")
    with pytest.raises(ValueError, match="hf download"):
        bases.find_base("some-one/..")


def test_a_result_is_whole_or_the_one_before(tmp_path):
    place = tmp_path / "deep/result"
    for content in ("first", "second"):  # no folder can be renamed onto one that holds something
        with whole(place, folder=True) as part:
            part.mkdir()
            (part / "file").write_text(content)
        assert (place / "file").read_text() == content
    left = place.with_name("result.part")
    left.mkdir()
    (left / "of a killed call").touch()
    with pytest.raises(RuntimeError), whole(place, folder=True) as part:
        part.mkdir()
        raise RuntimeError
    assert (place / "file").read_text() == "second" and not left.exists()
    left = tmp_path / "deep/.file.0badf00d.tmp"
    left.write_text("of a killed call")
    with whole(tmp_path / "deep/file") as part:
        part.write_text("a file")
    assert (tmp_path / "deep/file").read_text() == "a file" and not left.exists()


def test_what_is_whole_was_forced_to_disk_before_it_took_its_place(tmp_path, monkeypatch):
    forced, sync, replace = [], os.fsync, os.replace

    def fsync(number):
        forced.append(os.fstat(number).st_ino)
        sync(number)

    def rename(part, place):
        forced.append(str(place))
        replace(part, place)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    with whole(tmp_path / "student.gguf") as part:
        part.write_text("weights")
    with whole(tmp_path / "model", folder=True) as part:
        (part / "deep").mkdir(parents=True)
        (part / "deep/weights").write_text("weights")
    file, folder, inside, entries = (
        (tmp_path / name).stat().st_ino for name in ("student.gguf", "model", "model/deep/weights", "")
    )
    assert forced.index(file) < forced.index(str(tmp_path / "student.gguf"))
    assert max(map(forced.index, (folder, inside))) < forced.index(str(tmp_path / "model"))
    assert forced[-1] == entries


@pytest.mark.skipif(sys.platform == "win32", reason="errno of Linux and macOS")
def test_a_full_disk_is_one_error_whoever_wrote(tmp_path):
    with pytest.raises(OSError, match="No space left") as caught, whole(tmp_path / "result", True) as part:
        part.mkdir()
        raise ValueError("StorageFull")
    assert caught.value.filename == str(tmp_path / "result") and not list(tmp_path.iterdir())
