"""Every prompt is a Jinja2 file in this folder, or a template text the user gives in its place.

A template is cut into messages by lines `=== system ===`, `=== user ===`, `=== assistant ===`; a text
without such a line is one user message. Values are inserted as they are and never rendered again, so a
problem full of braces, LaTeX or `{{` passes through untouched. A prompt is known by the hash of its source.
"""

from __future__ import annotations

import functools
import hashlib
import pathlib
import re

import jinja2

FOLDER = pathlib.Path(__file__).parent
_CUT = re.compile(r"^=== (system|user|assistant) ===[ \t]*\n", re.MULTILINE)
_RENDERED = re.compile(r"\{[{%#]|\r")  # what Jinja2 does not leave as it is


class Prompt:
    """A template with a name. `messages(**values)` renders it; `hash` identifies its source.

    Raises ValueError (with the prompt's name) when the template is malformed or empty, and
    `jinja2.UndefinedError` when it is rendered without a value it needs.
    """

    def __init__(self, name: str, source: str):
        self.name, self.source = name, source
        self.hash = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        parts = _CUT.split(source)
        roles, texts = ["user", *parts[1::2]], parts[0::2]
        try:
            self._parts = [
                (role, _template(text.strip("\n")))
                for role, text in zip(roles, texts, strict=True)
                if text.strip()
            ]
        except jinja2.TemplateSyntaxError as error:
            raise ValueError(f"prompt {name!r}, line {error.lineno} of a message: {error.message}") from None
        if not self._parts:
            raise ValueError(f"prompt {name!r} is empty")

    def __reduce__(self) -> tuple[type[Prompt], tuple[str, str]]:
        return Prompt, (self.name, self.source)

    def messages(self, **values: object) -> list[dict[str, str]]:
        rendered = [
            (role, part if isinstance(part, str) else part.render(**values).strip("\n"))
            for role, part in self._parts
        ]
        return [{"role": role, "content": text} for role, text in rendered if text.strip()]

    def __repr__(self) -> str:
        return f"Prompt({self.name!r}, hash={self.hash})"

    def _repr_markdown_(self) -> str:
        return f"**prompt `{self.name}`** (hash `{self.hash}`)\n\n```jinja\n{self.source.rstrip()}\n```"


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )


def _template(text: str) -> jinja2.Template | str:
    """A text that takes no values needs no rendering."""
    if not _RENDERED.search(text):
        return text
    template = _environment().from_string(text)
    template.globals = dict(template.globals)  # a ChainMap takes as long as all of the rendering
    return template


@functools.cache
def load(name: str) -> Prompt:
    """The shipped prompt `name`, for instance `load("reasoning")`."""
    path = FOLDER / f"{name}.j2"
    if not path.is_file():
        known = sorted(p.stem for p in FOLDER.glob("*.j2"))
        raise ValueError(f"unknown prompt {name!r}; known: {', '.join(known)}")
    return Prompt(name, path.read_text(encoding="utf-8"))


def load_all(overrides: dict[str, str] | None, *names: str) -> dict[str, Prompt]:
    """The named prompts, each the shipped one or the user's template from `overrides` {name: text}."""
    overrides = overrides or {}
    if unknown := sorted(set(overrides) - set(names)):
        raise ValueError(f"unknown prompt(s) {unknown}; this step uses: {', '.join(names)}")
    return {name: Prompt(name, overrides[name]) if name in overrides else load(name) for name in names}
