"""A notebook's parameters: read from its `parameters` cell, and checked before a kernel starts.

The cell holds one annotated and commented assignment a line:

    n_problems: int = 40  # how many problems to take

`read_parameters` gives name, type, default and comment of each. `resolve` fits given values (Python objects
or a command line's text) to the types and refuses everything else: unknown names, wrong types, values that
are not finite, and keys. papermill by itself runs on after an unknown name and takes "1e-3" for a string.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import io
import re
import tokenize
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from cotkit.keys import environment_secrets, is_secret_name, is_variable_name, looks_like_a_key

TYPE_NAMES = {
    "int": int, "float": float, "str": str, "bool": bool, "list": list, "dict": dict, "None": None,
    "Optional": typing.Optional, "Union": typing.Union, "Literal": typing.Literal, "Any": Any,
}  # fmt: skip
_WORDS = {"none": None, "null": None, "true": True, "false": False}


@dataclass(frozen=True)
class Parameter:
    name: str
    annotation: str  # as it stands in the cell; "" = none
    kind: Any  # the type it means; None when there is no usable annotation
    default: str  # source text
    comment: str


def parameters_cell(notebook: Mapping[str, Any], label: str = "the notebook") -> Mapping[str, Any]:
    """The one code cell tagged `parameters`; ValueError when there is none or more than one."""
    cells = [
        cell
        for cell in notebook["cells"]
        if cell["cell_type"] == "code" and "parameters" in cell.get("metadata", {}).get("tags", [])
    ]
    if len(cells) != 1:
        raise ValueError(f"{label} must have exactly one cell tagged `parameters`, it has {len(cells)}")
    return cells[0]


def read_parameters(notebook: Mapping[str, Any], label: str = "the notebook") -> list[Parameter]:
    """The parameters in the order of the cell. ValueError for a cell that is no list of assignments."""
    source = "".join(parameters_cell(notebook, label)["source"])
    try:
        statements = ast.parse(source).body
    except SyntaxError as error:
        raise ValueError(f"{label}: the parameters cell is not Python: {error}") from None
    comments = _comments(source)
    found = []
    for statement in statements:
        if isinstance(statement, ast.AnnAssign):
            target, annotation = statement.target, ast.unparse(statement.annotation)
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, annotation = statement.targets[0], ""
        else:
            target = None
        if not isinstance(target, ast.Name) or statement.value is None:
            line = ast.unparse(statement).splitlines()[0]
            raise ValueError(
                f"{label}: the parameters cell may hold only `name: type = value  # what it is`, not {line!r}"
            )
        default = ast.get_source_segment(source, statement.value) or ""
        if "\n" in default:  # on one line, without the comments between
            default = ast.unparse(statement.value)
        lines = range(statement.end_lineno or 0, statement.lineno - 1, -1)
        comment = next((comments[line] for line in lines if line in comments), "")
        found.append(Parameter(target.id, annotation, _kind(annotation), default, comment))
    return found


def _comments(source: str) -> dict[int, str]:
    """The comment on each line."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {t.start[0]: t.string.lstrip("#").strip() for t in tokens if t.type == tokenize.COMMENT}


_ANNOTATION_NODES = (
    ast.Expression, ast.Name, ast.Load, ast.Subscript, ast.Tuple, ast.BinOp, ast.BitOr, ast.Constant,
)  # fmt: skip


def _kind(annotation: str) -> Any:
    """The type an annotation means, None when it is none we know. Nothing but type names is evaluated."""
    if not annotation:
        return None
    tree = ast.parse(annotation, mode="eval")
    if not all(isinstance(node, _ANNOTATION_NODES) for node in ast.walk(tree)):
        return None
    try:
        kind = eval(compile(tree, "<annotation>", "eval"), {"__builtins__": {}}, TYPE_NAMES)
    except (NameError, TypeError):
        return None
    return None if isinstance(kind, (str, int, tuple)) else kind


