"""What a training was asked and what came of it: `LoraOptions`, `TrainResult` and its `manifest.json`."""

from __future__ import annotations

import json
import math
import os
import pathlib
from dataclasses import dataclass, field
from typing import Any

METHODS = ("sft", "dpo", "dpo_sft", "kto", "grpo")


@dataclass(frozen=True)
class LoraOptions:
    """A low-rank adapter (LoRA, arXiv 2106.09685) on the linear layers of a frozen model.

    r: rank. alpha: the update is scaled by alpha / r. target_modules: "all-linear" (every linear layer but
    the output), or names such as ["q_proj", "v_proj"].
    """

    r: int = 16
    alpha: int = 32
    dropout: float = 0.0
    target_modules: str | tuple[str, ...] = "all-linear"

    def __post_init__(self) -> None:
        names = self.target_modules
        listed = isinstance(names, list | tuple) and len(names) > 0 and all(type(n) is str for n in names)
        sound = {
            "r": type(self.r) is int and self.r >= 1,
            "alpha": type(self.alpha) in (int, float) and 0 < self.alpha < math.inf,
            "dropout": type(self.dropout) in (int, float) and 0 <= self.dropout < 1,
            "target_modules": isinstance(names, str) or listed,
        }
        if wrong := [name for name, holds in sound.items() if not holds]:
            raise ValueError(
                f"lora: {wrong[0]} is {getattr(self, wrong[0])!r}; r is a whole number of at least 1, alpha "
                "above 0, dropout from 0 to below 1, target_modules 'all-linear' or names of layers"
            )


@dataclass
class TrainResult:
    """What a training did. `status` says how it ended:

    "ok"         all steps done, or stopped early by the evaluation loss; `adapter` or `model` is there
    "diverged"   the loss was NaN, infinite or exploding; nothing is to be used
    "disk_full"  something could not be written; the checkpoint before is whole, and the same call goes on
                 from it
    "out_of_memory"  a step did not fit; with a lower batch_size or max_length it is another training
    "running"    it never ended (killed): the same call goes on from the last whole checkpoint
    """

    status: str
    detail: str  # the status in words
    method: str
    output: pathlib.Path  # the folder, with manifest.json and log.jsonl
    adapter: pathlib.Path | None  # a PEFT adapter folder, when trained with LoRA
    model: pathlib.Path | None  # a whole Hugging Face model folder, when trained without
    base: pathlib.Path  # the Hugging Face folder below
    reference: pathlib.Path | None  # what dpo and kto were held against: always a folder on disk
    steps: int
    loss_first: float | None
    loss_last: float | None
    seconds: float  # over all calls that went on with it
    rows: int  # trained on
    drops: dict[str, int] = field(default_factory=dict)  # given = rows + sum(drops)
    warnings: list[str] = field(default_factory=list)
    manifest: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def trained(self) -> bool:
        """Whether there is a model to use."""
        return self.status == "ok"

    def _repr_markdown_(self) -> str:
        loss = "" if self.loss_last is None else f", loss {self.loss_first:.3f} to {self.loss_last:.3f}"
        lines = [
            f"**{self.method}: {self.status}** ({self.detail}), {self.rows} rows, {self.steps} steps{loss}"
        ]
        lines += [f"- left out: {count} {reason}" for reason, count in self.drops.items()]
        lines += [f"- {warning}" for warning in self.warnings]
        return "\n".join([*lines, f"\n`{self.adapter or self.model or self.output}`"])


def from_manifest(output: pathlib.Path, manifest: dict[str, Any]) -> TrainResult:
    def place(name: str) -> pathlib.Path | None:
        return None if manifest[name] is None else output / manifest[name]  # one elsewhere is absolute

    facts = ("status", "detail", "method", "steps", "loss_first", "loss_last", "seconds")
    return TrainResult(
        **{name: manifest[name] for name in facts},
        output=output,
        **{name: place(name) for name in ("adapter", "model", "base", "reference")},
        rows=manifest["data"]["rows"],
        drops=manifest["data"]["drops"],
        warnings=manifest["warnings"],
        manifest=manifest,
    )


def open_training(output: str | os.PathLike[str]) -> TrainResult:
    """The result of an earlier `train`, from its manifest. Raises FileNotFoundError where there is none."""
    folder = pathlib.Path(output).expanduser()
    file = folder / "manifest.json"
    if not file.is_file():
        raise FileNotFoundError(f"{folder} holds no manifest.json: no training was started there")
    return from_manifest(folder, json.loads(file.read_text(encoding="utf-8")))
