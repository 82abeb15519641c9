"""What ends a training that goes wrong, and what it says meanwhile: a callback, and the reading of errors."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import transformers

from cotkit.train.disk import is_disk_full

_NO_MEMORY = ("can't allocate memory", "out of memory")  # of torch: CPU, GPU
EXPLODED = 10.0  # times the first loss, or 10 where that is below 1


class Guard(transformers.TrainerCallback):
    """Stops at a loss or gradient that is no number, or at a loss that explodes; then `diverged` says why.

    It stops before anything is saved, so the last checkpoint is one from before.
    """

    def __init__(self, say: Callable[[str], None] | None):
        self.say, self.diverged, self.first, self.told = say, "", None, 0
        self.started, self.done_before = time.monotonic(), 0

    def on_train_begin(self, args, state, control, **_):
        self.started, self.done_before = time.monotonic(), state.global_step

    def on_log(self, args, state, control, logs=None, **_):
        loss, norm = (logs or {}).get("loss"), (logs or {}).get("grad_norm")
        if loss is None:
            return
        if self.first is None:
            self.first = next((entry["loss"] for entry in state.log_history if "loss" in entry), loss)
        self.diverged = self.diverged or why_diverged(loss, norm, self.first, state.global_step)
        if self.diverged:
            control.should_training_stop, control.should_save, control.should_evaluate = True, False, False
        elif self.say and (tenth := state.global_step * 10 // state.max_steps) > self.told:
            self.told = tenth
            each = (time.monotonic() - self.started) / max(1, state.global_step - self.done_before)
            self.say(f"step {state.global_step} of {state.max_steps}: loss {loss:.3f}, {each:.1f} s a step")


def why_diverged(loss: float, grad_norm: float | None, first: float, step: int) -> str:
    """In words; "" while a training is sound."""
    if not math.isfinite(loss):
        return f"the loss is {loss} at step {step}: lower learning_rate"
    if grad_norm is not None and not math.isfinite(grad_norm):
        return f"the gradient is {grad_norm} at step {step}: lower learning_rate"
    if math.isfinite(first) and loss > EXPLODED * max(1.0, abs(first)):
        return f"the loss went from {first:.3g} to {loss:.3g} at step {step}: lower learning_rate"
    return ""


def why_it_stopped(error: BaseException) -> dict[str, str] | None:
    """Status and detail for what a machine lacks: room on the disk, memory. None = another error."""
    if is_disk_full(error):
        return {"status": "disk_full", "detail": "the disk is full"}
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        less = "lower batch_size or max_length, with resume=False or another output"
        return {"status": "out_of_memory", "detail": f"the memory does not suffice: {less}"}
    return None
