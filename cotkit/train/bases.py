"""The model a training starts from: a Hugging Face folder or name, an adapter folder, or an embedded model's
GGUF, which becomes a Hugging Face folder once and is cached.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
from dataclasses import dataclass

from cotkit import chat
from cotkit.train.disk import whole
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
    if (folder / "adapter_config.json").is_file():
        return Base(_below(folder), folder)
    if (folder / "config.json").is_file():
        return Base(folder)
    if str(base_model) in embedded_models():
        return Base(transformers_folder(str(base_model)))
    if re.fullmatch(r"[\w.-]+/[\w.-]+", str(base_model)) and (cached := _in_hub_cache(str(base_model))):
        return Base(cached)
    raise ValueError(
        f"base_model: {str(base_model)!r} is neither a folder with a model (config.json) or an adapter "
        f"(adapter_config.json) nor an embedded model ({', '.join(embedded_models())}) nor a model in the "
        "Hugging Face cache (`hf download NAME` puts it there)"
    )


def embedded_models() -> list[str]:
    return [row["name"] for row in chat.models_table()]


def _below(adapter: pathlib.Path) -> pathlib.Path:
    """The model folder an adapter was trained on; made again when it was an embedded model's, now gone."""
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    below = pathlib.Path(config["base_model_name_or_path"])
    if (below / "config.json").is_file():
        return below
    name = below.name.rpartition("-")[0]  # see transformers_folder
    if name in embedded_models() and (made := transformers_folder(name)).name == below.name:
        return made
    raise ValueError(
        f"base_model: the adapter {adapter} was trained on {below}, which is not there. Put it back, or "
        "write where it is now as base_model_name_or_path into the adapter's adapter_config.json"
    )


def _in_hub_cache(name: str) -> pathlib.Path | None:
    (hub,) = loaded("huggingface_hub")
    try:
        folder = pathlib.Path(hub.snapshot_download(name, local_files_only=True))
    except (OSError, ValueError):  # not there; no name of a model
        return None
    return folder if (folder / "config.json").is_file() else None


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


def chat_template_hash(folder: pathlib.Path) -> str:
    """sha256 of the chat template of a model folder; of nothing where it has none."""
    file, config = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    template = file.read_text(encoding="utf-8") if file.is_file() else ""
    if not template and config.is_file():
        template = str(json.loads(config.read_text(encoding="utf-8")).get("chat_template") or "")
    return hashlib.sha256(template.encode()).hexdigest()


def transformers_folder(name: str) -> pathlib.Path:
    """The Hugging Face folder of the embedded model `name`, in float32; made from its GGUF once, then cached.

    Raises ValueError for a name that is no embedded model, WeightsError when its weights cannot be had,
    ImportError without the extra `train`, OSError when the disk is full.
    """
    import filelock
    import platformdirs

    gguf = chat.model_path(name)
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    place = pathlib.Path(platformdirs.user_cache_dir("cotkit")) / "transformers" / f"{name}-{digest[:12]}"
    if not _is_model(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(place.with_name(f"{place.name}.lock")):
            if not _is_model(place):  # else another process was first
                with whole(place, folder=True) as part:
                    from_gguf(gguf, part)
    return place


def _is_model(folder: pathlib.Path) -> bool:
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


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
