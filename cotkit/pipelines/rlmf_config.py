"""A self-improvement run from a YAML file, in the shape that articles on such loops use.

    model_config:                 each role, or a list of these in order of failover; also other options of
      actor: {provider: openai, model_name: gpt-4o-mini, api_key: "${OPENAI_API_KEY}"}         a ChatModel
      critic: ...                 (also `critics`, a list of roles)
      improver: ...               (also `holdout_critic`, `teacher`)
    self_improvement_config:
      task_description: ...
      evaluation_criteria: [...]
      num_iterations: 1
      num_cycles: 1
      prompts: [...]              or `problems`: what `load_problems` takes; without either the description
      evaluation_dimensions:      is the one prompt
        - {name: clarity, description: ..., scoring_guide: {1: ..., 10: ...}}
      dev: 0.2                    (and other options of `self_improve` by their names: see OPTIONS)
    training_config: {method: dpo, base_model: smollm2-135m, epochs: 1, batch_size: 4, learning_rate: 1.0e-5}

A number may stand in quotes, or without the point that YAML asks for (5e-5).

`api_key` is the name of an environment variable, alone or as ${NAME}. A key that stands in the file itself
works too, with a warning: it goes into the environment of this process and nowhere else.
"""

from __future__ import annotations

import math
import os
import pathlib
import re
import warnings
from collections.abc import Mapping
from typing import Any

from cotkit.chat import ChatModel, local_model
from cotkit.keys import is_variable_name

