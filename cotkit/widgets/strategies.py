"""StrategyExplorer: what each strategy made of a seed, and how far its attempts came.

    StrategyExplorer(cotkit.compare_strategies(runs, solver, seeds))

Choose a seed: what came of it stands side by side, one column a strategy. Choose one of these attempts: where
it comes from is shown step by step, with the operator of each rewriting and the words it changed. On the map
the questions of the chosen seed are ringed; each is read by hovering over it, a ringed one also by focus.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from cotkit.analysis import Rate, StrategyComparison, figures
from cotkit.records import Row
from cotkit.widgets.base import Widget, button, named, share_bar, text
from cotkit.widgets.words import word_diff

SHOWN = 4  # attempts of each strategy on a page
WIDTH, HEIGHT, MARGIN = 760, 380, 14  # of the map
MARKS = {  # of figures.look_of, as SVG paths
    "o": "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0",
    "s": "M-4.5,-4.5h9v9h-9z",
    "^": "M0,-6L6,5H-6z",
    "D": "M0,-6L6,0L0,6L-6,0z",
    "v": "M0,6L6,-5H-6z",
    "P": "M-2,-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
    "X": "M-6,-3L-3,-6L0,-3L3,-6L6,-3L3,0L6,3L3,6L0,3L-3,6L-6,3L-3,0z",
}
Attempt = tuple[str, int]  # strategy and number


class StrategyExplorer(Widget):
    """comparison: what `compare_strategies` gives. `seed` is the id of the seed that is looked at, `made`
    {strategy: attempts that came of it, accepted ones first}, `page` where in these (0 = the start), and
    `followed` the attempt whose origin is shown. Raises ValueError when there is neither seed nor attempt.
    """

    def __init__(self, comparison: StrategyComparison):
        self.comparison = comparison
        self.seeds = {seed.id: seed.problem for seed in comparison.seeds}
        self.rows: dict[Attempt, Row] = {
            (name, _origin(row)["attempt"]): row
            for name, rows in comparison.rows.items()
            for row in rows
            if "attempt" in _origin(row)
        }
        for row in self.rows.values():
            for seed in _seed_ids(row):
                self.seeds.setdefault(seed, "(the comparison was not given the text of this seed)")
        if not self.seeds:
            raise ValueError("there is nothing to explore: the comparison has no seed and no attempt")
        self.choose(next(iter(self.seeds)))

    def choose(self, seed: str) -> None:
        """Looks at what was made of this seed, and at the attempt with most steps behind it."""
        if seed not in self.seeds:
            raise ValueError(f"there is no seed {seed!r}; there are: {', '.join(self.seeds)}")
        self.seed, self.page, self.made = seed, 0, {name: [] for name in self.comparison.rows}
        for attempt, row in sorted(self.rows.items(), key=lambda item: not item[1].accepted):
            if seed in _seed_ids(row):
                self.made[attempt[0]].append(attempt)
        self.follow(max(self.asked(), key=lambda attempt: len(self.lineage(attempt)), default=None))

    def follow(self, attempt: Attempt | None) -> None:
        """Shows where an attempt comes from. Raises ValueError when it is none, or has no question."""
        if attempt is not None and (attempt not in self.rows or not self.rows[attempt].problem):
            raise ValueError(f"there is no attempt {attempt!r} that has a question")
        self.followed = attempt
        self.redraw()

    def turn(self, by: int) -> None:
        """The next or an earlier page of attempts; stays at the ends."""
        self.page = min(max(self.page + by, 0), self.pages - 1)
        self.follow(next(iter(self.asked()), None))

    @property
    def pages(self) -> int:
        return max(1, *(-(-len(made) // SHOWN) for made in self.made.values()))

    def shown(self, strategy: str) -> list[Attempt]:
        """The attempts of a strategy on this page."""
        return self.made[strategy][self.page * SHOWN : (self.page + 1) * SHOWN]

    def asked(self) -> list[Attempt]:
        """The attempts on this page, of all strategies, that have a question."""
        return [attempt for name in self.made for attempt in self.shown(name) if self.rows[attempt].problem]

    def lineage(self, attempt: Attempt) -> list[Row]:
        """The attempts that one was rewritten from, oldest first, and itself."""
        numbers = [*_origin(self.rows[attempt]).get("lineage", ()), attempt[1]]
        return [self.rows[attempt[0], number] for number in numbers if (attempt[0], number) in self.rows]

    def parts(self) -> list[str]:
        return [self._side_by_side(), self._steps(), self._map(), self._funnel()]

    def static(self) -> str:
        return "".join(f"<div>{part}</div>" for part in self.parts())

    def _side_by_side(self) -> str:
        columns = []
        for name, made in self.made.items():
            rows = [self.rows[attempt] for attempt in made]
            accepted = Rate.of_flags(None if row.retryable else row.accepted for row in rows)
            problems = "".join(
                f"<p class='ck-words'>{_in_full(self.rows[attempt])}</p>" for attempt in self.shown(name)
            )
            columns.append(
                f"<div><b>{text(name)}</b><div class='ck-quiet'>{accepted.in_words('attempts')} accepted"
                f"</div>{problems}</div>"
            )
        page = f"<div class='ck-quiet'>page {self.page + 1} of {self.pages}</div>" if self.pages > 1 else ""
        return (
            f"<div aria-live='polite'><b>seed {text(self.seed)}</b>: {text(self.seeds[self.seed])}</div>"
            f"<div class='ck-columns'>{''.join(columns)}</div>{page}"
        )

    def _steps(self) -> str:
        if self.followed is None:
            return ""
        first = _seed_ids(self.rows[self.followed])[0]
        before = self.seeds[first]
        steps = [f"<b>seed {text(first)}</b><p class='ck-words'>{text(before)}</p>"]
        for row in self.lineage(self.followed):
            origin = _origin(row)
            how = origin.get("operator") or "written from examples"
            words = word_diff(before, row.problem) if origin.get("operator") else text(row.problem)
            sources = ", ".join([*_seed_ids(row), *(origin.get("parents") or ())])
            steps.append(
                f"<b>{text(how)}</b> <span class='ck-quiet'>{text(origin.get('operator_text') or '')}</span> "
                f"{_outcome(row)}<div class='ck-quiet'>from {text(sources)}</div>"
                f"<p class='ck-words'>{words}</p>"
            )
            before = row.problem
        items = "".join(f"<li>{step}</li>" for step in steps)
        name, number = self.followed
        return f"<b>where {text(name)} {number} comes from</b><ol class='ck-steps'>{items}</ol>"

    def _map(self) -> str:
        frame = self.comparison.map
        if frame.empty:
            return ""
        questions = [
            (seed.problem, (seed.id,)) for seed in self.comparison.seeds
        ]  # as compared_texts has them
        questions += [(row.problem, _seed_ids(row)) for row in self.rows.values() if row.accepted]
        sets = frame["set"].value_counts(sort=False)
        looks = figures.look_of(list(sets.index))
        places = zip(_scaled(frame["x"], WIDTH), _scaled(frame["y"], HEIGHT), strict=True)
        points = [
            _point(f"{name}: {questions[item][0]}", looks[name], place, self.seed in questions[item][1])
            for name, item, place in zip(frame["set"], frame["item"], places, strict=True)
        ]
        legend = " ".join(
            f"<span><svg width='14' height='14' viewBox='-7 -7 14 14' aria-hidden='true'>"
            f"{_mark(looks[name])}</svg> {text(name)} ({count:,})</span>"
            for name, count in sets.items()
        )
        return (
            f"<b>{len(frame):,} questions</b> <span class='ck-quiet'>near = alike "
            f"({text(self.comparison.questions.kernel.name)}); ringed = of seed {text(self.seed)}</span><br>"
            f"<svg class='ck-map' role='group' aria-label='map of questions' width='{WIDTH}' "
            f"viewBox='0 0 {WIDTH} {HEIGHT + 60}'>{''.join(points)}</svg><div class='ck-facts'>{legend}</div>"
        )

    def _funnel(self) -> str:
        head = "".join(f"<th>{text(name)}</th>" for name in self.comparison.rows)
        rows = [
            f"<tr><th scope='row'>{text(step)}</th>{''.join(map(_passed, lines.itertuples()))}</tr>"
            for step, lines in self.comparison.funnel.groupby("step", sort=False)
        ]
        return f"<table class='ck' aria-label='funnel'><tr><th>passed</th>{head}</tr>{''.join(rows)}</table>"

    # The view.

    def build(self) -> list[Any]:
        import ipywidgets as w

        options = named((f"{id}: {textwrap.shorten(words, 70)}", id) for id, words in self.seeds.items())
        wide = {"width": "auto"}
        self._seed = w.Dropdown(options=options, description="seed", tooltip="Seed problem", layout=wide)
        self._attempt = w.Dropdown(
            description="origin of", tooltip="Attempt whose origin is shown", layout=wide
        )
        self.heed(self._seed, self.choose)
        self.heed(self._attempt, self.follow)
        back = button("◀ Previous", lambda: self.turn(-1), tooltip="The attempts before these")
        self._turns = w.HBox([back, button("Next ▶", lambda: self.turn(1), tooltip="Further attempts")])
        beside, *others = self._shown = [w.HTML() for _ in self.parts()]
        return [self._seed, beside, self._turns, self._attempt, *others]

    def draw(self) -> None:
        self._seed.value = self.seed
        self._attempt.options = named((self._named(attempt), attempt) for attempt in self.asked())
        self._attempt.value = self.followed if self.followed in self.asked() else None
        self._turns.layout.display = None if self.pages > 1 else "none"
        for shown, part in zip(self._shown, self.parts(), strict=True):
            shown.value = part

    def _named(self, attempt: Attempt) -> str:
        row = self.rows[attempt]
        operator = _origin(row).get("operator")
        return f"{attempt[0]} {attempt[1]}{f' by {operator}' if operator else ''}: {_outcome(row)}"

    def __repr__(self) -> str:
        made = sum(map(len, self.made.values()))
        return f"StrategyExplorer(seed {self.seed!r}: {made:,} attempts of {len(self.made)} strategies)"


def _origin(row: Row) -> dict[str, Any]:
    return row.metadata.get("synthesis") or {}  # an attempt that ended by a fault of ours has none


def _seed_ids(row: Row) -> Sequence[str]:
    return _origin(row).get("seed_ids", ())


def _outcome(row: Row) -> str:
    return "✓ accepted" if row.accepted else f"✗ {row.drop_reason}"


def _in_full(row: Row) -> str:
    known = f"answer {row.reference}" if row.accepted else row.detail or ""
    return f"{_outcome(row)} <span class='ck-quiet'>{text(known)}</span><br>{text(row.problem)}"


def _passed(line: Any) -> str:
    """A cell of the funnel: how many came to a step, and which share of the attempts."""
    import pandas

    if pandas.isna(line.problems):
        return "<td>not run</td>"
    bar = share_bar(line.share, line.share_low, line.share_high)
    words = f" ({line.share:.0%}, {line.share_low:.0%} to {line.share_high:.0%})" if bar else ""
    return f"<td style='white-space:nowrap'>{bar}{'<br>' if bar else ''}{line.problems:,}{words}</td>"


def _scaled(values: Sequence[float], size: int) -> Iterator[float]:
    low, high = min(values), max(values)
    return (MARGIN + (size - 2 * MARGIN) * (value - low) / ((high - low) or 1) for value in values)


def _mark(look: tuple[str, str]) -> str:
    colour, shape = look
    return f"<path d='{MARKS[shape]}' fill='{colour}' stroke='currentColor' stroke-width='.6'/>"


def _point(words: str, look: tuple[str, str], place: tuple[float, float], ringed: bool) -> str:
    """A question; a ringed one can be focused, and is then written below the map."""
    x, y = place
    focus, below = ("tabindex='0' role='img'", _written(words, x, y)) if ringed else ("", "")
    inside = f"<title>{text(words)}</title>{_mark(look)}{below}"
    return f"<g transform='translate({x:.1f},{y:.1f})' {focus}>{inside}</g>"


def _written(words: str, x: float, y: float) -> str:
    lines = textwrap.wrap(words, 105, max_lines=3, placeholder=" ...")
    places = ((MARGIN - x, HEIGHT + 16 + 17 * number - y, line) for number, line in enumerate(lines))
    spans = "".join(f"<tspan x='{a:.1f}' y='{b:.1f}'>{text(line)}</tspan>" for a, b, line in places)
    return f"<circle class='ck-ring' r='9'/><text>{spans}</text>"
