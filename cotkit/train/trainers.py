"""TRL's trainer of a method, set up: what all methods share, and what each takes besides.

What dpo and kto are held against is always read from a folder on disk: TRL given a model object takes what
that object's configuration names, which in a later cycle is the wrong model.
"""

from __future__ import annotations

import pathlib
import random
import warnings
from typing import Any

import datasets
import peft
import torch
import transformers
import trl

from cotkit.train.bases import Base, load
from cotkit.train.data import TrainingDataError, TrainingRows

WITH_REFERENCE = ("dpo", "dpo_sft", "kto")
# TRL's defaults for training every weight; an adapter takes ten times as much ("LoRA Without Regret", 2025).
_LEARNING_RATE = {"sft": 2e-5, "dpo": 1e-6, "dpo_sft": 1e-6, "kto": 1e-6, "grpo": 1e-6}
_FOR_LORA = 10


def device_of(asked: str) -> str:
    if asked == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: 'cuda' is asked for, and torch sees no GPU: use 'auto' or 'cpu'")
    return ("cuda" if torch.cuda.is_available() else "cpu") if asked == "auto" else asked


def half_precision(device: str) -> bool:
    """Whether matrix products run in bfloat16, the weights staying float32: where the processor has
    instructions for it, a step takes a quarter less time."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported()
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def build(
    config: dict[str, Any],
    base: Base,
    tokenizer,
    rows: TrainingRows,
    eval_rows: TrainingRows | None,
    reward,
    guard: transformers.TrainerCallback,
    checkpoints: pathlib.Path,
    device: str,
):
    """The trainer, ready to run; TrainingDataError if TRL has left out rows that the checks let through."""
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)  # TRL's own
    # Where there is no Triton, TRL 1.16 puts prompts through the output layer too, a fifth of a small model's
    # time. Answers alone, as with Triton, give the same loss.
    trl.trainer.utils._use_triton = lambda device: True
    method, lora = config["method"], config["lora"]
    kind = "DPO" if method == "dpo_sft" else method.upper()
    arguments = _shared(config, bool(lora or base.adapter), device, eval_rows is not None)
    given: dict[str, Any] = {}
    if method == "sft":
        arguments |= {"max_length": config["max_length"], "train_sampling_strategy": "group_by_length"}
    elif method == "grpo":
        arguments |= {name: config[name] for name in ("num_generations", "max_completion_length")}
        given["reward_funcs"] = reward
    else:
        arguments |= {"max_length": config["max_length"], "beta": config["beta"]}
    if method == "dpo_sft":
        arguments["loss_type"] = ["sigmoid", "sft"]
    if lora:
        shape = {"r": lora["r"], "lora_alpha": lora["alpha"], "lora_dropout": lora["dropout"]}
        names = lora["target_modules"]
        given["peft_config"] = peft.LoraConfig(**shape, target_modules=names, task_type="CAUSAL_LM")
    elif method in WITH_REFERENCE:  # with a new adapter the reference is the base, the adapter switched off
        given["ref_model"] = load(base, trainable=False)
    if eval_rows:
        given["eval_dataset"] = datasets.Dataset.from_list(eval_rows.rows)
    examples = list(rows.rows)
    if method == "kto":  # its batches are taken in order, and each should hold both labels
        random.Random(config["seed"]).shuffle(examples)
    trainer = getattr(trl, f"{kind}Trainer")(
        model=load(base, trainable=True),
        args=getattr(trl, f"{kind}Config")(output_dir=str(checkpoints), **arguments),
        train_dataset=datasets.Dataset.from_list(examples),
        processing_class=tokenizer,
        callbacks=[guard],
        **given,
    )
    if left_out := len(examples) - len(trainer.train_dataset):
        raise TrainingDataError(
            f"{rows.name}: TRL has left out {left_out} of {len(examples)} rows without a word. Fix: look for "
            "rows that it cannot take"
        )
    trainer.remove_callback(transformers.PrinterCallback)
    if config["early_stopping"]:
        trainer.add_callback(transformers.EarlyStoppingCallback(config["early_stopping"]))
    return trainer


def _shared(config: dict[str, Any], lora: bool, device: str, evaluated: bool) -> dict[str, Any]:
    usual = _LEARNING_RATE[config["method"]] * (_FOR_LORA if lora else 1)
    arguments = {
        "per_device_train_batch_size": config["batch_size"],
        "per_device_eval_batch_size": config["batch_size"],
        "num_train_epochs": config["epochs"],
        "max_steps": config["max_steps"] or -1,
        "learning_rate": config["learning_rate"] or usual,
        "lr_scheduler_type": "cosine",
        "seed": config["seed"],
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # it would write the mean of earlier losses for a NaN
        "save_steps": config["save_steps"],
        "save_total_limit": 2,  # the one before stays until the next is whole
        "use_cpu": device == "cpu",
        "dataloader_pin_memory": device != "cpu",
        "bf16": half_precision(device),
        "activation_checkpointing": device != "cpu",  # memory is not what a CPU lacks
        "report_to": "none",
        "disable_tqdm": True,
    }
    if evaluated:
        arguments |= {"eval_strategy": "steps", "eval_steps": config["save_steps"]}
        arguments |= {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss"}
    return arguments
