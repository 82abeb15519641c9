"""Without the extra everything but training works, and the error says what to install."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from cotkit.chat import WeightsError, model_path
from cotkit.train import EmbeddedTrainer, FolderTrainer
from cotkit.train.extra import loaded


def test_the_room_loads_no_training_library():
    code = "import sys, cotkit.train; cotkit.train.TrainResult, cotkit.train.train; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "trl", "peft", "datasets", "gguf"} & set(done.stdout.split())


def test_a_missing_library_is_named_with_the_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # what `import` finds where a package is not installed
    with pytest.raises(ImportError, match=r"pip install -e '/path/to/clone\[train\]'.*CPU.*missing: torch"):
        loaded("torch")


def without(monkeypatch, *names):
    """These libraries are missing and all others there, whatever is installed."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in names else name)


def test_a_trainer_looks_for_all_it_needs_when_it_is_made_and_says_how_to_go_on(monkeypatch, tmp_path):
    """What is missing must not show after traces were paid for."""
    without(monkeypatch, "gguf", "peft")
    with pytest.raises(ImportError) as caught:
        EmbeddedTrainer()
    told = str(caught.value)
    assert "pip install -e '/path/to/clone[train]'" in told and "(missing: peft, gguf)" in told
    assert "go on without training leave `trainer` out" in told and "-p 'methods=[]'" in told
    with pytest.raises(ImportError, match=r"\(missing: peft\)"):  # it writes no GGUF
        FolderTrainer("nobody/no-such-model", server=print)


NOTEBOOK = """
import json, sys

sys.modules["gguf"] = None  # as where the extra is not installed
cells = [c for c in json.load(open(sys.argv[1]))["cells"] if c["cell_type"] == "code"]
for cell in cells[:4]:  # to the estimate
    exec("".join(cell["source"]), globals())
    if "parameters" in cell["metadata"].get("tags", []):
        n_problems, teacher, methods = 40, "", json.loads(sys.argv[2])
"""


@pytest.mark.model
@pytest.mark.parametrize(("methods", "code"), [("null", 1), ("[]", 0)], ids=["training", "data only"])
def test_the_notebook_says_at_once_how_to_go_on_without_training_and_then_does(tmp_path, methods, code):
    try:
        model_path("smollm2-135m")
    except WeightsError as error:
        pytest.skip(f"the weights of smollm2-135m cannot be had: {error}")
    notebook = pathlib.Path(__file__).parents[2] / "notebooks" / "04_self_improvement.ipynb"
    env = {**os.environ, "COTKIT_REPORT_DIR": str(tmp_path)}
    command = [sys.executable, "-c", NOTEBOOK, str(notebook), methods]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == code, done.stderr
    if code:
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith("ImportError: Training needs the extra") and "methods=[]" in last
    else:
        assert "Calls and tokens at most" in done.stdout


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
