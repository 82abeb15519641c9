"""The LoRA file of llama.cpp: its tensors by the rules of its format, and adapters it could not apply."""

from __future__ import annotations

import json

import pytest
from tiny import needs_training

from cotkit.train import to_llama_adapter

pytestmark = needs_training
HEADS, KV_HEADS, SIZE, WIDE, R = 4, 2, 32, 48, 3
SHAPES = {  # (out, in) of one layer
    "self_attn.q_proj": (SIZE, SIZE),
    "self_attn.k_proj": (SIZE * KV_HEADS // HEADS, SIZE),
    "self_attn.v_proj": (SIZE * KV_HEADS // HEADS, SIZE),
    "self_attn.o_proj": (SIZE, SIZE),
    "mlp.gate_proj": (WIDE, SIZE),
    "mlp.up_proj": (WIDE, SIZE),
    "mlp.down_proj": (SIZE, WIDE),
}
IN_GGUF = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]


def base_gguf(path, arch="llama"):
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(1)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    for name, shape in zip(IN_GGUF, SHAPES.values(), strict=True):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros(shape, "float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def adapter_folder(folder, **config):
    """A PEFT adapter of random numbers, and its matrices by layer."""
    import numpy as np
    import safetensors.numpy

    random = np.random.default_rng(0)
    pairs = {
        layer: (
            random.normal(size=(R, n_in)).astype("float32"),
            random.normal(size=(n_out, R)).astype("float32"),
        )
        for layer, (n_out, n_in) in SHAPES.items()
    }
    prefix = "base_model.model.model.layers.0"
    weights = {f"{prefix}.{layer}.lora_A.weight": a for layer, (a, _) in pairs.items()}
    weights |= {f"{prefix}.{layer}.lora_B.weight": b for layer, (_, b) in pairs.items()}
    folder.mkdir()
    safetensors.numpy.save_file(weights, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"lora_alpha": 6, **config}))
    return folder, pairs


def as_stored(weight, heads):
    """A query or key weight as the llama architecture stores it, row by row: in each head, the first of each
    half, the second of each half, and so on."""
    import numpy as np

    dim = len(weight) // heads
    order = [h * dim + half * dim // 2 + i for h in range(heads) for i in range(dim // 2) for half in (0, 1)]
    return weight[np.array(order)]


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_each_layer_has_its_two_matrices_and_llama_its_rows_reordered(tmp_path, arch):
    import gguf
    import numpy as np

    folder, pairs = adapter_folder(tmp_path / "adapter")
    out = to_llama_adapter(folder, tmp_path / "deep/student.gguf", base_gguf(tmp_path / "base.gguf", arch))
    read = gguf.GGUFReader(out)
    facts = {name: field.contents() for name, field in read.fields.items()}
    assert (facts["general.architecture"], facts["general.type"]) == (arch, "adapter")
    assert (facts["adapter.type"], facts["adapter.lora.alpha"]) == ("lora", 6.0)
    tensors = {tensor.name: tensor.data for tensor in read.tensors}
    assert len(tensors) == 2 * len(SHAPES)
    for name, (layer, (a, b)) in zip(IN_GGUF, pairs.items(), strict=True):
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(name) if arch == "llama" else None
        np.testing.assert_array_equal(tensors[f"blk.0.{name}.weight.lora_a"], a, err_msg=layer)
        there = tensors[f"blk.0.{name}.weight.lora_b"]
        np.testing.assert_array_equal(there, as_stored(b, heads) if heads else b, err_msg=layer)
        if heads:  # the product is the reordered product: what is added to the stored weight
            np.testing.assert_allclose(there @ a, as_stored(b @ a, heads), rtol=1e-4)
    assert list(tmp_path.glob("**/*.part")) == []


@pytest.mark.parametrize(
    ("config", "arch", "words"),
    [
        ({"use_dora": True}, "llama", "llama.cpp knows no use_dora: merge"),
        ({"rank_pattern": {"q_proj": 2}}, "llama", "rank_pattern"),
        ({}, "gemma3", "cannot write adapters for 'gemma3', only for llama, qwen2, qwen3"),
    ],
)
def test_an_adapter_llama_cpp_could_not_apply_is_refused(tmp_path, config, arch, words):
    folder, _ = adapter_folder(tmp_path / "adapter", **config)
    with pytest.raises(ValueError, match=words):
        to_llama_adapter(folder, tmp_path / "out.gguf", base_gguf(tmp_path / "base.gguf", arch))
    assert not (tmp_path / "out.gguf").exists()


def test_an_adapter_of_another_model_is_refused(tmp_path, monkeypatch):
    base = base_gguf(tmp_path / "base.gguf")
    monkeypatch.setitem(SHAPES, "mlp.up_proj", (WIDE, SIZE + 2))
    with pytest.raises(ValueError, match=r"not trained on the model of .*up_proj"):
        to_llama_adapter(adapter_folder(tmp_path / "other")[0], tmp_path / "out.gguf", base)
    monkeypatch.setitem(SHAPES, "mlp.up_proj", (WIDE, SIZE))
    monkeypatch.setitem(SHAPES, "mlp.router", (WIDE, SIZE))
    with pytest.raises(ValueError, match=r"router is .*, missing there"):
        to_llama_adapter(adapter_folder(tmp_path / "more")[0], tmp_path / "out.gguf", base)
