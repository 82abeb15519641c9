"""`EmbeddedTrainer`: what `cotkit.self_improve` trains an embedded model with, and serves it by."""

from __future__ import annotations

import importlib.util
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cotkit.train.extra import INSTALL

if TYPE_CHECKING:
    from cotkit.chat import ChatModel


@dataclass
class EmbeddedTrainer:
    """A `cotkit.pipelines.Trainer`: LoRA training of an embedded model on this machine, served by llama.cpp.

    base: name of the embedded model. options: of `cotkit.train.train` (epochs, batch_size, learning_rate,
    max_length ...); `by_method` {method: options} goes over these, and `first`, of the training that starts
    from the untrained base, over both. chat: options of `local_model`.
    """

    base: str = "smollm2-135m"
    options: dict[str, Any] = field(default_factory=dict)
    by_method: dict[str, dict[str, Any]] = field(default_factory=dict)
    first: dict[str, Any] = field(default_factory=dict)
    chat: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if importlib.util.find_spec("trl") is None:
            raise ImportError(f"{INSTALL} Without a trainer a self-improvement run makes data only.")

    def describe(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("base", "options", "by_method", "first")}
        return {"trainer": "EmbeddedTrainer", **own}

    def train(
        self, method: str, data: pathlib.Path, champion: Mapping[str, Any] | None, output: pathlib.Path
    ) -> dict[str, Any]:
        from cotkit.train.adapters import to_llama_adapter
        from cotkit.train.running import train

        start = champion["adapter"] if champion else self.base
        options = {**self.options, **self.by_method.get(method, {}), **({} if champion else self.first)}
        result = train(method, data, start, output, **options)
        if result.status == "disk_full":
            raise RuntimeError(f"training stopped, disk full: {result.detail}")
        known = {
            "status": result.status, "detail": result.detail, "method": method, "start": str(start),
            "base": str(result.base), "reference": result.reference and str(result.reference),
            "steps": result.steps, "loss_first": result.loss_first, "loss_last": result.loss_last,
            "seconds": result.seconds, "rows": result.rows, "drops": result.drops,
            "warnings": result.warnings, "manifest": result.manifest,
        }  # fmt: skip
        if result.trained:
            adapter = to_llama_adapter(result.adapter, output / "adapter.gguf", self.base)
            known |= {"adapter": str(result.adapter), "served": str(adapter)}
        return known

    def serve(self, manifest: Mapping[str, Any]) -> ChatModel:
        from cotkit.chat import local_model

        return local_model(self.base, adapter=manifest["served"], **self.chat)
