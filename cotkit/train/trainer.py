"""What `cotkit.self_improve` trains with between two cycles: `EmbeddedTrainer` trains an embedded model and
serves it by llama.cpp, `FolderTrainer` trains any Hugging Face model and leaves a folder for your server.
"""

from __future__ import annotations

import dataclasses
import inspect
import pathlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from cotkit.train.extra import check_installed
from cotkit.train.result import METHODS, LoraOptions

if TYPE_CHECKING:
    from cotkit.chat import ChatModel

_WITHOUT = (
    "To go on without training leave `trainer` out (in the notebook methods=[], in a shell -p 'methods=[]'); "
    "the cycles then make data only."
)
_METHODS = tuple(method for method in METHODS if method != "grpo")  # grpo draws its own traces
_NOT_HERE = ("resume", "reward", "num_generations", "max_completion_length")
_NO_MATTER = ("say", "device")  # to the result, so a run goes on with others
_NO_MATTER_IN_CHAT = {"parallel", "threads", "timeout", "max_retries", "max_concurrency", "offline", "say"}
_SET_BY_SERVING = {"name", "adapter", "gguf", "model", "base_url", "api_key_env", "client", "revive"}
_SET_BY_SERVING |= {"endpoint_name", "price", "supports_n"}


@dataclass
class _Trainer:
    """Options for each training of a chain, checked when they are given; and the training itself."""

    base: str
    options: dict[str, Any] = field(default_factory=dict)
    by_method: dict[str, dict[str, Any]] = field(default_factory=dict)
    first: dict[str, Any] = field(default_factory=dict)
    _needs: ClassVar[tuple[str, ...]] = ()  # libraries beside those of every training

    def __post_init__(self) -> None:
        try:
            check_installed(*self._needs)
        except ImportError as error:
            raise ImportError(f"{error}. {_WITHOUT}") from None
        if unknown := sorted(set(self.by_method) - set(_METHODS)):
            raise ValueError(f"by_method: {unknown[0]!r} is none of {', '.join(_METHODS)}")
        self.options = dict(self.options)
        if isinstance(lora := self.options.get("lora"), LoraOptions):  # as it is written to config.json
            self.options["lora"] = dataclasses.asdict(lora)
        for place, given in {"first": self.first, **self.by_method}.items():
            if "lora" in given:
                raise ValueError(f"{place}: all trainings of a chain share one lora: give it in options")
        for given in (self.options, self.first, *self.by_method.values()):
            if taken := sorted(set(given) & set(_NOT_HERE)):
                raise ValueError(f"{taken[0]} is no option of a training between cycles: leave it out")
        self.check({"sft", *self.by_method})

    def check(self, methods: Iterable[str]) -> None:
        """ValueError when a training by one of `methods` would be refused for its options."""
        from cotkit.train.running import check_options

        for method in methods:
            for first in (True, False):
                check_options(method, self.options_of(method, first))

    def options_of(self, method: str, first: bool) -> dict[str, Any]:
        """`options`, over them `first`, over both `by_method`; `first`'s learning_rate is one for sft."""
        of_first = {n: v for n, v in self.first.items() if method == "sft" or n != "learning_rate"}
        return {**self.options, **(of_first if first else {}), **self.by_method.get(method, {})}

    def describe(self) -> dict[str, Any]:
        told = {"trainer": type(self).__name__, "base": str(self.base)}
        for name in ("options", "by_method", "first"):
            told[name] = _without(getattr(self, name), _NO_MATTER)
        told["by_method"] = {method: _without(given, _NO_MATTER) for method, given in self.by_method.items()}
        return told

    def train(
        self, method: str, data: pathlib.Path, champion: Mapping[str, Any] | None, output: pathlib.Path
    ) -> dict[str, Any]:
        """See `cotkit.pipelines.Trainer`. Raises TrainingDataError for rows that must not be trained on,
        RuntimeError when disk or memory do not suffice, FileNotFoundError when the champion is gone."""
        from cotkit.train.running import train

        options, start = self.options_of(method, champion is None), self._start(champion)
        if champion and champion.get("adapter"):  # it keeps its shape
            options.pop("lora", None)
        result = train(method, data, start, output, **options)
        if result.status in ("disk_full", "out_of_memory"):
            raise RuntimeError(f"training stopped, {result.status.replace('_', ' ')}: {result.detail}")
        known = {
            "status": result.status, "detail": result.detail, "method": method, "start": str(start),
            "base": str(result.base), "reference": result.reference and str(result.reference),
            "steps": result.steps, "loss_first": result.loss_first, "loss_last": result.loss_last,
            "seconds": result.seconds, "rows": result.rows, "drops": result.drops,
            "warnings": result.warnings, "manifest": result.manifest,
        }  # fmt: skip
        if result.trained:
            kind = "adapter" if result.adapter else "model"
            trained = result.adapter or result.model
            known |= {kind: str(trained), "served": str(self._made(trained)), "served_as": self._served_as}
        return known

    def fitting(self, method: str, data: pathlib.Path, champion: Mapping[str, Any] | None) -> dict[str, Any]:
        """How many "rows" of the file the training would take, and its "drops"; raises as `train` does."""
        from cotkit.train.running import MAX_LENGTH, fitting

        longest = self.options_of(method, champion is None).get("max_length", MAX_LENGTH)
        return fitting(method, data, self._start(champion), longest)

    def _start(self, champion: Mapping[str, Any] | None) -> Any:
        """Where a training starts from. ValueError when its chat template is another than it was trained
        with: it would be trained, and asked, in a form that it has not learnt."""
        from cotkit.train.bases import chat_template_hash, find_base

        if not champion:
            return self.base
        start = _there(champion, "adapter" if champion.get("adapter") else "model")
        folder, then = find_base(start).folder, champion["manifest"]["config"].get("chat_template")
        if then not in (None, chat_template_hash(folder)):
            raise ValueError(
                f"the chat template in {folder} is another than the one that {start} was trained with: put "
                "that one back, or start another run"
            )
        return start

    def _served(self, manifest: Mapping[str, Any]) -> pathlib.Path:
        """What is served, made again where it is gone and what was trained is not."""
        try:
            return _there(manifest, "served")
        except FileNotFoundError:
            return self._made(_there(manifest, "adapter" if manifest.get("adapter") else "model"))


