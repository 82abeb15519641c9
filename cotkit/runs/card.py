"""The dataset card: what is in exported files and how it was made, from recorded facts alone.

A card is a README.md with the Hugging Face hub's YAML header. Nothing in it is a guess: models, endpoints,
prompts, parameters and verdicts are counted from the traces that were written (`Provenance`), the counts
come from the run's report, and a licence is stated only when the user gave one or the problems carry it.
The card ends with a comment that holds its facts, so that a second export into the folder joins it.
"""

from __future__ import annotations

import datetime
import glob
import json
import os
import pathlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from cotkit import __version__
from cotkit.keys import is_secret_name, looks_like_a_key
from cotkit.records import Candidate, Row
from cotkit.runs.digests import DigestMap
from cotkit.runs.journal import dump_json
from cotkit.runs.shapes import COLUMNS, PAIR_COLUMNS
from cotkit.whole import whole_file

_MARK = re.compile(r"<!-- cotkit-card (\{.*\}) -->\s*$", re.DOTALL)
_PARAMETERS = (
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "reasoning_effort",
)
# Licence identifiers of the Hugging Face hub that data sets use; any other is "other" with a name.
_HUB_LICENCES = {
    "apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "cc0-1.0", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0",
    "cc-by-sa-4.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "cc-by-nc-nd-4.0", "gpl-3.0",
    "lgpl-3.0",    "agpl-3.0", "odc-by", "odbl", "pddl", "unlicense", "cdla-permissive-2.0",
}  # fmt: skip


class Provenance:
    """What is recorded about the traces of a file, counted; it holds no text of theirs and no key."""

    def __init__(self) -> None:
        self._models, self._prompts, self._parameters, self._verdicts, self._judges = (
            Counter() for _ in range(5)
        )
        self._flags: Counter[str] = Counter()
        self._problems = DigestMap()  # their ids
        self._licences: Counter[str] = Counter()

    def add(self, row: Row, candidate: Candidate) -> None:
        call, judgement = candidate.call, candidate.judgement
        self._models[(call.get("model"), call.get("served_model"), call.get("endpoint"))] += 1
        self._prompts[(candidate.prompt.get("name"), candidate.prompt.get("hash"))] += 1
        said = {name: call.get("params", {}).get(name) for name in _PARAMETERS}
        self._parameters[dump_json({k: v for k, v in said.items() if v is not None}).decode()] += 1
        self._verdicts[(candidate.verdict.method, candidate.verdict.correct)] += 1
        if judgement:
            self._judges[(judgement.judge, judgement.saw_reference)] += 1
        self._flags.update(
            traces=1,
            rationalized=candidate.rationalized,
            saw_reference=candidate.saw_reference,
            refined=candidate.stage == "refine",
        )
        if row.id not in self._problems:
            self._problems[row.id] = 0
            self._licences[row.licence or "not stated"] += 1

    def facts(self) -> dict[str, Any]:
        parameters = self._parameters.most_common()
        return {
            "models": _counted(self._models, "asked", "served", "endpoint"),
            "prompts": _counted(self._prompts, "name", "hash"),
            "parameters": [{"parameters": json.loads(text), "traces": n} for text, n in parameters],
            "verdicts": _counted(self._verdicts, "method", "correct"),
            "judges": _counted(self._judges, "judge", "saw_reference"),
            "licences": dict(self._licences.most_common()),
            "problems": len(self._problems),
            **{name: self._flags[name] for name in ("traces", "refined", "rationalized", "saw_reference")},
        }


def _counted(counter: Counter, *names: str) -> list[dict[str, Any]]:
    return [{**dict(zip(names, key, strict=True)), "traces": n} for key, n in counter.most_common()]


def card_beside(
    target: pathlib.Path, facts: dict[str, Any], export: dict[str, Any]
) -> tuple[pathlib.Path, str | None]:
    """Write the card of an exported file and say where, with a note for the user if there is one.

    README.md of its folder, where there is none or one of ours about the same run (which it then joins);
    beside a README.md of anyone else, or of another run, `<file>.card.md`.
    """
    readme, run = target.with_name("README.md"), facts.get("report", {}).get("name")
    others, note = [], None
    if readme.is_file():
        known = _facts_of(readme)
        if known is None or known.get("run") != run:
            note = f"{readme} is another card or page, so this card is {target.stem}.card.md"
            readme = target.with_name(f"{target.stem}.card.md")
        else:
            names = {target.name}
            for other in known["exports"]:
                name = pathlib.Path(other["path"]).name
                if name not in names and (target.parent / name).is_file():
                    others.append(other)
            facts = {**facts, "licence": facts.get("licence") or known.get("licence")}
    return write_card({**facts, "exports": [*others, export]}, readme), note


