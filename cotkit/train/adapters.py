"""Handing what was trained to a server: as a LoRA file of llama.cpp, as a whole model file of llama.cpp, or
as a plain model folder.

llama.cpp's LoRA file is a GGUF file of type "adapter" with two tensors a layer, `<name>.lora_a` (rank x in)
and `<name>.lora_b` (out x rank), `<name>` being the layer's name in the model's own GGUF. It scales the
product by alpha / rank, as PEFT does. Files of the llama architecture have the rows of query and key weights
in another order (pairs for the rotary embedding side by side), so whatever is put on these two is reordered.
Sources: llama.cpp, convert_lora_to_gguf.py and LlamaModel.permute in convert_hf_to_gguf.py.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from cotkit import chat
from cotkit.runs import write_json
from cotkit.train.bases import embedded_models, find_base, load, weights_hash
from cotkit.train.disk import whole
from cotkit.train.extra import loaded

KINDS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7}  # of matrices: llama.cpp's number of a file of that kind
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
_NOT_COPIED = ("GGUF.", "general.architecture", "general.alignment", "general.file_type")  # the writer's own
_MERGED = "cotkit_merged.json"  # in a merged folder: the hashes of what it was made of


class _BaseGGUF:
    """The GGUF file that something trained is put on."""

    def __init__(self, base: str | os.PathLike[str]):
        (gguf,) = loaded("gguf")
        self.name = str(base)
        self.reader = gguf.GGUFReader(chat.model_path(base) if base in embedded_models() else os.fspath(base))
        fields = self.reader.fields.items()
        self.facts = {n: field.contents() for n, field in fields if not n.startswith("tokenizer.")}
        self.arch = self.facts["general.architecture"]
        if self.arch not in _PERMUTED:
            only = ", ".join(_PERMUTED)
            raise ValueError(f"{base}: cannot write adapters for {self.arch!r}, only for {only}")
        known = {code: enum for enum, code in gguf.MODEL_ARCH_NAMES.items()}
        self.layers = gguf.get_tensor_name_map(known[self.arch], self.facts[f"{self.arch}.block_count"])
        self.shapes = {t.name: tuple(map(int, reversed(t.shape))) for t in self.reader.tensors}  # (out, in)

    def as_stored(self, layer: str, rows: Any) -> Any:
        """What is added to, or takes the place of, a layer's rows, in the order of this file."""
        if not (_PERMUTED[self.arch] and layer.endswith((".q_proj", ".k_proj"))):
            return rows
        heads = "head_count" if layer.endswith(".q_proj") else "head_count_kv"
        return permuted(rows, self.facts[f"{self.arch}.attention.{heads}"])

    def refusal(self, folder: pathlib.Path, layer: str, shape: tuple[int, ...], there: str) -> ValueError:
        needs = f"there {self.shapes[there]}" if there in self.shapes else "missing there"
        what = f"{layer} is {shape}, {needs}"
        return ValueError(f"{folder} was not trained on the model of {self.name}: {what}")


def permuted(matrix, heads: int):
    """The rows in llama.cpp's order: within a head, row i of each half beside row i of the other."""
    rows = matrix.shape[0]
    return matrix.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(matrix.shape)


def _lora_config(folder: pathlib.Path) -> dict[str, Any]:
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    if unknown := [name for name in _UNKNOWN_TO_LLAMA if config.get(name)]:
        raise ValueError(f"{folder}: llama.cpp knows no {', '.join(unknown)}: merge() the adapter instead")
    return config


def _lora_matrices(folder: pathlib.Path, base: _BaseGGUF) -> Iterator[tuple[str, str, Any]]:
    """(tensor of the base, "a" or "b", float32 matrix) of a PEFT adapter folder."""
    (safetensors,) = loaded("safetensors.numpy")
    for name, matrix in sorted(safetensors.load_file(folder / "adapter_model.safetensors").items()):
        layer, _, half = name.removeprefix(_PREFIX).removesuffix(".weight").rpartition(".lora_")
        there = f"{base.layers.get_name(layer)}.weight"
        if there not in base.shapes or matrix.shape[half == "A"] != base.shapes[there][half == "A"]:
            raise base.refusal(folder, layer, matrix.shape, there)
        rows = base.as_stored(layer, matrix) if half == "B" else matrix
        yield there, half.lower(), rows.astype("float32")


def to_llama_adapter(
    adapter: str | os.PathLike[str], output: str | os.PathLike[str], base_gguf: str | os.PathLike[str]
) -> pathlib.Path:
    """Writes a PEFT LoRA folder as a LoRA file of llama.cpp, for `cotkit.local_model(name, adapter=output)`.

    base_gguf: the GGUF file it will be put on, or the name of an embedded model. Architectures: llama, qwen2,
    qwen3. Returns `output`. Raises ValueError for an adapter that llama.cpp could not apply to that file.
    """
    (gguf,) = loaded("gguf")
    folder, output = pathlib.Path(adapter).expanduser(), pathlib.Path(output).expanduser()
    config, base = _lora_config(folder), _BaseGGUF(base_gguf)
    writer = gguf.GGUFWriter(None, base.arch)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(config["lora_alpha"]))
    for there, half, matrix in _lora_matrices(folder, base):
        writer.add_tensor(f"{there}.lora_{half}", matrix)
    with whole(output) as part:
        writer.write_header_to_file(part)
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return output


