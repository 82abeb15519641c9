"""A trained adapter on the embedded model: what is refused, and how it is told apart."""

from __future__ import annotations

import pytest

from cotkit.chat import embedded, weights


def test_a_file_that_is_no_adapter_is_refused_with_how_to_make_one(tmp_path):
    file = tmp_path / "adapter_model.safetensors"
    file.write_bytes(b"no gguf")
    with pytest.raises(ValueError, match=r"is no GGUF file; cotkit.train.to_llama_adapter\(\) writes one"):
        embedded.local_model("smollm2-135m", adapter=file)


def test_each_training_is_another_model_in_rows_run_folders_and_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "path", lambda *_, **__: tmp_path / "small.gguf")
    monkeypatch.setattr(embedded, "_running_or_started", lambda place, settings: 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(embedded.KEY_VARIABLE, "")
    file, told = tmp_path / "student.gguf", []
    for content in (b"GGUF first training", b"GGUF second training", b"GGUF first training"):
        file.write_bytes(content)  # the same path each time
        told.append(embedded.local_model("smollm2-135m", adapter=file).describe())
    told.append(embedded.local_model("smollm2-135m").describe())
    assert told[0] == told[2] and told[0] != told[1] != told[3] != told[0]
    assert "smollm2-135m+student-" in str(told[0]) and "student" not in str(told[3])
