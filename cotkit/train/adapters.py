"""Handing a trained adapter to a server: as a LoRA file of llama.cpp, or merged into a plain model folder.

llama.cpp's LoRA file is a GGUF file of type "adapter" with two tensors a layer, `<name>.lora_a` (rank x in)
and `<name>.lora_b` (out x rank), `<name>` being the layer's name in the model's own GGUF. It scales the
product by alpha / rank, as PEFT does. Files of the llama architecture have the rows of query and key weights
in another order (pairs for the rotary embedding side by side), so lora_b of these two is reordered too.
Sources: llama.cpp, convert_lora_to_gguf.py and LlamaModel.permute in convert_hf_to_gguf.py.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil

from cotkit import chat
from cotkit.train.bases import find_base, load
from cotkit.train.extra import loaded

_PERMUTED = {"llama": True, "qwen2": False, "qwen3": False}  # architecture: query and key rows reordered
_PREFIX = "base_model.model."
_UNKNOWN_TO_LLAMA = (
    "use_dora",
    "use_rslora",
    "rank_pattern",
    "alpha_pattern",
    "modules_to_save",
    "lora_bias",
)


def to_llama_adapter(
    adapter: str | os.PathLike[str], output: str | os.PathLike[str], base_gguf: str | os.PathLike[str]
) -> pathlib.Path:
    """Writes a PEFT LoRA folder as a LoRA file of llama.cpp, for `cotkit.local_model(name, adapter=output)`.

    base_gguf: the GGUF file it will be put on, or the name of an embedded model. Architectures: llama, qwen2,
    qwen3. Returns `output`. Raises ValueError for an adapter that llama.cpp could not apply to that file.
    """
    gguf, safetensors = loaded("gguf", "safetensors.numpy")
    folder, output = pathlib.Path(adapter).expanduser(), pathlib.Path(output).expanduser()
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    if unknown := [name for name in _UNKNOWN_TO_LLAMA if config.get(name)]:
        raise ValueError(f"{folder}: llama.cpp knows no {', '.join(unknown)}: merge() the adapter instead")
    names = [row["name"] for row in chat.models_table()]
    model = gguf.GGUFReader(chat.model_path(base_gguf) if base_gguf in names else os.fspath(base_gguf))
    facts = {
        name: field.contents() for name, field in model.fields.items() if not name.startswith("tokenizer.")
    }
    arch = facts["general.architecture"]
    if arch not in _PERMUTED:
        raise ValueError(f"{base_gguf}: cannot write adapters for {arch!r}, only for {', '.join(_PERMUTED)}")
    shapes = {tensor.name: tuple(map(int, tensor.shape)) for tensor in model.tensors}  # (in, out)
    known = {code: enum for enum, code in gguf.MODEL_ARCH_NAMES.items()}
    layers = gguf.get_tensor_name_map(known[arch], facts[f"{arch}.block_count"])
    writer = gguf.GGUFWriter(None, arch)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(config["lora_alpha"]))
    weights = safetensors.load_file(folder / "adapter_model.safetensors")
    for name, matrix in sorted(weights.items()):
        layer, _, half = name.removeprefix(_PREFIX).removesuffix(".weight").rpartition(".lora_")
        there = f"{layers.get_name(layer)}.weight"
        if there not in shapes or matrix.shape[half == "A"] != shapes[there][half == "B"]:
            needs = f"there {shapes[there]}" if there in shapes else "missing there"
            raise ValueError(
                f"{folder} was not trained on the model of {base_gguf}: {layer} is {matrix.shape}, {needs}"
            )
        if half == "B" and _PERMUTED[arch] and layer.endswith((".q_proj", ".k_proj")):
            heads = "head_count" if layer.endswith(".q_proj") else "head_count_kv"
            matrix = permuted(matrix, facts[f"{arch}.attention.{heads}"])
        writer.add_tensor(f"{there}.lora_{half.lower()}", matrix.astype("float32"))
    return _write(writer, output)


def permuted(matrix, heads: int):
    """The rows in llama.cpp's order: within a head, row i of each half beside row i of the other."""
    rows = matrix.shape[0]
    return matrix.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(matrix.shape)


def _write(writer, output: pathlib.Path) -> pathlib.Path:
    """Whole or not at all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_name(f"{output.name}.part")
    writer.write_header_to_file(part)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return part.replace(output)


def merge(adapter: str | os.PathLike[str], output: str | os.PathLike[str]) -> pathlib.Path:
    """Writes base model and adapter as one plain Hugging Face folder, for vLLM and the like; gives `output`.

    Raises ValueError when `adapter` is no adapter folder or its base model is gone.
    """
    (transformers,) = loaded("transformers")
    base, output = find_base(adapter), pathlib.Path(output).expanduser()
    if base.adapter is None:
        raise ValueError(f"{adapter} is no adapter folder: there is nothing to merge")
    part = output.with_name(f"{output.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    load(base, trainable=False).save_pretrained(part)
    transformers.AutoTokenizer.from_pretrained(base.folder).save_pretrained(part)
    return part.replace(output)
