"""Traces and tables for the eye: plain HTML without widgets, the same in JupyterLab and in a report.

`trace_cards` shows each problem with its final trace, what the verifier and the judge said, and every other
candidate folded away. Every word of a model is escaped; colours follow the page, light or dark. `readable`
turns an analysis frame into one a person reads: a share and its interval in one column.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cotkit.analysis.conclusions import outcome
from cotkit.records import Candidate, Judgement, Row
from cotkit.shown import VERBATIM, escaped

if TYPE_CHECKING:
    import pandas

MAX_CHARACTERS = 6000  # of a trace on a card; the run folder has the whole
EXCEPTIONS = {
    "undecided", "rationalized", "no_trace", "unjudged", "judge_failed", "saw_reference", "failed", "cached",
}  # fmt: skip
STYLE = """<style>
.cotkit-trace{--line:var(--ck-line,var(--jp-border-color2,rgba(128,128,128,.35)));
  border:1px solid var(--line);border-left:4px solid #0072B2;border-radius:8px;
  padding:12px 16px;margin:14px 0;max-width:60em;overflow-wrap:anywhere;line-height:1.45;break-inside:avoid}
.cotkit-trace.dropped{border-left-color:#D55E00}
.cotkit-trace .note{opacity:.75;font-size:.88em;font-weight:normal}
.cotkit-trace .said{margin:8px 0;padding:6px 12px;background:rgba(128,128,128,.1);border-radius:4px}
.cotkit-trace .words{white-space:pre-wrap;margin:6px 0}
.cotkit-trace ol{margin:6px 0;padding-left:2em;max-width:none}
.cotkit-trace ol>li{white-space:pre-wrap;margin:3px 0}
.cotkit-trace ol>li::marker{color:rgba(128,128,128,.9)}
.cotkit-trace .facts{display:flex;flex-wrap:wrap;gap:2px 22px;margin:8px 0}
.cotkit-trace .facts>span>span{opacity:.75;margin-right:6px}
.cotkit-trace table{border-collapse:collapse;border:0;margin:6px 0;font-size:.92em}
.cotkit-trace td{padding:2px 14px 2px 0;text-align:left;vertical-align:top;border:0;background:none}
.cotkit-trace td:first-child{white-space:nowrap}
.cotkit-trace .bar{display:inline-block;width:5em;height:.6em;border:1px solid currentColor;opacity:.65}
.cotkit-trace .bar>i{display:block;height:100%;background:currentColor}
.cotkit-trace details{margin:4px 0}
.cotkit-trace details[open]{padding-left:12px;border-left:2px solid var(--line)}
.cotkit-trace summary{cursor:pointer;width:auto;color:inherit;font-size:inherit}
</style>"""


class Html(str):
    """HTML text that a notebook shows as HTML."""

    def _repr_html_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return f"<HTML of {len(self):,} characters>"


def trace_cards(rows: Iterable[Row]) -> Html:
    """A card a problem: final trace in steps, answer and reference, verdict, scores, the other candidates."""
    cards = "".join(map(_card, rows)) or '<p class="note">No problem to show.</p>'
    return Html(f'{STYLE}<div class="{VERBATIM}">{cards}</div>')


def _card(row: Row) -> str:
    tone = "kept" if row.accepted else "dropped"
    kind = f' <span class="note">{escaped(row.type)}</span>' if row.type else ""
    parts = [
        f"<div><b>{escaped(row.id)}</b>{kind}</div><div>{escaped(outcome(row))}</div>",
        f'<div class="said words">{escaped(row.problem)}</div>',
        _errors(row) if row.best is None else _body(row.best, row),
        *(_folded(c, row) for number, c in enumerate(row.candidates) if number != row.final),
    ]
    return f'<section class="cotkit-trace {tone}">{"".join(parts)}</section>'


def _body(c: Candidate, row: Row) -> str:
    """Trace, facts and scores of one candidate."""
    facts = {
        "answer": "none found" if c.answer is None else _short(c.answer),
        "reference": _short(row.reference),
        "verdict": f"{c.verdict.in_words} ({': '.join(filter(None, (c.verdict.method, c.verdict.reason)))})",
        "cut off": "at max_tokens" if c.truncated else None,
        "signs of the hint": ", ".join(c.leaks),
    }
    pairs = "".join(
        f"<span><span>{name}</span>{escaped(value)}</span>" for name, value in facts.items() if value
    )
    told = (
        f'<div class="words"><span class="note">feedback:</span> {escaped(c.feedback)}</div>'
        if c.feedback
        else ""
    )
    return f'{_steps(c)}<div class="facts">{pairs}</div>{_judged(c.judgement)}{told}{_authors(c)}'


def _steps(c: Candidate) -> str:
    thought = ""
    if (c.reasoning or "").strip():
        thought = f"<details><summary>reasoning</summary>{_as_steps(c.reasoning)}</details>"
    return thought + _as_steps(c.text)


def _as_steps(text: str) -> str:
    """Paragraphs as numbered steps (or lines, where there are no paragraphs); code stays as it is."""
    text = text.strip()
    left_out = len(text) - MAX_CHARACTERS
    shown = text[:MAX_CHARACTERS]
    steps = [part for part in shown.split("\n\n") if part.strip()]
    if len(steps) == 1:
        steps = [line for line in shown.split("\n") if line.strip()]
    if len(steps) < 2 or "```" in shown:
        body = f'<div class="words">{escaped(shown)}</div>'
    else:
        body = f"<ol>{''.join(f'<li>{escaped(step.strip())}</li>' for step in steps)}</ol>"
    return body + (
        f'<p class="note">{left_out:,} more characters in the run folder</p>' if left_out > 0 else ""
    )


def _judged(judgement: Judgement | None) -> str:
    if judgement is None:
        return ""
    if judgement.scores is None:
        return f'<p class="note">The judge failed: {escaped(judgement.error or "no reason recorded")}</p>'
    lines = "".join(
        f"<tr><td>{escaped(name)}</td><td>{value:.2g}</td><td>{_bar(value)}</td>"
        f"<td>{escaped(judgement.reasons.get(name, ''))}</td></tr>"
        for name, value in judgement.scores.items()
    )
    return f"<table>{lines}</table>"


def _bar(value: float) -> str:
    width = 100 * min(1.0, max(0.0, value))
    return f'<span class="bar" aria-hidden="true"><i style="width:{width:.0f}%"></i></span>'


def _folded(c: Candidate, row: Row) -> str:
    names = {"draft": f"draft {c.sample_index + 1}", "refine": f"refinement {c.iteration}"}
    answer = "no answer" if c.answer is None else f"answer {_short(c.answer)}"
    score = "" if c.score is None else f", mean score {c.score:.2g}"
    summary = f"{names.get(c.stage, 'with the answer as a hint')}: {c.verdict.in_words}, {answer}{score}"
    return f"<details><summary>{escaped(summary)}</summary>{_body(c, row)}</details>"


def _authors(c: Candidate) -> str:
    """Who wrote the trace and who scored it."""
    model, endpoint = c.call.get("served_model") or c.call.get("model"), c.call.get("endpoint")
    words = [f"written by {model}" + (f" at {endpoint}" if endpoint else "")] if model else []
    if c.judgement and c.judgement.judge:
        saw = ", which saw the reference" if c.judgement.saw_reference else ""
        words.append(f"scored by {c.judgement.judge}{saw}")
    return f'<div class="note">{escaped("; ".join(words))}</div>' if words else ""


def _errors(row: Row) -> str:
    lines = [f"{e.get('stage', '')}: {e.get('kind', '')}: {e.get('message', '')}" for e in row.errors]
    return f'<div class="words note">{escaped(chr(10).join(lines) or "no trace")}</div>'


def _short(text: str | None) -> str | None:
    return (
        text if text is None or len(text) <= 200 else "... " + text[-200:]
    )  # a worked solution ends in its answer


def readable(frame: pandas.DataFrame) -> pandas.DataFrame:
    """The frame as a person reads it: `x`, `x_low`, `x_high` become "0.75 [0.47, 0.91]", counts by reason
    become text, underscores spaces. Columns without a value, and exceptions that did not occur, are left out.
    """
    import pandas

    shown = {}
    for name in frame.columns:
        values = frame[name]
        if name.endswith(("_low", "_high")) and name.rsplit("_", 1)[0] in frame.columns:
            continue
        if f"{name}_low" in frame.columns:
            bounds = zip(values, frame[f"{name}_low"], frame[f"{name}_high"], strict=True)
            values = pandas.Series([_interval(*line, name == "difference") for line in bounds], dtype=object)
        elif any(isinstance(value, dict) for value in values):
            values = values.map(lambda counts: ", ".join(f"{n:,} {reason}" for reason, n in counts.items()))
        elif values.dtype == "Int64" and values.hasnans:
            values = values.astype("float64")  # nan, which every table can show
        absent = not values.notna().any() or (name in EXCEPTIONS and not values.any())
        if frame.empty or not absent:
            shown[name.replace("_", " ")] = values
    return pandas.DataFrame(shown)


def _interval(value: float, low: float, high: float, signed: bool) -> str | None:
    if math.isnan(value):
        return None
    form = "+.2f" if signed else ".2f"
    text = format(value, form) + ("" if math.isnan(low) else f" [{low:{form}}, {high:{form}}]")
    return text.replace(" ", "\N{NO-BREAK SPACE}")