def to_llama_model(
    trained: str | os.PathLike[str],
    output: str | os.PathLike[str],
    base: str | os.PathLike[str],
    kind: str = "Q8_0",
) -> pathlib.Path:
    """Writes what was trained as a whole GGUF file, for `cotkit.local_model(name, gguf=output)`.

    trained: a PEFT LoRA folder, whose product is added to the weights of `base`, dequantised; or a model
        folder trained without LoRA, whose weights take their place.
    base: the GGUF file it was trained on, or the name of an embedded model (llama, qwen2, qwen3); metadata
        and tokenizer are copied from it.
    kind: of the matrices: "Q8_0", "Q4_0", "F16" or "F32"; a matrix whose rows do not divide into blocks of
        32, and all that is no matrix, is F32.

    Returns `output`. Raises ValueError for what was not trained on that model, or cannot be merged.
    """
    (gguf,) = loaded("gguf")
    if kind not in KINDS:
        raise ValueError(f"kind: {kind!r} is none of {', '.join(KINDS)}")
    folder, output = pathlib.Path(trained).expanduser(), pathlib.Path(output).expanduser()
    base, added, changed = _BaseGGUF(base), {}, {}
    if (folder / "adapter_config.json").is_file():
        alpha, halves = _lora_config(folder)["lora_alpha"], {}
        for there, half, matrix in _lora_matrices(folder, base):
            halves.setdefault(there, {})[half] = matrix
        added = {name: alpha / len(pair["a"]) * (pair["b"] @ pair["a"]) for name, pair in halves.items()}
    else:
        changed = _weights_of(folder, base)
    writer = gguf.GGUFWriter(None, base.arch)
    for field in base.reader.fields.values():
        if not field.name.startswith(_NOT_COPIED):
            inside = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inside)
    writer.add_file_type(KINDS[kind])
    kinds = {}
    for name, shape in base.shapes.items():
        blocks = len(shape) > 1 and shape[-1] % gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][0] == 0
        kinds[name] = gguf.GGMLQuantizationType[kind if blocks else "F32"]
        size = math.prod(gguf.quant_shape_to_byte_shape(shape, kinds[name]))
        writer.add_tensor_info(name, shape, "float32", size, raw_dtype=kinds[name])
    with whole(output) as part:
        writer.write_header_to_file(part)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in base.reader.tensors:
            weights = changed.get(tensor.name)
            if weights is None:
                weights = gguf.dequantize(tensor.data, tensor.tensor_type)
            if tensor.name in added:
                weights = weights + added[tensor.name]
            writer.write_tensor_data(gguf.quantize(weights.astype("float32"), kinds[tensor.name]))
        writer.close()
    return output


def _weights_of(folder: pathlib.Path, base: _BaseGGUF) -> dict[str, Any]:
    """{tensor of the base: weights} of a model folder; ValueError when it is another model's."""
    (safetensors,) = loaded("safetensors.numpy")
    found: dict[str, Any] = {}
    for file in sorted(folder.glob("*.safetensors")):
        for name, weights in safetensors.load_file(file).items():
            layer, _, ending = name.rpartition(".")
            there = f"{base.layers.get_name(layer)}.{ending}"
            if weights.shape != base.shapes.get(there):
                raise base.refusal(folder, name, weights.shape, there)
            found[there] = base.as_stored(layer, weights)
    embedding, output = "token_embd.weight", "output.weight"
    if output in base.shapes and output not in found and embedding in found:  # one matrix for both
        found[output] = found[embedding]
    if missing := sorted(set(base.shapes) - set(found) - {"rope_freqs.weight"}):
        raise ValueError(f"{folder} is no model like {base.name}: {missing[0]} is not in it")
    return found


def merge(adapter: str | os.PathLike[str], output: str | os.PathLike[str]) -> pathlib.Path:
    """Writes base model and adapter as one plain Hugging Face folder, for vLLM and the like; gives `output`.

    The same call again returns at once. Raises ValueError when `adapter` is no adapter folder or its base
    model is gone, and when something else is in `output`; OSError when the disk is full.
    """
    (transformers,) = loaded("transformers")
    base, output = find_base(adapter), pathlib.Path(output).expanduser()
    if base.adapter is None:
        raise ValueError(f"{adapter} is no adapter folder: there is nothing to merge")
    made_of = {"base": weights_hash(base.folder), "adapter": weights_hash(base.adapter)}
    if output.is_file() or (output.is_dir() and any(output.iterdir())):
        if (output / _MERGED).is_file() and json.loads((output / _MERGED).read_bytes()) == made_of:
            return output
        raise ValueError(f"{output} holds something else already: use another output, or remove it")
    with whole(output, folder=True) as part:
        load(base, trainable=False).save_pretrained(part)
        transformers.AutoTokenizer.from_pretrained(base.folder).save_pretrained(part)
        write_json(part / _MERGED, made_of)
    return output
