"""StrategyExplorer: what each strategy made of a seed, and how far its attempts came.

    StrategyExplorer(cotkit.compare_strategies(runs, solver, seeds))

Choose a seed: what came of it stands side by side, one column a strategy. Choose one of these problems: where
it comes from is shown step by step, with the operator of each rewriting and the words it changed. On the map
of questions those of the chosen seed are ringed; a question is read by hovering over it or by focus. Below
stands the funnel.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cotkit.analysis import Rate, StrategyComparison, figures
from cotkit.records import Row
from cotkit.widgets.base import STYLE, Widget, button, share_bar, text
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
MAP_STYLE = """<style>
.ck-map{max-width:100%;height:auto;border:1px solid rgba(128,128,128,.4)}
.ck-map g:focus{outline:none}.ck-map .ck-ring{fill:none;stroke:currentColor;stroke-width:1.5}
.ck-map g:focus .ck-ring{stroke-width:4}
.ck-map text{display:none;fill:currentColor;font-size:13px}
.ck-map g:hover text,.ck-map g:focus text{display:block}
.ck-columns{display:flex;flex-wrap:wrap;gap:8px 24px}.ck-columns>div{flex:1 1 14em;min-width:0}
.ck-columns p,.ck-steps p{margin:2px 0 8px;white-space:pre-wrap;overflow-wrap:anywhere}
</style>"""


class StrategyExplorer(Widget):
    """comparison: what `compare_strategies` gives. `seed` is the id of the seed that is looked at, `page` which
    of its attempts (0 = the first), `followed` the one whose origin is shown as (strategy, attempt).

    Raises ValueError when there is neither a seed nor an attempt.
    """

    _drawing = False

    def __init__(self, comparison: StrategyComparison):
        self.comparison = comparison
        self.seeds = {seed.id: seed.problem for seed in comparison.seeds}
        self.attempts = {
            (name, _origin(row)["attempt"]): row for name, rows in comparison.rows.items() for row in rows
        }
        for row in self.attempts.values():
            for id in _origin(row).get("seed_ids", ()):
                self.seeds.setdefault(id, "(the text of this seed was not given to the comparison)")
        if not self.seeds:
            raise ValueError("there is nothing to explore: the comparison has no seed and no attempt")
        self.choose(next(iter(self.seeds)))

    def choose(self, seed: str) -> None:
        """Looks at what was made of this seed."""
        if seed not in self.seeds:
            raise ValueError(f"there is no seed {seed!r}; there are: {', '.join(self.seeds)}")
        self.seed, self.page = seed, 0
        self.made: dict[str, list[tuple[str, int]]] = {name: [] for name in self.comparison.rows}
        for key, row in self.attempts.items():
            if seed in _origin(row).get("seed_ids", ()):
                self.made[key[0]].append(key)
        for keys in self.made.values():
            keys.sort(key=lambda key: not self.attempts[key].accepted)  # accepted ones first
        longest = max(self.shown(), key=lambda key: len(self.lineage(key)), default=None)
        self.follow(longest)

    def follow(self, attempt: tuple[str, int] | None) -> None:
        """Shows where an attempt, (strategy, number), comes from."""
        if attempt is not None and (attempt not in self.attempts or not self.attempts[attempt].problem):
            raise ValueError(f"there is no attempt {attempt!r} that has a question")
        self.followed = attempt
        self._draw()

    def turn(self, by: int) -> None:
        """The next or an earlier page of attempts; stays at the ends."""
        self.page = min(max(self.page + by, 0), self.pages - 1)
        self.follow(next(iter(self.shown()), None))

    @property
    def pages(self) -> int:
        return max(1, *(-(-len(keys) // SHOWN) for keys in self.made.values()))

    def shown(self, strategy: str | None = None) -> list[tuple[str, int]]:
        """The attempts on this page that have a question, of one strategy or of all."""
        start = self.page * SHOWN
        names = self.made if strategy is None else [strategy]
        keys = [key for name in names for key in self.made[name][start : start + SHOWN]]
        return keys if strategy else [key for key in keys if self.attempts[key].problem]

    def lineage(self, attempt: tuple[str, int]) -> list[Row]:
        """The attempts that one was rewritten from, oldest first, and itself."""
        name, row = attempt[0], self.attempts[attempt]
        before = (self.attempts.get((name, number)) for number in _origin(row).get("lineage", ()))
        return [*(one for one in before if one is not None), row]

    def static(self) -> str:
        parts = (self._side_by_side(), self._steps(), self._map(), self._funnel())
        return MAP_STYLE + "".join(f"<div>{part}</div>" for part in parts)

    def _side_by_side(self) -> str:
        columns = []
        for name, keys in self.made.items():
            rows = [self.attempts[key] for key in keys]
            accepted = Rate.of_flags(None if row.retryable else row.accepted for row in rows)
            problems = "".join(f"<p>{_said(self.attempts[key])}</p>" for key in self.shown(name))
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
        first = _origin(self.attempts[self.followed])["seed_ids"][0]
        steps = [f"<b>seed {text(first)}</b><p>{text(self.seeds[first])}</p>"]
        before = self.seeds[first]
        for row in self.lineage(self.followed):
            origin = _origin(row)
            if operator := origin.get("operator"):
                how, words = text(operator), word_diff(before, row.problem)
                why = f" <span class='ck-quiet'>{text(origin.get('operator_text') or '')}</span>"
            else:
                how, words, why = "written from examples", text(row.problem), ""
            others = [*origin["seed_ids"], *(origin.get("parents") or ())]
            others = f"<div class='ck-quiet'>from {text(', '.join(others))}</div>"
            steps.append(f"<b>{how}</b>{why} {_outcome(row)}{others}<p>{words}</p>")
            before = row.problem
        items = "".join(f"<li>{step}</li>" for step in steps)
        strategy, number = self.followed
        return f"<b>where {text(strategy)} {number} comes from</b><ol class='ck-steps'>{items}</ol>"

    def _map(self) -> str:
        frame = self.comparison.map
        if frame.empty:
            return ""
        asked = [(seed.problem, [seed.id]) for seed in self.comparison.seeds] + [
            (row.problem, _origin(row).get("seed_ids", ())) for row in self.attempts.values() if row.accepted
        ]  # in the order of analysis.compared_texts
        sets = list(dict.fromkeys(frame["set"]))
        looks = figures.look_of(sets)
        xs, ys = (_scaled(frame[axis], size) for axis, size in (("x", WIDTH), ("y", HEIGHT)))
        points = [
            _point(name, asked[item][0], looks[name], x, y, self.seed in asked[item][1])
            for name, item, x, y in zip(frame["set"], frame["item"], xs, ys, strict=True)
        ]
        counts = frame["set"].value_counts()
        legend = " ".join(
            f"<span><svg width='14' height='14' viewBox='-7 -7 14 14' aria-hidden='true'>"
            f"{_mark(looks[name])}</svg> {text(name)} ({counts[name]:,})</span>"
            for name in sets
        )
        return (
            f"<b>{len(frame):,} questions</b> <span class='ck-quiet'>near = alike "
            f"({text(self.comparison.questions.kernel.name)}); ringed = of seed {text(self.seed)}</span><br>"
            f"<svg class='ck-map' role='group' aria-label='map of questions' width='{WIDTH}' "
            f"viewBox='0 0 {WIDTH} {HEIGHT + 60}'>{''.join(points)}</svg><div class='ck-facts'>{legend}</div>"
        )

    def _funnel(self) -> str:
        frame = self.comparison.funnel
        head = "".join(f"<th>{text(name)}</th>" for name in self.comparison.rows)
        rows = []
        for step, lines in frame.groupby("step", sort=False):
            cells = "".join(f"<td>{_passed(line)}</td>" for line in lines.itertuples())
            rows.append(f"<tr><th scope='row'>{text(step)}</th>{cells}</tr>")
        return f"<table class='ck' aria-label='funnel'><tr><th>passed</th>{head}</tr>{''.join(rows)}</table>"

    # The view.

    def build(self) -> Any:
        import ipywidgets as w

        options = [(f"{id}: {textwrap.shorten(words, 70)}", id) for id, words in self.seeds.items()]
        wide = {"width": "auto"}
        self._seed = w.Dropdown(options=options, description="seed", tooltip="Seed problem", layout=wide)
        self._seed.observe(lambda change: self._asked(self.choose, change["new"]), "value")
        self._attempt = w.Dropdown(
            description="origin of", tooltip="Attempt whose origin is shown", layout=wide
        )
        self._attempt.observe(lambda change: self._asked(self.follow, change["new"]), "value")
        pages = [
            button("◀ Previous", lambda: self.turn(-1), tooltip="The attempts before these"),
            button("Next ▶", lambda: self.turn(1), tooltip="Further attempts"),
        ]
        self._shown = [w.HTML() for _ in range(4)]
        beside, steps, map_, funnel = self._shown
        self._pages = w.HBox(pages)
        view = w.VBox([self._seed, beside, self._pages, self._attempt, steps, map_, funnel])
        self._draw()
        return view

    def _asked(self, action: Callable[[Any], None], value: Any) -> None:
        """What a person chose; not what `_draw` sets while it makes the controls follow."""
        if not self._drawing:
            action(value)

    def _draw(self) -> None:
        if not hasattr(self, "_pages"):
            return
        self._drawing = True
        self._seed.value = self.seed
        self._attempt.options = [(self._named(key), key) for key in self.shown()]
        self._attempt.value = self.followed if self.followed in self.shown() else None
        self._drawing = False
        self._pages.layout.display = None if self.pages > 1 else "none"
        parts = (self._side_by_side(), self._steps(), self._map(), self._funnel())
        for shown, part in zip(self._shown, parts, strict=True):
            shown.value = f"{STYLE}{MAP_STYLE}{part}"

    def _named(self, key: tuple[str, int]) -> str:
        row = self.attempts[key]
        operator = _origin(row).get("operator")
        how = f" by {operator}" if operator else ""
        return f"{key[0]} {key[1]}{how}: {'✓ accepted' if row.accepted else f'✗ {row.drop_reason}'}"

    def __repr__(self) -> str:
        made = sum(map(len, self.made.values()))
        return f"StrategyExplorer(seed {self.seed!r}: {made:,} attempts of {len(self.made)} strategies)"


def _origin(row: Row) -> dict[str, Any]:
    return row.metadata["synthesis"]


def _outcome(row: Row) -> str:
    return "✓ accepted" if row.accepted else f"✗ {text(row.drop_reason)}"


def _said(row: Row) -> str:
    answer = f" <span class='ck-quiet'>answer {text(row.reference)}</span>" if row.reference else ""
    detail = "" if row.accepted else f" <span class='ck-quiet'>{text(row.detail or '')}</span>"
    return f"{_outcome(row)}{answer}{detail}<br>{text(row.problem)}"


def _passed(line: Any) -> str:
    """A cell of the funnel: how many came to a step, and which share of the attempts."""
    bar = share_bar(line.share, line.share_low, line.share_high)
    words = f" ({line.share:.0%}, {line.share_low:.0%} to {line.share_high:.0%})" if bar else ""
    return f"{bar} {line.problems:,}{words}"


def _scaled(values: Sequence[float], size: int) -> Iterator[float]:
    low, high = min(values), max(values)
    return (MARGIN + (size - 2 * MARGIN) * (value - low) / ((high - low) or 1) for value in values)


def _mark(look: tuple[str, str]) -> str:
    colour, shape = look
    return f"<path d='{MARKS[shape]}' fill='{colour}' stroke='currentColor' stroke-width='.6'/>"


def _point(name: str, words: str, look: tuple[str, str], x: float, y: float, ringed: bool) -> str:
    """A question; one that is ringed can be focused, and is then written below the map."""
    place = f"transform='translate({x:.1f},{y:.1f})'"
    title = f"<title>{text(name)}: {text(words)}</title>"
    if not ringed:
        return f"<g {place}>{title}{_mark(look)}</g>"
    lines = textwrap.wrap(f"{name}: {words}", 105, max_lines=3, placeholder=" ...")
    below = "".join(
        f"<tspan x='{MARGIN - x:.1f}' y='{HEIGHT + 16 + 17 * i - y:.1f}'>{text(line)}</tspan>"
        for i, line in enumerate(lines)
    )
    ring = "<circle class='ck-ring' r='9'/>"
    return f"<g {place} tabindex='0' role='img'>{title}{_mark(look)}{ring}<text>{below}</text></g>"
