"""Without the extra everything but training works, and the error says what to install."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cotkit.train.extra import loaded


def test_the_room_loads_no_training_library():
    code = "import sys, cotkit.train; cotkit.train.TrainResult, cotkit.train.train; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "trl", "peft", "datasets", "gguf"} & set(done.stdout.split())


def test_a_missing_library_is_named_with_the_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # what `import` finds where a package is not installed
    with pytest.raises(ImportError, match=r"pip install 'cotkit\[train\]'.*CPU.*missing: torch"):
        loaded("torch")


def test_offline_holds_while_the_libraries_are_imported_and_no_longer(monkeypatch, tmp_path):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "reads_its_settings.py").write_text("import os\nseen = os.environ['HF_HUB_OFFLINE']\n")
    assert loaded("reads_its_settings")[0].seen == "1" and "HF_HUB_OFFLINE" not in os.environ


def test_a_name_that_is_not_there_is_an_attribute_error():
    import cotkit.train

    with pytest.raises(AttributeError, match="trainn"):
        cotkit.train.trainn  # noqa: B018
    assert "train" in dir(cotkit.train)
