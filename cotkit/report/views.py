"""The HTML of a report's parts. Pure functions of records and texts; every text is escaped here.

The parts carry their own small style sheet (`with_style`), so that they look right in JupyterLab, light or
dark; the report page strips it and brings the same rules once.
"""

from __future__ import annotations

import base64
import functools
import importlib.resources
import math
import re
import string
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from cotkit.shown import VERBATIM
from cotkit.shown import escaped as escape

_CHECKS = {True: ("good", "✓", "holds"), False: ("bad", "✗", "fails"), None: ("unsure", "?", "undecided")}


@functools.cache
def template(name: str) -> str:
    """The text of a file in cotkit/templates."""
    return importlib.resources.files("cotkit").joinpath("templates", name).read_text(encoding="utf-8")


def fill(name: str, **values: Any) -> str:
    """A page: its Jinja template with `values`, everything escaped that is not marked safe there."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {
        "bar": range_bar, "duration": duration, "notes": notes, "number": number,
        "parameter": parameter, "when": when,
    }  # fmt: skip
    environment.globals |= {"stylesheet": lambda *names: "\n".join(map(template, names))}
    return environment.from_string(template(name)).render(values)


@functools.cache
def style() -> str:
    """The parts' style as it stands in a notebook's output: the theme's colours, then the rules."""
    return f"<style>{template('notebook.css')}{template('parts.css')}</style>"


def with_style(content: str) -> str:
    return f'{style()}<div class="ck {VERBATIM}">{content}</div>'


def number(value: Any, unit: str | None = None) -> str:
    """A value as a reader wants it: "73.5" of 0.735 in %, "12,800", "0.042", "n/a" for what is not known."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "n/a"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return str(value)
    if unit == "%":
        return f"{100 * value:.1f}".removesuffix(".0")
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-3 else f"{value:.2e}"


def duration(seconds: float | None) -> str:
    """`4.2 s`, `42 s`, `3 min 5 s`, `2 h 10 min`."""
    if seconds is None:
        return ""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def when(timestamp: str) -> str:
    """`2026-11-29T20:13:05+00:00` -> `2026-11-29 20:13`."""
    return timestamp[:16].replace("T", " ")


def interval_words(metric: Mapping[str, Any]) -> str:
    if not metric["interval"] or None in metric["interval"]:
        return ""
    low, high = metric["interval"]
    if metric["unit"] == "%":
        digits = 0 if high - low >= 0.05 else 1  # no more digits than the interval's width bears
        return f"95 % interval {100 * low:.{digits}f} to {100 * high:.{digits}f} %"
    return f"95 % interval {number(low)} to {number(high)}"


def notes(metric: Mapping[str, Any]) -> list[str]:
    """What stands behind a metric's value: ["95 % interval 61 to 83 %", "n = 60"], or less."""
    count = "" if metric["n"] is None else f"n = {number(metric['n'])}"
    return [words for words in (interval_words(metric), count) if words]


def parameter(value: Any) -> str:
    """A parameter's value as Python writes it; text that is not empty stands bare."""
    return value if isinstance(value, str) and value else repr(value)


def metric_line(metric: Mapping[str, Any]) -> str:
    """`accepted: 73.5 % (95 % interval 61 to 83 %, n = 60)`."""
    unit = f" {metric['unit']}" if metric["unit"] else ""
    behind = f" ({', '.join(notes(metric))})" if notes(metric) else ""
    return f"{metric['name']}: {number(metric['value'], metric['unit'])}{unit}{behind}"


def cards(metrics: Iterable[Mapping[str, Any]]) -> str:
    return f'<div class="ck-cards">{"".join(map(_card, metrics))}</div>'


def _card(metric: Mapping[str, Any]) -> str:
    unit = f' <span class="ck-unit">{escape(metric["unit"])}</span>' if metric["unit"] else ""
    return (
        f'<div class="ck-card"><div class="ck-name">{escape(metric["name"])}</div>'
        f'<div class="ck-value">{escape(number(metric["value"], metric["unit"]))}{unit}</div>'
        f"{range_bar(metric)}"
        + "".join(f'<div class="ck-note">{escape(words)}</div>' for words in notes(metric))
        + (f'<div class="ck-help">{escape(metric["help"])}</div>' if metric["help"] else "")
        + "</div>"
    )


def range_bar(metric: Mapping[str, Any]) -> str:
    """A share on 0..1 drawn as a point with its interval; the numbers stand below it."""
    value, interval = metric["value"], metric["interval"]
    shares = [value, *(interval or [])]
    if metric["unit"] != "%" or not all(isinstance(x, (int, float)) and 0 <= x <= 1 for x in shares):
        return ""
    low, high = interval or (value, value)
    return (
        f'<div class="ck-range" aria-hidden="true"><i style="left:{100 * low:.1f}%;'
        f'width:{100 * (high - low):.1f}%"></i><b style="left:{100 * value:.1f}%"></b></div>'
    )


