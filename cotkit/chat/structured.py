"""Objects out of a model's words: find the JSON, mend its LaTeX, validate it.

A model asked for JSON writes `\\frac` where JSON wants `\\\\frac`. Some of those are legal escapes of
something else: `\\f` is a form feed, `\\t` a tab, `\\n` a new line. So escapes are mended before the JSON is
parsed, by what follows the backslash (`_kept`), and never afterwards. Nothing is guessed beyond that and a
trailing comma: text without exactly one object that fits is a ParseError, which a re-ask can quote.

It runs in the engine's loop, so every step takes time linear in the text, and the search is bounded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pydantic

LONGEST_TEXT = 200_000  # characters, some 50,000 tokens
STARTS_TRIED = 200  # opening brackets of prose looked at before giving up ...
SCANNED_IN_VAIN = 400_000  # ... or characters behind those that do not close

# Strings are matched possessively, one without an end too: to look at it again would take quadratic time.
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*+"?)|,(?=\s*+[}\]])', re.DOTALL)
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|(?P<endless>))|[{}\[\]]', re.DOTALL)
_PLAIN_BRACKET = re.compile(r"[{}\[\]]")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|[A-Za-z]+|.)", re.DOTALL)
_NUMBER = re.compile(r"\s*[-+]?\d+(\.\d+)?([eE][-+]?\d+)?\s*")

# LaTeX commands that begin like a JSON escape; `\b` and `\f` before a letter are always LaTeX.
_LATEX = re.compile(
    r"n(abla|atural|earrow|eq|ewcommand|ewline|geq|leq|oindent|onumber|ot|otin|parallel|subseteq|warrow)"
    r"|r(angle|brace|brack|ceil|floor|ho|ight|ightarrow|ightharpoonup|ightleftharpoons|m|oot|vert)"
    r"|t(ag|an|anh|au|binom|ext[a-z]*|frac|heta|herefore|ilde|imes|iny|o|op|riangle|riangleq)"
)
_LATEX_OR_NEW_LINE = {"ne", "neg", "nexists", "ni", "nless", "nmid", "nu"}  # or a new line and a "u"
_SENTENCE_END = ".:;,!?)\n"


class ParseError(ValueError):
    """No object that fits; the message says why, in words a model can act on."""


@dataclasses.dataclass(frozen=True, eq=False)
class Schema:
    """What an answer must fit, as it is said to an endpoint and checked here. See `schema_of`."""

    as_json: dict[str, Any]
    text: str
    validated: Callable[[Any], Any]  # the object; raises ParseError

    def response_format(self, mode: str) -> dict[str, Any] | None:
        """The request's `response_format`; None in mode "prompt"."""
        if mode == "json_object":
            return {"type": "json_object"}
        return self._as_format if mode == "json_schema" else None

    @functools.cached_property
    def _as_format(self) -> dict[str, Any]:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", str(self.as_json.get("title", "answer")))[:64]
        strict = {"strict": True} if _is_strict(self.as_json) else {}
        return {"type": "json_schema", "json_schema": {"name": name, "schema": self.as_json, **strict}}


def schema_of(schema: type[pydantic.BaseModel] | Mapping[str, Any]) -> Schema:
    """Of a pydantic model class or a JSON schema. Raises TypeError, before anything is asked."""
    if isinstance(schema, Mapping):
        return _of_json(json.dumps(schema))
    if isinstance(schema, type) and issubclass(schema, pydantic.BaseModel):
        return _of_class(schema)
    raise TypeError(f"schema must be a pydantic model class or a JSON schema (dict), got {schema!r}")


@functools.lru_cache(maxsize=64)
def _of_class(schema: type[pydantic.BaseModel]) -> Schema:
    def validated(value: Any) -> pydantic.BaseModel:
        try:
            return schema.model_validate(value)
        except pydantic.ValidationError as error:
            said = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
            raise ParseError("; ".join(said)) from None

    as_json = schema.model_json_schema()
    return Schema(as_json, json.dumps(as_json), validated)