def resolve(
    notebook: Mapping[str, Any], given: Mapping[str, Any], label: str = "the notebook"
) -> dict[str, Any]:
    """`given`, each value as its parameter's type.

    Raises ValueError for an unknown name, a type that does not fit, an unannotated parameter or a value that
    looks like a key; the message lists what would be right.
    """
    known = {parameter.name: parameter for parameter in read_parameters(notebook, label)}
    resolved = {}
    for name, value in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{label} has no parameter {name!r}.{hint} It has: {', '.join(known) or 'none'}")
        parameter = known[name]
        if parameter.kind is None:
            what = f"the annotation {parameter.annotation!r}" if parameter.annotation else "no annotation"
            raise ValueError(
                f"{label}: parameter {name!r} has {what}, so a value cannot be checked; annotate it with "
                f"one of {', '.join(TYPE_NAMES)}"
            )
        if holds_key(value):
            raise ValueError(_KEY_REFUSED.format(name=name))
        try:
            resolved[name] = fit(parameter.kind, value)
        except TypeError as error:
            text = repr(value)
            shown = text if len(text) <= 80 else text[:77] + "..."
            raise ValueError(
                f"parameter {name!r} of {label} is {parameter.annotation}; {shown} {error}"
            ) from None
        if _is_key_in_a_key_field(name, resolved[name]):
            raise ValueError(_KEY_REFUSED.format(name=name))
    return resolved


def fit(kind: Any, value: Any) -> Any:
    """`value` as the annotated type `kind`; TypeError that says why it does not fit.

    Text is read as a command line means it: "5" is an int, "1e-3" a float, "true" a bool, "none" is None,
    a list or dict is YAML; where that does not fit it is text. Nothing is rounded or cut: 5.5 is no int, 1 no
    bool, 7 no str.
    """
    adapter = TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False))
    faults: list[Any] = []
    for meaning in [_read(value), value] if isinstance(value, str) else [value]:
        try:
            return adapter.validate_python(list(meaning) if isinstance(meaning, tuple) else meaning)
        except ValidationError as error:
            faults = faults or error.errors()
    if value is None:
        raise TypeError("is allowed only where the annotation says `| None`")
    words = [_FAULTS.get(fault["type"], fault["msg"]).format(**fault.get("ctx", {})) for fault in faults]
    raise TypeError(f"is {', '.join(dict.fromkeys(words))}")


_FAULTS = {  # pydantic's, in words
    "int_type": "not a whole number",
    "float_type": "not a number",
    "finite_number": "not a finite number",
    "bool_type": "not true or false",
    "string_type": "not text (put it in quotes)",
    "list_type": "not a list, such as '[a, b]'",
    "dict_type": "not a dict, such as '{{a: 1, b: 2}}'",
    "literal_error": "none of {expected}",
    "none_required": "not None",
}


class _Yaml(yaml.SafeLoader):
    """YAML 1.1 takes 1e-3 for text."""


_Yaml.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _read(text: str) -> Any:
    """What a command line's text means."""
    if text.strip().lower() in _WORDS:
        return _WORDS[text.strip().lower()]
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(text)
    with contextlib.suppress(yaml.YAMLError):
        found = yaml.load(text, _Yaml)
        return found if isinstance(found, (list, dict)) else text
    return text


# Parameters are saved in the executed notebook and in the report, so no key may be one.
_KEY_REFUSED = (  # the value is not repeated
    "parameter {name!r} looks like a key. Parameters are saved in the notebook and the report: put the key "
    "in an environment variable and give the NAME of that variable"
)


def holds_key(value: Any) -> bool:
    """True when a value, or anything in it, has a known key's form or is one of the environment's keys."""
    if isinstance(value, dict):
        return any(holds_key(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(holds_key(item) for item in value)
    if not isinstance(value, str):
        return False
    return looks_like_a_key(value) or any(secret in value for secret in environment_secrets())


def _is_key_in_a_key_field(name: str, value: Any) -> bool:
    """Text in a parameter such as `api_key` or `api_key_env` that cannot be the name of a variable."""
    field = is_secret_name(name.removesuffix("_env"))
    return bool(field and isinstance(value, str) and value and not is_variable_name(value))
