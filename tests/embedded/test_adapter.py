"""A trained adapter on the embedded model: what is refused, how it is told apart, and that the server with
the adapter says what the merged model says.
"""

from __future__ import annotations

import importlib.util

import pytest

from cotkit.chat import embedded, weights

QUESTION = "What is 7 + 5?"


@pytest.fixture
def smollm2(tmp_path, monkeypatch):
    """Its Hugging Face folder, out of the user's own cache; servers belong to this test alone."""
    from cotkit.train import transformers_folder

    folder = transformers_folder("smollm2-135m")
    monkeypatch.setenv("COTKIT_MODELS", str(weights.path("smollm2-135m", say=lambda line: None)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(embedded.KEY_VARIABLE, "")
    yield folder
    embedded.release_local_models()


def test_a_file_that_is_no_adapter_is_refused_with_how_to_make_one(tmp_path):
    file = tmp_path / "adapter_model.safetensors"
    file.write_bytes(b"no gguf")
    with pytest.raises(ValueError, match=r"is no GGUF file; cotkit.train.to_llama_adapter\(\) writes one"):
        embedded.local_model("smollm2-135m", adapter=file)


def test_each_training_is_another_model_in_rows_run_folders_and_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "path", lambda *_, **__: tmp_path / "small.gguf")
    monkeypatch.setattr(embedded, "_running_or_started", lambda place, settings: 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(embedded.KEY_VARIABLE, "")
    file, told = tmp_path / "student.gguf", []
    for content in (b"GGUF first training", b"GGUF second training", b"GGUF first training"):
        file.write_bytes(content)  # the same path each time
        told.append(embedded.local_model("smollm2-135m", adapter=file).describe())
    told.append(embedded.local_model("smollm2-135m").describe())
    assert told[0] == told[2] and told[0] != told[1] != told[3] != told[0]
    assert "smollm2-135m+student-" in str(told[0]) and "student" not in str(told[3])


@pytest.mark.model
@pytest.mark.skipif(
    importlib.util.find_spec("peft") is None, reason="needs the extra: pip install 'cotkit[train]'"
)
def test_the_server_with_the_adapter_says_what_the_merged_model_says(smollm2, tmp_path):
    import peft
    import torch
    import transformers

    from cotkit.train import merge, to_llama_adapter

    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(smollm2)
    shape = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    model = peft.get_peft_model(model, shape)
    for name, matrix in model.named_parameters():
        if "lora_B" in name:  # mostly queries and keys: their rows in a wrong order put the two 1.0 apart
            torch.nn.init.normal_(matrix, std=0.6 if ".q_proj" in name or ".k_proj" in name else 0.1)
    model.save_pretrained(tmp_path / "adapter")
    gguf = to_llama_adapter(tmp_path / "adapter", tmp_path / "student.gguf", "smollm2-135m")
    by_merged = first_token(merge(tmp_path / "adapter", tmp_path / "merged"))
    by_base = first_token(smollm2)
    ask = {"temperature": 0, "max_tokens": 1, "logprobs": 10}
    served = embedded.local_model("smollm2-135m", adapter=gguf, parallel=1, ctx=256).complete(QUESTION, **ask)
    told = {entry["token"]: entry["logprob"] for entry in served.logprobs[0]["top_logprobs"]}
    apart = [abs(told[token] - by_merged[token]) for token in told]
    moved = [abs(by_base[token] - by_merged[token]) for token in told]
    assert sum(moved) / len(moved) > 0.7  # in nats, from the base
    assert sum(apart) / len(apart) < 0.2  # the server computes in 4 and 8 bits


def first_token(folder) -> dict[str, float]:
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