def outdate_cards(target: pathlib.Path) -> None:
    """A file is written anew: the cards of ours that describe the old one say so, until they are written anew
    too, and no further export takes that description over."""
    for card in (target.with_name("README.md"), target.with_name(f"{target.stem}.card.md")):
        known = _facts_of(card) if card.is_file() else None
        left = [e for e in known["exports"] if pathlib.Path(e["path"]).name != target.name] if known else []
        if known is None or len(left) == len(known["exports"]):
            continue
        text = _MARK.sub("", card.read_text(encoding="utf-8", errors="replace")).rstrip()
        note = (
            f"> `{target.name}` was written anew after this card. What it says of that file is about an "
            "older one, unless the sha256 is the same."
        )
        text = text.replace("\n# ", f"\n{note}\n\n# ", 1)
        _write(card, text, {**known, "exports": left})


def _write(card: pathlib.Path, text: str, kept: dict[str, Any]) -> None:
    """The text, and in a comment what a further export needs of it."""
    mark = dump_json(kept).decode().replace("--", "-\\u002d")  # nothing may end the comment
    with whole_file(card) as temporary:
        temporary.write_bytes(f"{text}\n\n<!-- cotkit-card {mark} -->\n".encode("utf-8", "replace"))


def _facts_of(card: pathlib.Path) -> dict[str, Any] | None:
    """None = it is no card of ours, or somebody changed what stands there."""
    found = _MARK.search(card.read_text(encoding="utf-8", errors="replace"))
    try:
        facts = json.loads(found[1]) if found else {}
    except ValueError:
        return None
    return facts if isinstance(facts.get("exports"), list) else None


def write_card(run_facts: dict[str, Any], path: str | os.PathLike[str]) -> pathlib.Path:
    """Write the card of one or several exported files; `path` is the file, or its folder (README.md).

    `run_facts`:
      exports   [ExportReport.to_dict(), ...], at least one: files, counts, drops, provenance
      report    report.json of the run: name, given, kept, drops, written (optional)
      config    config.json's "config": shown as it is, key by key (optional)
      licence   the data set's licence if the user gave one; an SPDX identifier or any name (optional)
    """
    if not run_facts.get("exports"):
        raise ValueError("a card needs run_facts['exports']: a list of ExportReport.to_dict()")
    if unknown := sorted(set(run_facts) - {"exports", "report", "config", "licence"}):
        raise ValueError(f"unknown facts {unknown}; known: config, exports, licence, report")
    path = pathlib.Path(path)
    path = path / "README.md" if path.is_dir() else path
    exports, report = run_facts["exports"], run_facts.get("report") or {}
    licence, problems = run_facts.get("licence"), _licences(exports)
    made = str(report.get("written") or datetime.datetime.now(datetime.UTC).isoformat())[:10]
    title = report.get("name") or pathlib.Path(exports[0]["path"]).stem
    sections = [
        _header(title, exports, licence, problems),
        f"# {_plain(title)}\n\nChain-of-thought data written by language models and made with cotkit "
        f"{__version__}, {made}.",
        _files(exports),
        _funnel(report),
        _making(exports),
        _licence_text(licence, problems),
        _column_text(exports),
        _limits(exports),
        _configuration(run_facts.get("config") or {}),
    ]
    named = [
        {**e, "path": pathlib.Path(e["path"]).name, "beside": []} for e in exports
    ]  # no folders of the maker
    kept = {"run": report.get("name"), "licence": licence, "exports": named}
    _write(path, "\n\n".join(section for section in sections if section), kept)
    return path


def _licences(exports: list[dict[str, Any]]) -> Counter[str]:
    """Over the files, the most problems that state each licence (files of a run share their problems)."""
    most: Counter[str] = Counter()
    for export in exports:
        most |= Counter(export["provenance"].get("licences", {}))
    return most


