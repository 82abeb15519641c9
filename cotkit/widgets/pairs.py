"""PairInspector: which of two traces is better, asked blind, and how often the judge agrees.

    PairInspector(run)                       # pairs of a run, by its policy
    PairInspector([{"prompt": ..., "chosen": ..., "rejected": ...}, ...])

Sides are shuffled from the seed and nothing on the screen says which one the judge or the program preferred.
Sayings are written beside the run (or to `path`) at once; `agreement()` gives the share with its interval,
and the screen shows it when all pairs are labelled.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import random
from collections.abc import Mapping, Sequence
from typing import Any

from cotkit.analysis import Rate
from cotkit.paths import file_path
from cotkit.runs import Journal, Run, pair_view, read_lines
from cotkit.widgets.base import Widget, button, mathematics, text

SIDES = ("A", "B", "tie")


class PairInspector(Widget):
    """pairs: a Run, or rows with prompt, chosen and rejected (texts, or lists of messages).

    policy: of a Run's pairs, see `run.export(format="trl_dpo")`. path: where sayings go; default
    `pairs_labels.jsonl` in the run's folder. Raises ValueError when there is no pair, or no path.
    """

    def __init__(
        self,
        pairs: Run | Sequence[Mapping[str, Any]],
        *,
        path: str | os.PathLike[str] | None = None,
        seed: int = 0,
        limit: int | None = None,
        **policy: Any,
    ):
        if isinstance(pairs, Run):
            path = path or pairs.path / "pairs_labels.jsonl"
            pairs = pair_view(pairs.records(), **policy).examples
            pairs = [
                {"prompt": p.row.problem, "chosen": p.candidate.trace, "rejected": p.rejected.trace}
                for p in pairs
            ]
        if path is None:
            raise ValueError("name a file for what is said: path=")
        self.path = file_path(path)
        shuffle = random.Random(seed)
        chosen = [_as_texts(pair) for pair in pairs]
        shuffle.shuffle(chosen)
        self.pairs = chosen[:limit]
        if not self.pairs:
            raise ValueError("there is no pair to look at")
        self._keys = [_key(pair) for pair in self.pairs]
        self._swapped = [shuffle.random() < 0.5 for _ in self.pairs]
        self.said = {r["pair"]: r for r, _ in read_lines(self.path)}
        self.place = next((place for place, key in enumerate(self._keys) if key not in self.said), 0)

    @property
    def sides(self) -> tuple[str, str]:
        """What stands left (A) and right (B)."""
        pair = self.pairs[self.place]
        both = pair["chosen"], pair["rejected"]
        return both[::-1] if self._swapped[self.place] else both

    def say(self, side: str, note: str = "") -> None:
        """`side` is A, B or tie; written at once, then the next pair comes."""
        if side not in SIDES:
            raise ValueError(f"say A, B or tie; got {side!r}")
        agrees = None if side == "tie" else (side == "A") != self._swapped[self.place]
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        key = self._keys[self.place]
        record = {"pair": key, "side": side, "agrees": agrees, "note": note, "at": at}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        journal = Journal(self.path)
        try:
            journal.append(record)
        finally:
            journal.close()
        self.said[key] = record
        self.step(1)

    def step(self, by: int) -> None:
        self.place = min(max(self.place + by, 0), len(self.pairs) - 1)
        self.redraw()

    def agreement(self) -> Rate:
        """How often the person chose what was chosen, ties left out; Wilson interval."""
        return Rate.of_flags(self.said[key]["agrees"] for key in self._keys if key in self.said)

    def progress(self) -> str:
        done = sum(key in self.said for key in self._keys)
        words = f"pair {self.place + 1} of {len(self.pairs)}, {done} labelled"
        if done < len(self.pairs):  # said earlier, it would unblind
            return words
        return f"{words}; you agree with the data in {self.agreement().in_words('pairs')}"

    def static(self) -> str:
        left, right = self.sides
        cell = "<td style='white-space:pre-wrap;width:50%;vertical-align:top;padding:6px'>{}</td>"
        return (
            f"<div class='ck-quiet' aria-live='polite'>{text(self.progress())}</div>"
            f"<div class='ck-words'>{mathematics(self.pairs[self.place]['prompt'])}</div>"
            f"<table class='ck' style='width:100%'><tr><th>A</th><th>B</th></tr>"
            f"<tr>{cell.format(mathematics(left))}{cell.format(mathematics(right))}</tr></table>"
        )

    def build(self) -> list[Any]:
        import ipywidgets as w

        self._shown = w.HTMLMath()
        self._note = w.Text(description="note", placeholder="why (optional)")

        def sayer(side: str) -> Any:
            def say() -> None:
                self.say(side, self._note.value)
                self._note.value = ""

            name = {"A": "A is better", "B": "B is better", "tie": "Cannot tell"}[side]
            return button(name, say, tooltip=f"{name}; saved at once")

        steps = [
            button("◀ Previous", lambda: self.step(-1), tooltip="The pair before this one"),
            button("Next ▶", lambda: self.step(1), tooltip="The pair after this one"),
        ]
        return [self._shown, w.HBox([*map(sayer, SIDES), self._note]), w.HBox(steps)]

    def draw(self) -> None:
        self._shown.value = self.static()

    def __repr__(self) -> str:
        return f"PairInspector({self.progress()})"


def _as_texts(pair: Mapping[str, Any]) -> dict[str, str]:
    if missing := [name for name in ("prompt", "chosen", "rejected") if name not in pair]:
        raise ValueError(f"a pair needs prompt, chosen and rejected; {', '.join(missing)} is missing")
    return {name: _as_text(pair[name]) for name in ("prompt", "chosen", "rejected")}


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    parts = (message.get(name) for message in value for name in ("reasoning_content", "content"))
    return "\n\n".join(str(part) for part in parts if part)


def _key(pair: Mapping[str, str]) -> str:
    whole = "\0".join(pair[name] for name in ("prompt", "chosen", "rejected"))
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:16]
