"""`train`: rows are checked, the model is found, TRL's trainer runs under guard, and what came of it is
written down.

    output/
      manifest.json   what was asked, versions, hashes, reference, steps, losses, status; there from the start
      log.jsonl       one line a logged step: loss, grad_norm, learning_rate and what the method reports
      adapter/        the result with LoRA; model/ without
      checkpoints/    while it runs

A checkpoint is whole when its trainer_state.json, the last file of it to be written, can be read. The last
one stays until the manifest says "ok": a call that was killed while it wrote the result is gone on with from
there, without a step. manifest.json is the first file of a training, and the last of its files to be removed.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import json
import math
import os
import pathlib
import shutil
import time
from collections.abc import Callable
from typing import Any

from cotkit.runs import write_json, write_lines
from cotkit.train.bases import chat_template_hash, find_base, weights_hash
from cotkit.train.data import Rows, TrainingRows, fit_to, read_rows
from cotkit.train.disk import is_disk_full, remove, whole
from cotkit.train.extra import loaded
from cotkit.train.result import METHODS, LoraOptions, TrainResult, from_manifest, open_training

_LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "tokenizers", "safetensors")
_LEAST = {"batch_size": 1, "max_length": 2, "save_steps": 1, "num_generations": 2, "max_completion_length": 1}
_LEAST |= {"seed": 0, "max_steps": 1, "early_stopping": 1}  # of whole numbers; the other options are above 0
_NUMBERS = (*_LEAST, "epochs", "learning_rate", "beta")
_MAY_BE_NONE = ("max_steps", "early_stopping", "learning_rate")
MAX_LENGTH = 1024
WIDE_MARGIN = 5.0  # dpo's loss is then below 0.007
_NO_RESULT = dict.fromkeys(("adapter", "model", "sha256")) | {"trained": False}
_STATE_OF_TRAINING = ("optimizer.pt", "scheduler.pt", "rng_state*", "trainer_state.json", "training_args.bin")


def train(
    method: str,
    data: Rows,
    base_model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    eval_data: Rows | None = None,
    epochs: float = 1,
    max_steps: int | None = None,
    batch_size: int = 8,
    learning_rate: float | None = None,
    lora: LoraOptions | dict[str, Any] | bool | None = True,
    max_length: int = MAX_LENGTH,
    beta: float = 0.1,
    seed: int = 0,
    resume: bool = True,
    early_stopping: int | None = None,
    save_steps: int = 50,
    device: str = "auto",
    reward: Callable[..., list[float | None]] | None = None,
    num_generations: int = 8,
    max_completion_length: int = 256,
    say: Callable[[str], None] | None = print,
) -> TrainResult:
    """Trains `base_model` on `data` and leaves the result and a manifest in `output`.

    method: "sft", "dpo", "dpo_sft" (DPO and SFT on the chosen side, equal weights: Iterative RPO, arXiv
        2404.19733), "kto" or "grpo".
    data: a file written by `Run.export` (trl_sft, trl_prompt_completion, trl_dpo, trl_dpo_standard, trl_kto),
        or rows of that form; for grpo rows with a `prompt` and whatever columns `reward` takes. The loss is
        on the answers only.
    base_model: a Hugging Face model folder; or an adapter folder of an earlier training (`result.adapter`),
        which is trained on, and is then dpo's and kto's reference; or the name of an embedded model
        ("smollm2-135m"), turned into a Hugging Face folder once.
    output: a folder. The same call on it again goes on from the last whole checkpoint, or gives the finished
        result at once; another call is refused with what differs. `resume=False` starts anew.
    eval_data: rows of the same form; the loss on them is logged every `save_steps`, and the best checkpoint
        is the result. `early_stopping=k` ends after k of these without a better one.
    max_steps: optimiser steps; None = as many as `epochs` takes.
    learning_rate: None = TRL's of the method, ten times that with LoRA. It falls to 0 as a cosine.
    lora: True (defaults), options, or None/False = train every weight.
    max_length: tokens of prompt and answer together; longer rows are left out and counted, never cut.
    beta: of dpo and kto: how close to stay to the reference.
    reward: of grpo: f(prompts, completions, **columns) -> a float a completion, None = undecided.
    device: "auto", "cpu" or "cuda".
    say: takes a line about every tenth of the way; None = silence.

    A training that goes wrong is a `TrainResult` with its status, no exception. Raises ImportError without
    the extra `train`, TrainingDataError (a ValueError without subclasses) for rows that must not be trained
    on, with file, row, field and fix, and ValueError for wrong options: all before the first step.
    """
    options = {
        "epochs": epochs,
        "max_steps": max_steps,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "max_length": max_length,
        "beta": beta,
        "seed": seed,
        "early_stopping": early_stopping,
        "save_steps": save_steps,
        "num_generations": num_generations,
        "max_completion_length": max_completion_length,
    }
    _check(method, options, eval_data is not None, reward, device)
    shape = _lora(lora)
    rows = read_rows(data, method)
    eval_rows = None if eval_data is None else read_rows(eval_data, method)
    base = find_base(base_model)
    if base.adapter and lora is not True:
        raise ValueError(
            f"lora: {base.adapter} is an adapter and keeps its own shape: leave lora out, or train on "
            "cotkit.train.merge(adapter, folder)"
        )
    config = {
        "method": method,
        "data": rows.sha256,
        "eval_data": eval_rows and eval_rows.sha256,
        "base": weights_hash(base.folder),
        "chat_template": chat_template_hash(base.folder),
        "start_adapter": base.adapter and weights_hash(base.adapter),
        "lora": None if base.adapter else shape,
        **options,
    }
    folder = pathlib.Path(output).expanduser().resolve()
    before = _earlier(folder, config, resume)
    if before and before.status == "ok":
        result = before.adapter or before.model
        if weights_hash(result) == before.manifest["sha256"]:
            remove(folder / "checkpoints")
            return before
        if say:
            say(f"{result} is not what was trained there: it is trained again")
        before = None
    return _run(folder, config, base, (rows, eval_rows), reward, device, say, before)


def fitting(method: str, data: Rows, base_model: Any, max_length: int = MAX_LENGTH) -> dict[str, Any]:
    """How many "rows" of `data` a training would take, and its "drops"; raises as `train` does."""
    (transformers,) = loaded("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(find_base(base_model).folder)
    rows = fit_to(read_rows(data, method), tokenizer, max_length)
    return {"rows": len(rows.rows), "drops": rows.drops}


def check_options(method: str, options: dict[str, Any]) -> None:
    """ValueError for a name or value that `train` would refuse, told from these alone; loads no library."""
    parameters = inspect.signature(train).parameters.values()
    known = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    if unknown := sorted(set(options) - set(known)):
        raise ValueError(f"{', '.join(unknown)} is no option of cotkit.train.train: {', '.join(known)}")
    given = {**known, **options}
    numbers = {name: given[name] for name in _NUMBERS}
    _check(method, numbers, given["eval_data"] is not None, given["reward"], given["device"])
    _lora(given["lora"])


def _check(method: str, options: dict[str, Any], evaluated: bool, reward: Any, device: str) -> None:
    """ValueError for a wrong option, before anything is read."""
    if method == "ppo":
        raise ValueError("method: TRL has no PPO trainer any more; 'grpo' trains on a verifiable reward")
    if method not in METHODS:
        raise ValueError(f"method: {method!r} is none of {', '.join(METHODS)}")
    for name, value in options.items():
        if value is None and name in _MAY_BE_NONE:
            continue
        if name not in _LEAST:
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ValueError(f"{name} must be a number above 0: got {value!r}")
        elif type(value) is not int or value < _LEAST[name]:
            raise ValueError(f"{name} must be a whole number, at least {_LEAST[name]}: got {value!r}")
    if (method == "grpo") != (reward is not None):
        raise ValueError(f"reward is what grpo trains on, and only grpo: method is {method!r}")
    if method == "grpo" and (evaluated or options["batch_size"] % options["num_generations"]):
        raise ValueError("grpo takes no eval_data, and a batch_size that is a multiple of num_generations")
    if method == "kto" and options["batch_size"] < 2:
        raise ValueError("batch_size: kto compares within a batch: at least 2")
    if options["early_stopping"] and not evaluated:
        raise ValueError("early_stopping needs eval_data to be measured on")
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device: {device!r} is none of auto, cpu, cuda")
    if device == "cuda":
        for torch in importlib.metadata.distributions(name="torch"):
            if torch.version.endswith("+cpu"):
                raise ValueError(f"device: torch {torch.version} knows no GPU: use 'auto' or 'cpu'")


def _lora(lora: LoraOptions | dict[str, Any] | bool | None) -> dict[str, Any] | None:
    if lora is None or lora is False:
        return None
    try:
        options = {} if lora is True else lora
        return dataclasses.asdict(LoraOptions(**options) if isinstance(options, dict) else options)
    except TypeError as error:
        raise ValueError(f"lora: {error}; options are r, alpha, dropout, target_modules") from None


def _earlier(folder: pathlib.Path, config: dict[str, Any], resume: bool) -> TrainResult | None:
    """What was begun in `folder` before, when it is to be gone on with."""
    there = [name for name in ("adapter", "model", "checkpoints") if (folder / name).exists()]
    if not (folder / "manifest.json").is_file():
        if there:
            raise ValueError(f"{folder} holds {there[0]}, which no training wrote there: use another output")
        return None
    if not resume:
        for name in there:
            remove(folder / name)
        (folder / "manifest.json").unlink()
        return None
    before = open_training(folder)
    now, then = json.loads(json.dumps(config)), before.manifest["config"]
    if differing := sorted(name for name in {*now, *then} if now.get(name) != then.get(name)):
        shown = "".join(f"\n  {name}: {then.get(name)} -> {now.get(name)}" for name in differing)
        raise ValueError(
            f"{folder} was begun with another configuration:{shown}\nUse another output, or resume=False"
        )
    return before


def _run(folder, config, base, data, reward, device, say, before) -> TrainResult:
    torch, transformers, *_ = loaded("torch", "transformers", "trl", "peft", "datasets")
    from cotkit.train import trainers
    from cotkit.train.guards import Guard, why_it_stopped

    device = trainers.device_of(device)
    tokenizer = transformers.AutoTokenizer.from_pretrained(base.folder)
    rows, eval_rows = (part and fit_to(part, tokenizer, config["max_length"]) for part in data)
    checkpoints = folder / "checkpoints"
    manifest = {
        "schema_version": 1,
        "status": "running",
        "detail": "not finished: the same call goes on with it",
        "method": config["method"],
        "base": str(base.folder),
        "start_adapter": base.adapter and str(base.adapter),
        "reference": str(base.start) if config["method"] in trainers.WITH_REFERENCE else None,
        "config": config,
        "data": _described(rows),
        "eval_data": eval_rows and _described(eval_rows),
        "device": device,
        "precision": "bf16" if trainers.half_precision(device) else "float32",
        "threads": torch.get_num_threads(),
        "versions": {name: importlib.metadata.version(name) for name in (*_LIBRARIES, "cotkit")},
        **_NO_RESULT,
        **dict.fromkeys(("loss_first", "loss_last")),
        "steps": 0,
        "seconds": before.seconds if before else 0.0,
        "warnings": rows.warnings,
    }
    started, guard, trainer, state = time.monotonic(), Guard(say), None, None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "manifest.json", manifest)
        checkpoint = last_whole_checkpoint(checkpoints)
        if (state := _state_at_the_end(checkpoint)) is None:
            facts = (config, base, tokenizer, rows, eval_rows, reward, guard, checkpoints, device)
            trainer = trainers.build(*facts)
            trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
            state = trainer.state
        if guard.diverged:
            manifest |= {"status": "diverged", "detail": guard.diverged}
        else:
            name = "adapter" if config["lora"] or base.adapter else "model"
            manifest |= _saved(trainer or checkpoint, state, folder / name)
    except Exception as error:
        if (stopped := why_it_stopped(error)) is None:
            raise
        last = last_whole_checkpoint(checkpoints)
        detail = f"{stopped['detail']}; {last.name if last else 'no checkpoint'} is whole"
        manifest |= {**stopped, "detail": detail}
    manifest["seconds"] += round(time.monotonic() - started, 1)
    return _written(folder, manifest, trainer.state if trainer else state or transformers.TrainerState())


def last_whole_checkpoint(folder: pathlib.Path) -> pathlib.Path | None:
    """The latest checkpoint that was written to its end; torn ones are removed."""
    found = []
    for place in folder.glob("checkpoint-*"):
        try:
            found.append((json.loads((place / "trainer_state.json").read_text())["global_step"], place))
        except (OSError, ValueError):
            shutil.rmtree(place)
    return max(found)[1] if found else None


def _state_at_the_end(checkpoint: pathlib.Path | None):
    """The trainer's state when `checkpoint` is a training's last; None when there are steps to go."""
    (transformers,) = loaded("transformers")
    if checkpoint is None:
        return None
    state = transformers.TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    control = state.stateful_callbacks["TrainerControl"]["args"]  # an early stop is noted there
    return state if state.global_step >= state.max_steps or control["should_training_stop"] else None


def _saved(source, state, place: pathlib.Path) -> dict[str, Any]:
    """Writes the result, whole or not at all: from the trainer, or from a checkpoint after the last step."""
    with whole(place, folder=True) as part:
        if isinstance(source, pathlib.Path):
            best = source.with_name(pathlib.Path(state.best_model_checkpoint or source).name)
            shutil.copytree(best, part, ignore=shutil.ignore_patterns(*_STATE_OF_TRAINING))
        else:
            source.save_model(str(part))  # the tokenizer too
    step, of = state.global_step, state.max_steps
    detail = f"stopped early at step {step} of {of}" if step < of else "all steps done"
    manifest = {"status": "ok", "detail": detail, "trained": True}
    return {**manifest, place.name: place.name, "sha256": weights_hash(place)}


def _described(rows: TrainingRows) -> dict[str, Any]:
    facts = {"name": rows.name, "sha256": rows.sha256, "given": rows.given}
    return {**facts, "rows": len(rows.rows), "drops": rows.drops}


def _written(folder: pathlib.Path, manifest: dict[str, Any], state) -> TrainResult:
    log = [{name: _plain(value) for name, value in entry.items()} for entry in state.log_history]
    losses = [entry["loss"] for entry in log if "loss" in entry] or [None]
    manifest |= {"steps": state.global_step, "loss_first": losses[0], "loss_last": losses[-1]}
    manifest["warnings"] += falling(log) + settled(log)
    try:
        write_lines(folder / "log.jsonl", log)
        write_json(folder / "manifest.json", manifest)
    except OSError as error:
        if not is_disk_full(error):
            raise
        if manifest["status"] == "ok":
            detail = "the disk is full; all steps are done"
            manifest |= {**_NO_RESULT, "status": "disk_full", "detail": detail}
    else:
        if manifest["status"] == "ok":
            remove(folder / "checkpoints")
    return from_manifest(folder, manifest)


def falling(log: list[dict[str, Any]]) -> list[str]:
    """A warning when the log-probability of chosen answers fell by more than 10 % or 20 nats in dpo, which
    then pushed both sides down. Steps see different pairs, so the first and last quarter are compared."""
    chosen = [entry["logps/chosen"] for entry in log if entry.get("logps/chosen") is not None]
    if (quarter := len(chosen) // 4) < 2:
        return []
    before, after = sum(chosen[:quarter]) / quarter, sum(chosen[-quarter:]) / quarter
    if before - after <= min(20, abs(before) / 10):
        return []
    return [
        f"chosen answers became less likely: log-probability {before:.1f} to {after:.1f}; try 'dpo_sft', a "
        "larger beta or a lower learning_rate"
    ]


def settled(log: list[dict[str, Any]]) -> list[str]:
    """A warning when dpo or kto ended with a loss near 0: the mean margin of the last quarter, beta times the
    log-likelihood ratio of chosen to rejected against the reference, is so wide that nothing is left to
    learn."""
    margins = [entry["rewards/margins"] for entry in log if entry.get("rewards/margins") is not None]
    last = margins[-max(1, len(margins) // 4) :]
    if not last or not (margin := sum(last) / len(last)) > WIDE_MARGIN:
        return []
    return [
        f"chosen and rejected are told apart for certain (margin {margin:.1f}, a loss near 0): the pairs are "
        "told apart by something easy, such as length or form, or the training is too strong; look at some "
        "pairs, and lower learning_rate or epochs"
    ]


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