def _header(title: str, exports: list[dict], licence: str | None, problems: Counter[str]) -> str:
    import yaml

    header: dict[str, Any] = {"pretty_name": title}
    if stated := licence or (next(iter(problems)) if len(problems) == 1 else None):
        if stated.lower() in _HUB_LICENCES:
            header["license"] = stated.lower()
        elif stated != "not stated":
            header |= {"license": "other", "license_name": stated}
    elif problems:
        header |= {"license": "other", "license_name": _mixed(problems)}
    header["task_categories"] = ["text-generation"]
    header["tags"] = ["chain-of-thought", "reasoning", "synthetic"]
    header["size_categories"] = [_size(max(export["rows"] for export in exports))]
    names = _config_names([pathlib.Path(export["path"]).name for export in exports])
    header["configs"] = [
        {"config_name": config, "data_files": glob.escape(name)} for name, config in names.items()
    ]
    if typed := {names[pathlib.Path(e["path"]).name]: e["features"] for e in exports if e.get("features")}:
        header["dataset_info"] = [{"config_name": name, "features": typed[name]} for name in typed]
    return f"---\n{yaml.safe_dump(header, sort_keys=False, allow_unicode=True)}---"


def _config_names(files: list[str]) -> dict[str, str]:
    """{file: the name `load_dataset` knows it by}: its stem where no other has the same, else all of it; with
    no sign that `datasets` refuses in a name."""
    plain = {file: re.sub(r"[<>:/\\|?*]", "-", pathlib.Path(file).stem) for file in files}
    stems = Counter(plain.values())
    return {
        file: stem if stems[stem] == 1 else stem + pathlib.Path(file).suffix.replace(".", "-")
        for file, stem in plain.items()
    }


def _size(rows: int) -> str:
    """The hub's size category."""
    steps = ["1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T"]
    step = sum(rows >= 10**power for power in range(3, 13))
    if step in (0, len(steps)):
        return f"n<{steps[0]}" if step == 0 else f"n>{steps[-1]}"
    return f"{steps[step - 1]}<n<{steps[step]}"


def _mixed(problems: Counter[str]) -> str:
    return "mixed: " + ", ".join(f"{name} ({n})" for name, n in problems.most_common())


