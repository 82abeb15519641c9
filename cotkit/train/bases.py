"""The model a training starts from: a Hugging Face folder, an adapter folder, or an embedded model's GGUF,
which becomes a Hugging Face folder once and is cached.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil
import tempfile
from dataclasses import dataclass

from cotkit import chat
from cotkit.train.extra import loaded


@dataclass(frozen=True)
class Base:
    folder: pathlib.Path  # config.json, weights, tokenizer
    adapter: pathlib.Path | None = None  # a PEFT folder on top of it

    @property
    def start(self) -> pathlib.Path:
        """Where the weights a training begins with are on disk: what dpo and kto are held against."""
        return self.adapter or self.folder


def find_base(base_model: str | os.PathLike[str]) -> Base:
    """Raises ValueError for what is no model, WeightsError when an embedded model's weights cannot be had."""
    folder = pathlib.Path(base_model).expanduser().resolve()
    if (config := folder / "adapter_config.json").is_file():
        below = pathlib.Path(json.loads(config.read_text(encoding="utf-8"))["base_model_name_or_path"])
        if not (below / "config.json").is_file():
            raise ValueError(f"base_model: the adapter {folder} was trained on {below}, which is not there")
        return Base(below, folder)
    if (folder / "config.json").is_file():
        return Base(folder)
    names = [row["name"] for row in chat.models_table()]
    if str(base_model) in names:
        return Base(transformers_folder(str(base_model)))
    raise ValueError(
        f"base_model: {str(base_model)!r} is neither a folder with a model (config.json) or an adapter "
        f"(adapter_config.json) nor an embedded model ({', '.join(names)})"
    )


def load(base: Base, *, trainable: bool):
    """The model of `base` in float32: its adapter on top to be trained on, or merged in to be read only."""
    torch, transformers, peft = loaded("torch", "transformers", "peft")
    model = transformers.AutoModelForCausalLM.from_pretrained(base.folder, dtype=torch.float32)
    if not base.adapter:
        return model
    model = peft.PeftModel.from_pretrained(model, base.adapter, is_trainable=trainable)
    return model if trainable else model.merge_and_unload()


def weights_hash(folder: pathlib.Path) -> str:
    """sha256 over the weight files of a model or adapter folder, in order of their names."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        digest.update(file.name.encode())
        with open(file, "rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def transformers_folder(name: str) -> pathlib.Path:
    """The Hugging Face folder of the embedded model `name`, in float32; made from its GGUF once, then cached.

    Raises ValueError for a name that is no embedded model, WeightsError when its weights cannot be had,
    ImportError without the extra `train`.
    """
    import platformdirs

    gguf = chat.model_path(name)
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    place = pathlib.Path(platformdirs.user_cache_dir("cotkit")) / "transformers" / f"{name}-{digest[:12]}"
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    part = pathlib.Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=place.parent))
    try:
        from_gguf(gguf, part)
        os.rename(part, place)  # whole or not at all
    except OSError:
        if not place.is_dir():  # else another process was first
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return place


def from_gguf(gguf: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes the model of a GGUF file, dequantised to float32, as a Hugging Face folder."""
    torch, transformers = loaded("torch", "transformers")
    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    # What was loaded from a GGUF refuses to be saved ("quantized with gguf and is not serializable"), though
    # its weights are plain tensors by now: the same in a model that does not know where they come from.
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(model.state_dict())
    plain.tie_weights()
    plain.generation_config = model.generation_config
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
