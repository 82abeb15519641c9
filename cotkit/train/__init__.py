"""Training on what a run kept: SFT, DPO, DPO+SFT, KTO and GRPO through TRL, and serving the result.

    result = train("sft", "runs/cycle0/sft.jsonl", "smollm2-135m", "runs/cycle0/training")
    student = to_llama_model(result.adapter, "runs/cycle0/student.gguf", "smollm2-135m")
    student = cotkit.local_model("smollm2-135m", gguf=student)

`data.py` checks the rows, `bases.py` finds or makes the model to start from, `running.py` runs a training
that `trainers.py` sets up and `guards.py` watches, `disk.py` says how results are written, `adapters.py`
hands them to a server, `trainer.py` does all of it between the cycles of a self-improvement run. All of it
needs the extra `train`; importing this room loads none of its libraries.
"""

from __future__ import annotations

from cotkit.lazy import lazy

_HOME = {
    "EmbeddedTrainer": "trainer",
    "FolderTrainer": "trainer",
    "LoraOptions": "result",
    "METHODS": "result",
    "TrainResult": "result",
    "TrainingDataError": "data",
    "merge": "adapters",
    "open_training": "result",
    "to_llama_adapter": "adapters",
    "to_llama_model": "adapters",
    "train": "running",
    "transformers_folder": "bases",
}
__all__ = list(_HOME)
__getattr__, __dir__ = lazy(__name__, _HOME)