def _plain(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else dump_json(value).decode()
    text = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return text if len(text) <= 200 else text[:197] + "..."


def _table(*rows: Iterable[Any]) -> str:
    """A Markdown table; the first row is its head."""
    lines = ["| " + " | ".join(_plain(cell) for cell in row) + " |" for row in rows]
    lines.insert(1, "|" + " --- |" * lines[0].count(" | ") + " --- |")
    return "\n".join(lines)


def _files(exports: list[dict[str, Any]]) -> str:
    head = ("file", "format", "rows", "given", "counted in", "policy", "reasoning", "sha256")
    names = [pathlib.Path(e["path"]).name for e in exports]
    keys = ("format", "rows", "given", "unit", "policy", "reasoning", "sha256")
    rows = [(name, *(e[key] for key in keys)) for name, e in zip(names, exports, strict=True)]
    text = "## Files\n\n" + _table(head, *rows)
    reasons = sorted({reason for e in exports for reason in e["drops"]})
    if reasons:
        lost = [(reason, *(e["drops"].get(reason, 0) for e in exports)) for reason in reasons]
        text += "\n\nWhat was given and not written, and why:\n\n" + _table(("reason", *names), *lost)
    return text


def _funnel(report: dict[str, Any]) -> str:
    if "given" not in report:
        return ""
    rows = [("given", report["given"]), ("kept", report.get("kept")), *report.get("drops", {}).items()]
    unit = report.get("unit", "problems")
    text = f"## The run\n\nGiven, kept and dropped ({unit}):\n\n" + _table(("", unit), *rows)
    return (
        f"{text}\n\nThe run was stopped early: {_plain(report['stopped'])}."
        if report.get("stopped")
        else text
    )


def _making(exports: list[dict[str, Any]]) -> str:
    """The provenance of each file."""
    parts = []
    for export in exports:
        facts = export["provenance"]
        tables = [
            _facts_table("Models", facts.get("models")),
            _facts_table("Sampling parameters", facts.get("parameters")),
            _facts_table("Prompts (name, hash of the source)", facts.get("prompts")),
            _facts_table(
                "Verification by program (correct: true, false, empty = undecided)", facts.get("verdicts")
            ),
            _facts_table("Judges", facts.get("judges")),
        ]
        body = "\n\n".join(table for table in tables if table)
        if body:
            parts.append(f"### {pathlib.Path(export['path']).name}\n\n{body}")
    return "## How it was made\n\n" + "\n\n".join(parts) if parts else ""


def _facts_table(title: str, rows: list[dict[str, Any]] | None) -> str:
    return f"{title}:\n\n" + _table(rows[0], *(row.values() for row in rows)) if rows else ""


def _licence_text(licence: str | None, problems: Counter[str]) -> str:
    stated = _mixed(problems) if len(problems) > 1 else next(iter(problems), "not stated")
    given = f"Licence of the data set, given by its maker: {licence}." if licence else "No licence was given."
    return (
        f"## Licence\n\n{_plain(given)} Licence of the problems, as they state it: {_plain(stated)}. The "
        "terms of the models that wrote the traces may apply as well."
    )


_MESSAGES, _ONE_REPLY = "list of {role, content}", "list with one assistant message"
_FIELDS = {  # the training data itself
    "messages": (_MESSAGES, "the conversation, the trace as its last turn"),
    "conversations": ("list of {from, value}", "the conversation"),
    "prompt": (f"{_MESSAGES}, or string", "the problem"),
    "completion": (_ONE_REPLY, "the trace"),
    "chosen": (f"{_ONE_REPLY}, message or string", "the better trace"),
    "rejected": (f"{_ONE_REPLY}, message or string", "the worse trace"),
    "label": ("bool", "whether the trace is a good one"),
    "instruction": ("string", "the problem"),
    "input": ("string, or {messages}", "the problem; empty in Alpaca rows"),
    "output": ("string", "the trace"),
    "preferred_output": (_ONE_REPLY, "the better trace"),
    "non_preferred_output": (_ONE_REPLY, "the worse trace"),
    "system": ("string", "the system message"),
    "solution": ("string", "the gold answer, as given"),
    "final_trace": ("string", "the trace that was selected"),
    "agent_evaluate_success": ("bool", "accepted; null = no judge scored it"),
    "boxed_answer_success": ("bool", "a program found the answer right; false also where undecided"),
    "improvement_history": ("list of {iteration, trace, evaluation}", "one trace an iteration"),
}


def _column_text(exports: list[dict[str, Any]]) -> str:
    known = {**_FIELDS, **PAIR_COLUMNS, **COLUMNS}
    names = list(dict.fromkeys(name for export in exports for name in export["columns"]))
    rows = [(name, *known.get(name, ("", ""))) for name in names]
    return "## Columns\n\n" + _table(("column", "type", "meaning"), *rows)


def _limits(exports: list[dict[str, Any]]) -> str:
    lines = [
        "A right answer does not prove that the reasoning before it is right.",
        "A judge's scores are a model's opinion; where a program decided, its verdict goes first.",
        "No check against evaluation sets (decontamination) is recorded here.",
    ]
    for export in exports:
        facts, name = export["provenance"], pathlib.Path(export["path"]).name
        total = facts.get("traces", 0)
        undecided = sum(v["traces"] for v in facts.get("verdicts", []) if v["correct"] is None)
        for count, what in (
            (undecided, "have no verdict: no program could decide"),
            (facts.get("rationalized"), "were written with the answer as a hint (STaR rationalization)"),
            (facts.get("saw_reference"), "come from a model, or a judge's feedback, that saw the reference"),
        ):
            if count:
                lines.append(f"`{name}`: {count} of {total} traces {what}.")
        lines += [f"`{name}`: {_plain(warning)}." for warning in export["warnings"]]
    return "## Limits\n\n" + "\n".join(f"- {line}" for line in lines)


def _configuration(config: dict[str, Any]) -> str:
    rows = [(key, value) for key, value in _flatten(config) if value is not None]
    return "## Configuration of the run\n\n" + _table(("key", "value"), *rows) if rows else ""


def _flatten(value: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, inner in value.items():
        if is_secret_name(str(key)) or (isinstance(inner, str) and looks_like_a_key(inner)):
            continue
        if isinstance(inner, dict) and inner:
            yield from _flatten(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner
