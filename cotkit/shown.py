"""Text as HTML and in tables, and how a record shows itself in a notebook: names and values, the empty ones
left out."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

VERBATIM = "mathjax_ignore tex2jax_ignore"  # a class of HTML: "$5 and $6" in JupyterLab is no mathematics


def mended(value: Any) -> Any:
    """A text with U+FFFD in place of lone surrogates, which no page and no table can hold; else the value."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def mended_frame(
    lines: Iterable[Mapping[str, Any] | Sequence[Any]], columns: Sequence[str] | None = None
) -> pandas.DataFrame:
    """The table of lines that hold texts, ids or names which users and models wrote: each one mended."""
    import pandas

    whole = [
        {name: mended(value) for name, value in line.items()}
        if isinstance(line, Mapping)
        else tuple(map(mended, line))
        for line in lines
    ]
    return pandas.DataFrame(whole, columns=columns)


def escaped(value: Any) -> str:
    """As HTML."""
    return html.escape(mended(str(value)))


class Shown:
    """Gives a class its notebook view. `shown()` says what is in it: by default every field."""

    def shown(self) -> dict[str, Any]:
        return vars(self)

    def _repr_html_(self) -> str:
        lines = "".join(
            "<tr><th scope='row' style='text-align:left;vertical-align:top;white-space:nowrap'>"
            f"{_text(name)}</th>"
            f"<td style='text-align:left;white-space:pre-wrap;max-width:60em'>{_text(value)}</td></tr>"
            for name, value in self.shown().items()
            if value is not None and value != "" and value != {} and value != [] and value != ()
        )
        return f"<div class='{VERBATIM}'><b>{type(self).__name__}</b><table>{lines}</table></div>"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        value = "\n".join(f"{name}: {_plain(item)}" for name, item in value.items())
    elif isinstance(value, (list, tuple)):
        value = "\n".join(map(_plain, value))
    return escaped(_plain(value))


def _plain(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
