"""What was trained, served by the embedded server: the whole file says what base and adapter say, and the
trainer of a self-improvement run serves it, with LoRA and without."""

from __future__ import annotations

import json

import pytest
from tiny import PAIRS, SFT, needs_training

from cotkit.chat import embedded, weights
from cotkit.train import EmbeddedTrainer, merge, to_llama_adapter, to_llama_model, transformers_folder

QUESTION = "What is 7 + 5?"
ASK = {"temperature": 0, "max_tokens": 1, "logprobs": 10}


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """(weights, their Hugging Face folder, made here once)."""
    gguf = weights.path("smollm2-135m", say=lambda line: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COTKIT_MODELS", str(gguf))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("converted")))
        return gguf, transformers_folder("smollm2-135m")


@pytest.fixture
def smollm2(converted, tmp_path, monkeypatch):
    """Its Hugging Face folder; cache and servers belong to this test alone."""
    gguf, folder = converted
    cached = tmp_path / "cache/cotkit/transformers" / folder.name
    cached.parent.mkdir(parents=True)
    cached.symlink_to(folder)
    monkeypatch.setenv("COTKIT_MODELS", str(gguf))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(embedded.KEY_VARIABLE, "")
    yield folder
    embedded.release_local_models()


def first_token(**served) -> dict[str, float]:
    """The likeliest first tokens of an answer and their log-probability."""
    model = embedded.local_model("smollm2-135m", parallel=1, ctx=256, **served)
    return {e["token"]: e["logprob"] for e in model.complete(QUESTION, **ASK).logprobs[0]["top_logprobs"]}


def first_token_of(folder) -> dict[str, float]:
    """Log-probability of every first token of an answer."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    asked = [{"role": "user", "content": QUESTION}]
    text = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    with torch.no_grad():
        logits = model(**tokenizer(text, return_tensors="pt", add_special_tokens=False)).logits[0, -1]
    logs = torch.log_softmax(logits.float(), -1).tolist()
    return {tokenizer.decode([i]): value for i, value in enumerate(logs)}


def random_adapter(base, folder):
    """An adapter that says other things than its base."""
    import peft
    import torch
    import transformers

    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    shape = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    model = peft.get_peft_model(model, shape)
    for name, matrix in model.named_parameters():
        if "lora_B" in name:  # mostly queries and keys: their rows in a wrong order put the two 1.0 apart
            torch.nn.init.normal_(matrix, std=0.6 if ".q_proj" in name or ".k_proj" in name else 0.1)
    model.save_pretrained(folder)
    return folder, model.merge_and_unload()


def test_a_file_that_is_no_model_is_refused_with_how_to_make_one(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"no gguf")
    with pytest.raises(ValueError, match=r"is no GGUF file; cotkit.train.to_llama_model\(\) writes one"):
        embedded.local_model("smollm2-135m", gguf=tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="gguf: there is no file"):
        embedded.local_model("smollm2-135m", gguf=tmp_path / "none.gguf")


@pytest.mark.model
@needs_training
def test_the_server_with_the_adapter_says_what_the_merged_model_says(smollm2, tmp_path):
    adapter, _ = random_adapter(smollm2, tmp_path / "adapter")
    told = first_token(adapter=to_llama_adapter(adapter, tmp_path / "student.gguf", "smollm2-135m"))
    by_merged = first_token_of(merge(adapter, tmp_path / "merged"))
    by_base = first_token_of(smollm2)
    apart = [abs(told[token] - by_merged[token]) for token in told]
    moved = [abs(by_base[token] - by_merged[token]) for token in told]
    assert sum(moved) / len(moved) > 0.7  # in nats, from the base
    assert sum(apart) / len(apart) < 0.2  # the server computes in 4 and 8 bits


@pytest.mark.model
@needs_training
def test_the_whole_file_says_what_base_and_adapter_say(smollm2, tmp_path):
    adapter, merged = random_adapter(smollm2, tmp_path / "adapter")
    merged.save_pretrained(tmp_path / "merged")
    by_adapter = first_token(adapter=to_llama_adapter(adapter, tmp_path / "lora.gguf", "smollm2-135m"))
    by_base = first_token()
    for trained, kind in ((adapter, "Q8_0"), (tmp_path / "merged", "Q8_0")):
        told = first_token(gguf=to_llama_model(trained, tmp_path / "whole.gguf", "smollm2-135m", kind))
        shared = set(told) & set(by_adapter)
        apart = [abs(told[token] - by_adapter[token]) for token in shared]
        assert len(shared) >= 8 and sum(apart) / len(apart) < 0.15, (kind, told, by_adapter)  # nats
    assert len(set(by_base) & set(by_adapter)) < 8 or any(
        abs(by_base[token] - by_adapter[token]) > 0.5 for token in set(by_base) & set(by_adapter)
    )


@pytest.mark.model
@needs_training
@pytest.mark.parametrize(("lora", "methods"), [(True, ("sft", "dpo")), (None, ("sft",))])
def test_the_embedded_trainer_trains_a_chain_and_serves_it(smollm2, tmp_path, lora, methods):
    options = {"max_steps": 1, "batch_size": 2, "max_length": 96, "lora": lora, "say": None}
    trainer = EmbeddedTrainer(options=options, chat={"parallel": 1, "ctx": 256, "max_tokens": 4})
    (tmp_path / "sft.jsonl").write_text("".join(json.dumps(row) + "\n" for row in SFT))
    (tmp_path / "dpo.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    made, names = None, []
    for cycle, method in enumerate(methods):
        made = trainer.train(method, tmp_path / f"{method}.jsonl", made, tmp_path / f"{cycle}/train")
        made = json.loads(json.dumps(made))
        model = trainer.serve(made)
        names.append(model.name)
        assert made["status"] == "ok" and model.complete(QUESTION).text
    assert len(set(names)) == len(methods) and all(name.startswith("smollm2-135m+") for name in names)