@dataclass
class EmbeddedTrainer(_Trainer):
    """A `cotkit.pipelines.Trainer`: training of an embedded model on this machine, served by llama.cpp.

    base: name of the embedded model. options: of `cotkit.train.train` (epochs, batch_size, learning_rate,
    max_length, lora ...), for each training. first: of the training that starts from the untrained base; they
    go over `options`, but its learning_rate is one for sft. by_method {method: options} goes over both. So a
    first training by dpo has the rate of by_method["dpo"], else of `options`, else TRL's of dpo. lora: all
    trainings go on with the first one's adapter, shaped by options["lora"]; None = each trains every weight.
    chat: options of `local_model`; what it does not say of sampling is as the untrained actor has it.

    Raises ValueError or TypeError for wrong options, ImportError without the extra.
    """

    base: str = "smollm2-135m"
    chat: dict[str, Any] = field(default_factory=dict)
    _served_as: ClassVar[str] = "gguf"
    _needs: ClassVar[tuple[str, ...]] = ("gguf",)

    def __post_init__(self) -> None:
        from cotkit.chat import ChatModel, local_model
        from cotkit.train.bases import embedded_models

        if self.base not in embedded_models():
            raise ValueError(
                f"base: {self.base!r} is no embedded model ({', '.join(embedded_models())}); "
                "cotkit.train.FolderTrainer trains a Hugging Face model"
            )
        if taken := sorted(_SET_BY_SERVING & set(self.chat)):
            raise TypeError(f"chat: {taken[0]} is set by the trainer: leave it out")
        for name in {"parallel", "ctx", "threads"} & set(self.chat):
            if type(self.chat[name]) is not int or self.chat[name] < 1:
                raise ValueError(f"chat: {name} must be a whole number above 0: got {self.chat[name]!r}")
        of_server = inspect.signature(local_model).parameters
        ChatModel("base", "http://127.0.0.1/v1", "", **_without(self.chat, of_server))  # checks them
        super().__post_init__()

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "chat": _without(self.chat, _NO_MATTER_IN_CHAT)}

    def _made(self, trained: pathlib.Path) -> pathlib.Path:
        from cotkit.train.adapters import to_llama_model

        return to_llama_model(trained, trained.with_name("student.gguf"), self.base)

    def serve(self, manifest: Mapping[str, Any]) -> ChatModel:
        from cotkit.chat import local_model

        served_as = manifest.get("served_as", "adapter")
        chat = {**manifest.get("sampling", {}), **self.chat}
        return local_model(self.base, **{served_as: self._served(manifest)}, **chat)


@dataclass
class FolderTrainer(_Trainer):
    """A `cotkit.pipelines.Trainer` for a model that you serve: trained here, on the GPU where there is one,
    and left as a whole model folder for vLLM and the like.

    base: a Hugging Face model folder, or the name of one in the Hugging Face cache. server: called with the
    folder of a trained model and a name that no other training has; it starts or reloads your server with the
    folder under that name and gives the ChatModel that asks it. side_by_side: a model that it served can
    still be asked when it has served another. options, first, by_method: as of `EmbeddedTrainer`.
    """

    server: Callable[[pathlib.Path, str], ChatModel] | None = None
    side_by_side: bool = False
    _served_as: ClassVar[str] = "folder"

    def __post_init__(self) -> None:
        from cotkit.train.bases import embedded_models, find_base

        if not callable(self.server):
            raise TypeError(
                "server: each cycle asks the model it trained, so give a function (folder, name) -> "
                "ChatModel, such as one that runs `vllm serve FOLDER --served-model-name NAME`, waits for it "
                "and gives cotkit.ChatModel(name, 'http://127.0.0.1:8000/v1')"
            )
        if self.base in embedded_models():
            raise ValueError(f"base: {self.base} is an embedded model: use EmbeddedTrainer")
        super().__post_init__()
        if find_base(self.base).adapter:
            raise ValueError(f"base: {self.base} is an adapter: cotkit.train.merge() makes a model of it")

    def _made(self, trained: pathlib.Path) -> pathlib.Path:
        from cotkit.train.adapters import merge

        return merge(trained, trained.with_name("merged")) if trained.name == "adapter" else trained

    def serve(self, manifest: Mapping[str, Any]) -> ChatModel:
        name = f"{pathlib.Path(self.base).name}-{manifest['manifest']['sha256'][:12]}"
        return self.server(self._served(manifest), name)


def _without(given: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in names}


def _there(manifest: Mapping[str, Any], name: str) -> pathlib.Path:
    """A file or folder of a training: where it was made, or in manifest["folder"], where that is now."""
    made = pathlib.Path(manifest[name])
    for place in (pathlib.Path(manifest.get("folder", made.parent)) / made.name, made):
        if place.exists():
            return place
    raise FileNotFoundError(
        f"{made} is not there: put the run's folder back where it was, or start another run"
    )
