"""The whole loop with real trainings of a tiny model: every method, with LoRA and without."""

from __future__ import annotations

import pathlib
import sys

import pytest
from tiny import needs_training

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "self_improve"))

from scripted_loop import model, problems, script

from cotkit.pipelines import self_improve
from cotkit.train import FolderTrainer

pytestmark = [needs_training, pytest.mark.usefixtures("one_thread")]
TRAININGS = [("sft", None), ("dpo", True), ("dpo", None), ("dpo_sft", {"r": 2}), ("kto", True), ("kto", None)]


@pytest.mark.parametrize(("method", "lora"), TRAININGS, ids=str)
def test_two_cycles_train_one_after_the_other_by_each_method(base, serve, tmp_path, method, lora):
    """What the trained models say is scripted, what they are made of is real."""
    server, served = serve(script), []

    def serving(folder, name):
        served.append(folder)
        return model(server, f"{name}-90")

    options = {"max_steps": 1, "batch_size": 2, "max_length": 256, "lora": lora, "say": None}
    result = self_improve(
        problems(52), model(server, "actor-40"), trainer=FolderTrainer(base, options, server=serving),
        method=method, cycles=2, iterations=0, num_generations=4, dev=20, test=8, min_examples=2,
        run=str(tmp_path / "run"), show="none",
    )  # fmt: skip
    first, second = result.cycles
    assert result.report["stopped"] is None and first["decision"]["promoted"]
    trained = [cycle["training"] for cycle in (first, second)]
    for made, cycle in zip(trained, (first, second), strict=True):
        counts = cycle["counts"]
        assert made["trained"] and made["method"] == method and made["steps"] == 1
        assert made["rows"] + sum(made["drops"].values()) == counts["kept"] + counts["replayed"] > 2
    kind = "adapter" if lora else "model"
    assert trained[1]["start"] == trained[0][kind]  # the second goes on from the first
    assert trained[1]["reference"] == (None if method == "sft" else trained[0][kind])
    assert all((folder / "config.json").is_file() for folder in served)
    assert {folder.name for folder in served} == {"merged" if lora else "model"}