@functools.lru_cache(maxsize=64)
def _of_json(text: str) -> Schema:
    import fastjsonschema

    as_json = json.loads(text)
    try:
        check = fastjsonschema.compile(as_json, use_default=False, use_formats=False)
    except fastjsonschema.JsonSchemaDefinitionException as error:
        raise TypeError(f"schema is no JSON schema: {error}") from None

    def validated(value: Any) -> Any:
        try:
            return check(_with_numbers(value, as_json))
        except ValueError as error:
            raise ParseError(str(error).replace("data.", "", 1)[:400]) from None

    return Schema(as_json, text, validated)


def _is_strict(schema: Any) -> bool:
    """Whether every object is closed and every property required: what `strict` asks for."""
    if isinstance(schema, list):
        return all(_is_strict(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    if "properties" in schema and (
        schema.get("additionalProperties") is not False
        or set(schema.get("required", ())) != set(schema["properties"])
    ):
        return False
    return all(_is_strict(value) for value in schema.values())


def with_schema(messages: list[dict], schema: Schema) -> list[dict]:
    """The messages with the schema said in words, for endpoints that cannot be told otherwise."""
    from cotkit.prompts import load  # Jinja2 takes a moment, and most calls need no schema

    note = load("json_answer").messages(schema=schema.text)[0]["content"]
    last = messages[-1]
    if last.get("role") == "user" and isinstance(last.get("content"), str):
        return [*messages[:-1], {**last, "content": f"{last['content']}\n\n{note}"}]
    return [*messages, {"role": "user", "content": note}]


def ask_again(messages: list[dict], text: str, error: ParseError, schema: Schema) -> list[dict]:
    """The follow-up that quotes what was wrong with the answer `text`."""
    from cotkit.prompts import load

    complaint = load("json_again").messages(error=str(error), schema=schema.text)
    return [*messages, {"role": "assistant", "content": text}, *complaint]


def parse_object(text: str, schema: Schema | type[pydantic.BaseModel] | Mapping[str, Any]) -> Any:
    """The one object in `text` that fits `schema`: an instance of the class, or plain JSON for a dict.

    Prose and fences around it, a trailing comma, numbers as strings, raw LaTeX in strings are accepted.
    Raises ParseError when nothing fits, or when different objects do.
    """
    schema = schema if isinstance(schema, Schema) else schema_of(schema)
    if len(text) > LONGEST_TEXT:
        raise ParseError(f"it is {len(text)} characters long: too long to look for a JSON object")
    opening = "{[" if schema.as_json.get("type") == "array" else "{"
    fitting, complaint = [], None
    for snippet in _snippets(text, opening):
        try:
            value = schema.validated(_loads(snippet))
        except ParseError as error:
            complaint = error
            continue
        if value not in fitting:
            fitting.append(value)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ParseError(f"it holds {len(fitting)} different JSON objects that fit; one is wanted")
    if complaint is None:
        cut = any(bracket in text for bracket in opening)
        complaint = ParseError("its JSON object does not end" if cut else "it holds no JSON object")
    raise complaint


def _snippets(text: str, opening: str) -> Iterator[str]:
    """The outermost bracketed parts of the text, quoted brackets skipped."""
    position = tried = in_vain = 0
    ends: dict[int, int | None] = {}
    while tried < STARTS_TRIED and in_vain < SCANNED_IN_VAIN:
        if (start := _next(text, opening, position)) < 0:
            return
        tried += 1
        if start not in ends:
            ends |= _ends(text, start)
            in_vain += len(text) - start if ends[start] is None else 0
        end = ends[start]
        if end is not None:
            yield text[start:end]
        position = start + 1 if end is None else end


def _next(text: str, opening: str, position: int) -> int:
    return min((i for i in (text.find(bracket, position) for bracket in opening) if i >= 0), default=-1)


def _ends(text: str, start: int) -> dict[int, int | None]:
    """{opening bracket: end of what it opens}, from the one at `start` up to its end; None = it has none."""
    ends: dict[int, int | None] = {}
    still_open = []
    for match in _brackets(text, start):
        if match[0] in "{[":
            ends[match.start()] = None
            still_open.append(match.start())
        elif match[0] in "}]":
            ends[still_open.pop()] = match.end()
            if not still_open:
                break
    return ends


def _brackets(text: str, start: int) -> Iterator[re.Match[str]]:
    """The strings and brackets from `start` on; a quote that nothing closes is a word, as are later ones."""
    for match in _BRACKET.finditer(text, start):
        if match["endless"] is not None:
            yield from _PLAIN_BRACKET.finditer(text, match.start())
            return
        yield match


def _loads(snippet: str) -> Any:
    try:
        return json.loads(
            mend(snippet),
            strict=False,
            parse_constant=_no_constant,
            parse_float=_finite,
            object_pairs_hook=_each_once,
        )
    except RecursionError:
        raise ParseError("its JSON is nested too deeply") from None
    except ValueError as error:
        raise ParseError(f"its JSON cannot be read: {error}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if found.setdefault(key, value) != value:
            raise ValueError(f"it holds {key!r} twice, with different values; one is wanted")
    return found


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise ValueError(f"{number} is too large a number")
    return value


def mend(snippet: str) -> str:
    """JSON as the model meant it: backslashes of LaTeX doubled, trailing commas dropped."""
    snippet = _TRAILING_COMMA.sub(lambda match: match[1] or "", snippet)
    if "\\" not in snippet:
        return snippet
    escapes, latex = _habits(snippet)
    doubles = latex and not escapes

    def in_string(string: re.Match[str]) -> str:
        return _ESCAPE.sub(lambda escape: _kept(escape, escapes, latex, doubles), string[0])

    return _STRING.sub(in_string, snippet)


def _habits(snippet: str) -> tuple[bool, bool]:
    r"""How this writer writes backslashes: (`\\frac`, properly), (`\frac`, raw); both can be true."""
    escapes = latex = False
    for match in _ESCAPE.finditer(snippet):
        if match[1] == "\\":
            escapes |= bool(re.match(r"[A-Za-z(\[]", snippet[match.end() : match.end() + 1]))
        else:
            latex |= _is_latex(match[1])
    return escapes, latex


def _is_latex(escaped: str) -> bool:
    """Whether what follows a backslash is surely a LaTeX command, not a JSON escape."""
    if escaped[0] in "bf":
        return len(escaped) > 1
    if escaped[0] in "nrt":
        return bool(_LATEX.fullmatch(escaped))
    if escaped[0] == "u":
        return not re.fullmatch(r"u[0-9a-fA-F]{4}", escaped)
    return escaped not in ('"', "\\", "/")


def _kept(escape: re.Match[str], escapes: bool, latex: bool, doubles: bool) -> str:
    """The escape as JSON should have it: doubled where the backslash is LaTeX's."""
    word = escape[1]
    if word == "\\" and doubles:  # a writer of raw LaTeX: `\\` before a space ends a row of a matrix
        after = escape.string[escape.end() : escape.end() + 1]
        return "\\\\\\\\" if after.isspace() else escape[0]
    if _is_latex(word) or (word in _LATEX_OR_NEW_LINE and _means_latex(escape, escapes, latex)):
        return "\\" + escape[0]
    return escape[0]


def _means_latex(escape: re.Match[str], escapes: bool, latex: bool) -> bool:
    r"""For `\nu` and the like: LaTeX, unless this writer escapes properly, or a sentence ends before it."""
    if escapes:
        return False
    before = escape.string[max(0, escape.start() - 2) : escape.start()]
    return latex or not (before.endswith("\\n") or before[-1:] in _SENTENCE_END)


def _with_numbers(value: Any, schema: Any) -> Any:
    """The value with numbers written as strings read as numbers, where the schema wants numbers."""
    if not isinstance(schema, Mapping):
        return value
    if isinstance(value, dict):
        inner = schema.get("properties", {})
        return {key: _with_numbers(item, inner.get(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_numbers(item, schema.get("items")) for item in value]
    if isinstance(value, str) and schema.get("type") in ("integer", "number") and _NUMBER.fullmatch(value):
        with contextlib.suppress(ValueError):
            return int(value)  # through a float its last digits would be lost
        number = float(value)
        if not math.isfinite(number):
            return value
        return int(number) if schema["type"] == "integer" and number.is_integer() else number
    return value
