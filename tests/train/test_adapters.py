"""The files of llama.cpp, a LoRA and a whole model: their tensors by the rules of the format, and what could
not be applied."""

from __future__ import annotations

import json

import pytest
from tiny import needs_training

from cotkit.train import to_llama_adapter, to_llama_model

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


def base_gguf(path, arch="llama", weights=None):
    """A file of one layer, of zeros; or of `weights` in 8 bits, with norm, embedding and tokenizer."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(1)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    for name, shape in zip(IN_GGUF, SHAPES.values(), strict=True):
        if weights is None:
            writer.add_tensor(f"blk.0.{name}.weight", np.zeros(shape, "float32"))
    if weights is not None:
        writer.add_token_list(["a", "b\u00e9", "c"])
        writer.add_token_scores([0.5, 1.5, -2.0])
        writer.add_chat_template("{{ messages }}")
        writer.add_file_type(7)
        for name, matrix in weights.items():
            stored, kind = matrix, gguf.GGMLQuantizationType.F32
            if matrix.ndim > 1 and matrix.shape[1] % 32 == 0:
                kind = gguf.GGMLQuantizationType.Q8_0
                stored = gguf.quantize(matrix, kind)
            writer.add_tensor(name, stored, raw_dtype=kind)
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
    assert [path.name for path in out.parent.iterdir()] == [out.name]


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


# A whole model


@pytest.fixture
def base_weights():
    import numpy as np

    random = np.random.default_rng(1)
    shapes = {f"blk.0.{name}.weight": shape for name, shape in zip(IN_GGUF, SHAPES.values(), strict=True)}
    shapes |= {"token_embd.weight": (3, SIZE), "blk.0.attn_norm.weight": (SIZE,)}
    return {name: random.normal(size=shape).astype("float32") for name, shape in shapes.items()}


def tensors_of(path) -> dict:
    import gguf

    return {t.name: gguf.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_the_whole_model_is_the_base_with_the_product_added(tmp_path, base_weights, arch, kind):
    import gguf
    import numpy as np

    base = base_gguf(tmp_path / "base.gguf", arch, base_weights)
    folder, pairs = adapter_folder(tmp_path / "adapter")
    out = to_llama_model(folder, tmp_path / "deep/student.gguf", base, kind)
    before, after, reader = tensors_of(base), tensors_of(out), gguf.GGUFReader(out)
    tolerance = {"F32": 1e-5, "Q8_0": 0.15, "Q4_0": 2.5}[kind]  # of numbers up to some 20
    for name, (layer, (a, b)) in zip(IN_GGUF, pairs.items(), strict=True):
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(name) if arch == "llama" else None
        added = 6 / R * (b @ a)
        wanted = before[f"blk.0.{name}.weight"] + (as_stored(added, heads) if heads else added)
        np.testing.assert_allclose(after[f"blk.0.{name}.weight"], wanted, atol=tolerance, err_msg=layer)
    np.testing.assert_array_equal(after["blk.0.attn_norm.weight"], base_weights["blk.0.attn_norm.weight"])
    kinds = {t.name: t.tensor_type.name for t in reader.tensors}
    assert kinds["blk.0.attn_q.weight"] == kinds["token_embd.weight"] == kind
    assert kinds["blk.0.attn_norm.weight"] == kinds["blk.0.ffn_down.weight"] == "F32"  # rows of 48: no blocks
    told, given = ({n: f.contents() for n, f in r.fields.items()} for r in (reader, gguf.GGUFReader(base)))
    assert told.pop("general.file_type") == {"F32": 0, "Q4_0": 2, "Q8_0": 7}[kind] and given.pop(
        "general.file_type"
    )
    assert {n: v for n, v in told.items() if n[:5] != "GGUF."} == {
        n: v for n, v in given.items() if n[:5] != "GGUF."
    }
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_a_model_trained_without_lora_takes_the_place_of_the_weights(tmp_path, base_weights):
    import numpy as np
    import safetensors.numpy

    random = np.random.default_rng(2)
    new = {f"model.layers.0.{layer}.weight": random.normal(size=shape) for layer, shape in SHAPES.items()}
    new |= {"model.embed_tokens.weight": random.normal(size=(3, SIZE))}
    new |= {"model.layers.0.input_layernorm.weight": random.normal(size=SIZE)}
    new = {name: weights.astype("float32") for name, weights in new.items()}
    (tmp_path / "model").mkdir()
    safetensors.numpy.save_file(new, tmp_path / "model/model.safetensors")
    base = base_gguf(tmp_path / "base.gguf", weights=base_weights)
    after = tensors_of(to_llama_model(tmp_path / "model", tmp_path / "out.gguf", base, "F32"))
    query = new["model.layers.0.self_attn.q_proj.weight"]
    np.testing.assert_array_equal(after["blk.0.attn_q.weight"], as_stored(query, HEADS))
    np.testing.assert_array_equal(after["blk.0.ffn_up.weight"], new["model.layers.0.mlp.up_proj.weight"])
    np.testing.assert_array_equal(after["token_embd.weight"], new["model.embed_tokens.weight"])
    np.testing.assert_array_equal(
        after["blk.0.attn_norm.weight"], new["model.layers.0.input_layernorm.weight"]
    )
    del new["model.embed_tokens.weight"]
    safetensors.numpy.save_file(new, tmp_path / "model/model.safetensors")
    with pytest.raises(ValueError, match=r"no model like .*token_embd.weight is not in it"):
        to_llama_model(tmp_path / "model", tmp_path / "out.gguf", base)


def test_a_whole_model_of_another_base_or_kind_is_refused(tmp_path, base_weights, monkeypatch):
    base = base_gguf(tmp_path / "base.gguf", weights=base_weights)
    with pytest.raises(ValueError, match="'Q4_K' is none of F32, F16, Q4_0, Q8_0"):
        to_llama_model(adapter_folder(tmp_path / "adapter")[0], tmp_path / "out.gguf", base, "Q4_K")
    with pytest.raises(ValueError, match="use_dora: merge"):
        to_llama_model(adapter_folder(tmp_path / "dora", use_dora=True)[0], tmp_path / "out.gguf", base)
    monkeypatch.setitem(SHAPES, "mlp.up_proj", (WIDE, SIZE + 2))
    with pytest.raises(ValueError, match=r"not trained on the model of .*up_proj"):
        to_llama_model(adapter_folder(tmp_path / "other")[0], tmp_path / "out.gguf", base)
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize("write", [to_llama_adapter, to_llama_model])
def test_a_file_that_finds_no_room_leaves_the_one_before(tmp_path, base_weights, monkeypatch, write):
    import errno

    import gguf

    base = base_gguf(tmp_path / "base.gguf", weights=base_weights)
    folder, out = adapter_folder(tmp_path / "adapter")[0], tmp_path / "out.gguf"
    (tmp_path / ".out.gguf.0badf00d.tmp").write_text("what a killed call left")
    before = write(folder, out, base).read_bytes()

    def full(self):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(gguf.GGUFWriter, "write_kv_data_to_file", full)
        with pytest.raises(OSError, match="No space left"):
            write(folder, out, base)
    assert out.read_bytes() == before and list(tmp_path.glob(".out.gguf*")) == []
    assert write(folder, out, base).read_bytes() == before
