"""A language model of 30,000 weights, made here, and rows to train it on."""

from __future__ import annotations

import importlib.util

import pytest

from cotkit.train.extra import loaded

needs_training = pytest.mark.skipif(
    importlib.util.find_spec("trl") is None, reason="needs the extra: make train"
)
PROBLEMS = [f"What is {a} + {b}?" for a in range(2, 5) for b in range(3, 7)]


def answer(problem: str, shift: int = 0) -> str:
    a, b = problem.removeprefix("What is ").removesuffix("?").split(" + ")
    return f"{a} + {b} = {int(a) + int(b) + shift}. The answer is \\boxed{{{int(a) + int(b) + shift}}}."


def said(role: str, content: str) -> dict:
    return {"role": role, "content": content}


SFT = [{"messages": [said("user", p), said("assistant", answer(p))]} for p in PROBLEMS]
PAIRS = [
    {
        "prompt": [said("user", p)],
        "chosen": [said("assistant", answer(p))],
        "rejected": [said("assistant", answer(p, i + 1))],
    }
    for i, p in enumerate(PROBLEMS)
]
KTO = [
    {"prompt": row["prompt"], "completion": row[side], "label": side == "chosen"}
    for row in PAIRS
    for side in ("chosen", "rejected")
]


def tiny_tokenizer(template: str | None = "qwen3"):
    """`template` names one of the chat templates that come with TRL."""
    import pathlib

    (transformers,) = loaded("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    folder = pathlib.Path(importlib.util.find_spec("trl").origin).parent / "chat_templates"
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=special)
    bpe.train_from_iterator([answer(p) for p in PROBLEMS] + PROBLEMS, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<|endoftext|>", eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = template and (folder / f"{template}.jinja").read_text()
    return tokenizer


def tiny_model(folder, template: str | None = "qwen3") -> str:
    """Saves a Qwen3 model and its tokenizer in `folder`."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = tiny_tokenizer(template)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
