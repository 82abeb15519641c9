"""The options that a public function passes on: divided among those that take them, and shown by name."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def divide(name: str, given: Mapping[str, Any], *takers: Callable) -> list[dict[str, Any]]:
    """What of `given` each of `takers` has as a keyword-only option; TypeError for what none has."""
    known = [option.name for option in _options(takers)]
    for option in given:
        if option not in known:
            near = difflib.get_close_matches(option, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(known)}"
            raise TypeError(f"{name} has no option {option!r}; {hint}")
    return [{o.name: given[o.name] for o in _options([taker]) if o.name in given} for taker in takers]


def show_options(functions: Iterable[Callable], *takers: Callable) -> None:
    """Shift-Tab in a notebook shows every option of the functions by name."""
    for function in functions:
        own = inspect.signature(function)
        named = [option for option in own.parameters.values() if option.kind is not option.VAR_KEYWORD]
        function.__signature__ = own.replace(parameters=[*named, *_options(takers)])


def _options(takers: Iterable[Callable]) -> list[inspect.Parameter]:
    parameters = (option for taker in takers for option in inspect.signature(taker).parameters.values())
    return [option for option in parameters if option.kind is option.KEYWORD_ONLY]