PROVIDERS = {  # provider: (base_url, variable of its key); all speak OpenAI's protocol
    "openai": (None, "OPENAI_API_KEY"),
    "deepseek": ("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "anthropic": ("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    "google": ("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "ollama": ("http://127.0.0.1:11434/v1", ""),
    "vllm": ("http://127.0.0.1:8000/v1", ""),
}
EMBEDDED = "embedded"
OPTIONS = (  # of `self_improve`, under its own names
    "num_generations", "teacher_generations", "problems_per_cycle", "score_threshold", "aggregate", "policy",
    "max_per_problem", "min_examples", "replay_fraction", "dev", "test", "held_out_types", "dev_generations",
    "temperature", "max_tokens", "seed", "budget_usd", "budget_calls", "budget_tokens", "run",
)  # fmt: skip
_NUMERIC = (  # in whatever section
    "num_iterations", "num_cycles", "num_generations", "teacher_generations", "problems_per_cycle",
    "max_per_problem", "min_examples", "replay_fraction", "dev", "test", "dev_generations", "budget_usd",
    "budget_calls", "budget_tokens", "temperature", "top_p", "max_tokens", "seed", "timeout", "max_retries",
    "max_concurrency", "max_requests_per_minute", "parallel", "ctx", "threads", "epochs", "batch_size",
    "learning_rate", "max_steps", "max_length", "beta",
)  # fmt: skip
_MAY_BE_NUMERIC = ("score_threshold", "lora", "price")  # numbers, or what holds some, or neither
_KNOWN = {  # section: its names
    "": "model_config self_improvement_config evaluation_dimensions training_config",
    "model_config": "actor critic critics improver holdout_critic teacher",
    "self_improvement_config": "task_description evaluation_criteria num_iterations num_cycles "
    "evaluation_dimensions prompts problems " + " ".join(OPTIONS),
    "training_config": "method base_model epochs batch_size learning_rate max_steps max_length beta lora",
    "evaluation_dimensions": "name description scoring_guide scale weight",
}
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_SCORE = re.compile(r"(\d+)(?:\s*(?:-|–|to)\s*(\d+))?(?:[\s(:=-]\D*)?")  # 7, "7-8", "9-10 (excellent)"


def load_self_improvement(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a file asks for: {"options": of `self_improve`, "training": of training_config, may be empty}.

    Makes the roles' models; nothing is asked. Raises ValueError that names the file, the section and the fix.
    """
    import yaml

    path = pathlib.Path(path).expanduser()
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(content, Mapping) or "self_improvement_config" not in content:
            raise ValueError("there is no section self_improvement_config")
        return _read(_section("", content), path.parent)
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def _read(content: Mapping[str, Any], folder: pathlib.Path) -> dict[str, Any]:
    names = ("self_improvement_config", "model_config", "training_config")
    task, models, training = (_section(name, content.get(name) or {}) for name in names)
    task, training = _numbers(task, f"{names[0]}: "), _numbers(training, f"{names[2]}: ")
    if "actor" not in models:
        raise ValueError("model_config needs a role `actor`")
    roles = {name: _role(name, given) for name, given in models.items() if name != "critics"}
    several = models.get("critics") or []
    several = several if isinstance(several, list) else [several]
    critics = [_role(f"critics {number}", one) for number, one in enumerate(several, 1)]
    critics += [roles.pop("critic")] if "critic" in roles else []
    given = task.get("evaluation_dimensions") or content.get("evaluation_dimensions") or ()
    asked = {"description": task.get("task_description")}
    asked["dimensions"] = _dimensions(given, task.get("evaluation_criteria") or ())
    asked |= {name: task[name] for name in ("problems", "prompts") if task.get(name)}
    if isinstance(asked.get("prompts"), str):
        asked["prompts"] = [asked["prompts"]]
    if isinstance(beside := asked.get("problems"), str) and (folder / beside).is_file():
        asked["problems"] = folder / beside
    options = {"task": asked, "critics": critics, **roles, **{n: task[n] for n in OPTIONS if n in task}}
    options |= {"iterations": task.get("num_iterations", 1), "cycles": task.get("num_cycles", 1)}
    if methods := training.get("method"):
        several = isinstance(methods, list)
        options["method"] = [str(one).lower() for one in methods] if several else str(methods).lower()
    return {"options": options, "training": {k: v for k, v in training.items() if k != "method"}}


def _section(name: str, given: Any) -> Mapping[str, Any]:
    known = _KNOWN[name].split()
    if not isinstance(given, Mapping):
        raise ValueError(f"{name} must hold names and values: {', '.join(known)}")
    if unknown := sorted(set(map(str, given)) - set(known)):
        raise ValueError(f"{name or 'the file'} has unknown {', '.join(unknown)}; known: {', '.join(known)}")
    return given


def _numbers(given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """The section with numbers where a text stands for one; ValueError where one must and does not."""
    made = {n: _number(v) if n in (*_NUMERIC, *_MAY_BE_NUMERIC) else v for n, v in given.items()}
    for name in _NUMERIC:
        if isinstance(made.get(name), str):
            raise ValueError(f"{where}{name} must be a number, got {made[name]!r}")
    return made


def _number(value: Any) -> Any:
    """A number for a text that is one, and so in lists and mappings; all else as it is."""
    if isinstance(value, list):
        return [_number(one) for one in value]
    if isinstance(value, Mapping):
        return {name: _number(one) for name, one in value.items()}
    try:
        number = float(value) if isinstance(value, str) else math.inf
    except ValueError:
        return value
    if not math.isfinite(number):
        return value
    return int(number) if number.is_integer() else number


def _role(role: str, given: Any) -> ChatModel:
    entries = given if isinstance(given, list) else [given]
    try:
        if not entries or not all(isinstance(entry, Mapping) for entry in entries):
            raise ValueError("it must be {provider: ..., model_name: ...}, or a list of these")
        first, *others = [_model(role, _numbers(entry), place) for place, entry in enumerate(entries)]
    except (TypeError, ValueError) as error:
        raise ValueError(f"model_config, {role}: {error}") from None
    first.endpoints += [endpoint for model in others for endpoint in model.endpoints]
    return first


def _model(role: str, entry: dict[str, Any], place: int) -> ChatModel:
    provider = str(entry.pop("provider", "openai")).lower()
    name, key = entry.pop("model_name", None), entry.pop("api_key", None)
    if not name:
        raise ValueError("an entry needs provider and model_name")
    if provider == EMBEDDED:
        return local_model(name, **entry)
    if provider not in PROVIDERS and "base_url" not in entry:
        known = ", ".join([*PROVIDERS, EMBEDDED])
        raise ValueError(f"unknown provider {provider!r}: give its base_url, or one of {known}")
    base_url, variable = PROVIDERS.get(provider, (None, None))
    variable = _key_variable(role, str(key).strip(), place) if key else variable
    return ChatModel(name, **{"base_url": base_url, "api_key_env": variable, **entry})


def _key_variable(role: str, key: str, place: int) -> str:
    """The environment variable that holds the key; one that stands in the file is put there."""
    if named := _VARIABLE.fullmatch(key):
        return named[1]
    if is_variable_name(key):
        return key
    variable = f"COTKIT_{role.upper().replace(' ', '_')}_{place}_API_KEY"
    os.environ[variable] = key
    advice = "put it in an environment variable and write the variable's name"
    warnings.warn(f"model_config, {role}: a key stands in the file: {advice}", stacklevel=2)
    return variable


def _dimensions(given: Any, criteria: Any) -> list[dict[str, Any]] | None:
    """Dimensions for the critics; criteria are dimensions of their own when there are no others."""
    criteria = [criteria] if isinstance(criteria, str) else [str(one) for one in criteria]
    if not given:
        slugs = ["_".join(re.findall(r"\w+", text.lower())[:4]) for text in criteria]
        return [{"name": slug, "guide": text} for slug, text in zip(slugs, criteria, strict=True)] or None
    if isinstance(given, Mapping):  # {name: what it is}
        given = [{"name": name, **_section("evaluation_dimensions", one)} for name, one in given.items()]
    also = f" Keep in mind: {'; '.join(criteria)}" if criteria else ""
    found = [_dimension(_section("evaluation_dimensions", one), also) for one in given]
    if any("weight" in one for one in given):
        warnings.warn("evaluation_dimensions: weights are not used, all dimensions count alike", stacklevel=2)
    return found


def _dimension(given: Mapping[str, Any], also: str) -> dict[str, Any]:
    if "name" not in given:
        raise ValueError("evaluation_dimensions: each needs a name, a description and a scoring_guide")
    name, text = str(given["name"]), str(given.get("description") or given["name"])
    guide = given.get("scoring_guide") or {}
    anchors = _anchors(guide) if isinstance(guide, Mapping) else {}
    if not anchors and guide:  # in words
        lines = guide if isinstance(guide, list) else [guide]
        lines = [f"{key}: {value}" for key, value in guide.items()] if isinstance(guide, Mapping) else lines
        text = "\n".join([text, *map(str, lines)])
    scale = given.get("scale") or (min([1, *anchors]), max([10, *anchors]))
    if not isinstance(scale, (list, tuple)) or len(scale) != 2:
        raise ValueError(f"evaluation_dimensions, {name}: scale must be [low, high], got {scale!r}")
    return {"name": name, "guide": text + also, "scale": tuple(scale), "anchors": anchors}


def _anchors(guide: Mapping[Any, Any]) -> dict[int, str]:
    """{score: meaning}, of a range the upper end; none when not every key is a score."""
    scores = {key: _SCORE.fullmatch(str(key).strip()) for key in guide}
    if not all(scores.values()):
        return {}
    return {int(score[2] or score[1]): str(guide[key]) for key, score in scores.items()}