class Sentence:
    """A finding with its values set in: `plain` as text, `html` escaped and with the values in bold."""

    def __init__(self, text: str, values: Mapping[str, Any]):
        self.plain = text.format(**values) if values else text
        marked = _MARKING.format(text, **values) if values else text
        self.html = escape(marked).replace("\x02", "<b>").replace("\x03", "</b>")


class _Marking(string.Formatter):
    def format_field(self, value: Any, spec: str) -> str:
        return f"\x02{format(value, spec)}\x03"


_MARKING = _Marking()


def finding(sentence: Sentence) -> str:
    return f'<p class="ck-finding"><span class="ck-label">Finding</span> {sentence.html}</p>'


def check_line(text: str, ok: bool | None) -> str:
    _, mark, word = _CHECKS[ok]
    return f"{mark} {word}: {text}"


def check(text: str, ok: bool | None) -> str:
    tone, mark, word = _CHECKS[ok]
    return (
        f'<p class="ck-check ck-{tone}"><span class="ck-mark" aria-hidden="true">{mark}</span> '
        f'<span class="ck-label">{word}</span> {escape(text)}</p>'
    )


def file_line(path: str, caption: str, size: int) -> str:
    return (
        f'<p class="ck-file"><code>{escape(path)}</code> {escape(caption)} <span>{file_size(size)}</span></p>'
    )


def file_size(size: float) -> str:
    """`812 B`, `4.1 kB`, `2.0 MB`."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def figure(png: bytes, caption: str, scale: int) -> str:
    shown = picture(png, caption, scale)
    return f'<figure class="ck-figure">{shown}<figcaption>{escape(caption)}</figcaption></figure>'


def picture(png: bytes, described: str, scale: int) -> str:
    width = struct.unpack(">I", png[16:20])[0] // scale  # PNG: IHDR is always first
    data = base64.b64encode(png).decode()
    return f'<img alt="{escape(described)}" width="{width}" src="data:image/png;base64,{data}">'


def table(frame: Any, caption: str = "", max_rows: int = 100) -> str:
    """A pandas DataFrame; its index is shown unless it merely counts. Numbers stand to the right."""
    import pandas

    shown = frame.head(max_rows)
    if not isinstance(frame.index, pandas.RangeIndex):
        shown = shown.reset_index()
    numeric = [pandas.api.types.is_numeric_dtype(dtype) and dtype.kind != "b" for dtype in shown.dtypes]
    classes = [' class="ck-number"' if is_number else "" for is_number in numeric]
    head = "".join(
        f'<th scope="col"{css}>{escape(_column(name))}</th>'
        for name, css in zip(shown.columns, classes, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(f"<td{css}>{_cell(value)}</td>" for value, css in zip(row, classes, strict=True))
        + "</tr>"
        for row in shown.itertuples(index=False, name=None)
    )
    left_out = len(frame) - len(shown)
    words = f"{left_out:,} more rows are not shown." if left_out else "" if len(frame) else "There is none."
    note = f'<p class="ck-note">{words}</p>' if words else ""
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    look = "ck-table ck-wide" if len(shown.columns) > 8 else "ck-table"
    return (
        f'<div class="ck-scroll" tabindex="0" role="region" aria-label="{escape(caption or "table")}">'
        f'<table class="{look}">{title}<thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{note}"
    )


def _column(name: Any) -> str:
    return " / ".join(str(part) for part in name) if isinstance(name, tuple) else str(name)


def _cell(value: Any) -> str:
    value = value.tolist() if hasattr(value, "tolist") else value  # numpy's numbers as Python's
    if value is None or str(value) in ("nan", "NaT", "<NA>"):
        return '<span class="ck-none">–</span>'
    return escape(number(value))


def glance(record: Mapping[str, Any]) -> str:
    """What a report comes to: its metrics, findings, checks and files. Empty when it states nothing."""
    parts = [cards(record["metrics"]) if record["metrics"] else ""]
    if record["findings"]:
        items = "".join(f"<li>{escape(entry['text'])}</li>" for entry in record["findings"])
        label = '<span class="ck-label">Findings</span>'
        parts.append(f'<div class="ck-finding ck-findings">{label}<ul>{items}</ul></div>')
    parts += [check(entry["text"], entry["ok"]) for entry in record["checks"]]
    parts += [file_line(entry["path"], entry["caption"], entry["bytes"]) for entry in record["files"]]
    return "".join(parts)


def summary(record: Mapping[str, Any]) -> str:
    """The card that ends a notebook."""
    failed = sum(check["ok"] is False for check in record["checks"])
    counts = [
        f"{len(record[kind])} {kind if len(record[kind]) != 1 else kind[:-1]}"
        for kind in ("metrics", "findings", "tables", "figures", "checks")
        if record[kind]
    ]
    tone, word = ("bad", f"{failed} checks fail") if failed else ("good", record["status"])
    return (
        f'<section class="ck-summary"><div class="ck-head"><b>{escape(record["title"])}</b>'
        f'<span class="ck-pill ck-{tone}">{escape(word)}</span>'
        f'<span class="ck-remark">{escape(" · ".join(counts))}</span></div>{glance(record)}</section>'
    )


def plain_text(text: str) -> str:
    """Terminal colours and the like taken out."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
