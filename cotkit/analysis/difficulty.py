"""How hard the problems of a set are for a solver, and what tells it beforehand.

A problem's solve rate is the share of its k drafts that were verified right. Sets are compared on problems of
which all k drafts have a verdict; the others are counted as undecided. A problem nobody solves may be hard or
may be wrong: the numbers cannot tell.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cotkit.analysis.candidates import drafts
from cotkit.analysis.distillation import interval_columns
from cotkit.analysis.diversity import UNKNOWN, Estimate
from cotkit.analysis.intervals import NAN, Rate
from cotkit.records import Row

if TYPE_CHECKING:
    import pandas

LEAST_GROUPS = 10  # shared by two lists of trials, for their correlation to be estimated
LEAST_PAIRS = 10  # of a rank correlation
PROXIES = ("steps", "code_nodes", "question_words")


def share_difference(
    first: Sequence[bool], first_groups: Sequence, second: Sequence[bool], second_groups: Sequence
) -> Estimate:
    """Share of True in the second list of trials minus that in the first; they may share groups (seeds,
    problems), of which `groups[i]` names that of trial i.

    The intervals of `Rate.of_grouped`, squared and added, less what shared groups explain: the correlation of
    the two shares over groups, taken as 0 with fewer than `LEAST_GROUPS` shared ones. (Simulated with 10 to
    60 groups it holds the true difference 93 to 96 times in 100, a bootstrap over groups 90 to 93 times.)
    Sources: Newcombe (1998), Statistics in Medicine 17:2635-2650, method 10; for any two intervals Zou and
    Donner (2008), Statistics in Medicine 27:1693-1702.
    """
    a, b = Rate.of_grouped(first, first_groups), Rate.of_grouped(second, second_groups)
    if not a.n or not b.n:
        return UNKNOWN
    phi = 0.0
    if len(set(first_groups) & set(second_groups)) >= LEAST_GROUPS:
        place = {group: i for i, group in enumerate({*first_groups, *second_groups})}
        extra = [  # per group: how many more were True than its size lets expect
            np.bincount([place[g] for g in groups], np.array(flags, float) - rate.value, len(place))
            for flags, groups, rate in ((first, first_groups, a), (second, second_groups, b))
        ]
        norms = math.prod(np.linalg.norm(extra, axis=1))
        phi = float(extra[0] @ extra[1]) / norms if norms else 0.0
    gap = b.value - a.value
    low, high = (
        math.sqrt(max(0.0, y**2 - 2 * phi * x * y + x**2))
        for x, y in ((a.high - a.value, b.value - b.low), (a.value - a.low, b.high - b.value))
    )
    return Estimate(gap, max(-1.0, gap - low), min(1.0, gap + high))


def solve_frame(sets: Mapping[str, Iterable[str]], rows: Iterable[Row], k: int) -> pandas.DataFrame:
    """One line a set and question (by its text): drafts, right, rate (nan unless all k have a verdict).

    `rows` are the solver's; a question it was not asked has 0 drafts.
    """
    import pandas

    verdicts = {row.problem: [c.verdict.correct for c in drafts(row)] for row in rows}
    asked = [(name, text) for name, texts in sets.items() for text in texts]
    found = [verdicts.get(text, []) for _, text in asked]
    whole = [len(drafts) == k and None not in drafts for drafts in found]
    right = [drafts.count(True) for drafts in found]
    columns = {
        "set": [name for name, _ in asked],
        "problem": pandas.Series([text for _, text in asked], dtype=object),  # may hold a lone surrogate
        "drafts": list(map(len, found)),
        "right": right,
        "rate": [n / k if full else NAN for n, full in zip(right, whole, strict=True)],
    }
    return pandas.DataFrame(columns)


def difficulty(frame: pandas.DataFrame, k: int, hard: float = 0.25) -> pandas.DataFrame:
    """One line a set of `solve_frame`: how often the solver is right, and the share of hard problems.

    Columns: set, problems (measured), undecided (the others), k; with interval: solve_rate (share of drafts
    that are right, interval over problems), solved_at_k (problems solved at least once), hard (problems with
    a solve rate of at most `hard`), never (solved by no draft: hard, or wrong).
    """
    import pandas

    lines = []
    for name, group in frame.groupby("set", sort=False):
        known = group[group["rate"].notna()]
        rate = known["rate"]
        line = {"set": name, "problems": len(known), "undecided": len(group) - len(known), "k": k}
        line |= interval_columns("solve_rate", Rate.of_grouped(*_trials(known, "right", k)))
        flags = {"solved_at_k": rate > 0, "hard": rate <= hard, "never": rate == 0}
        for column, values in flags.items():
            line |= interval_columns(column, Rate.of_flags(values))
        lines.append(line)
    return pandas.DataFrame(lines)


def _trials(known: pandas.DataFrame, column: str, k: int) -> tuple[list[bool], list[str]]:
    """The verdicts of all drafts, from the right ones of each problem, and the problem of each."""
    flags = [i < right for right in known[column] for i in range(k)]
    return flags, [text for text in known["problem"] for _ in range(k)]


def discrimination(first: pandas.DataFrame, second: pandas.DataFrame, k: int) -> pandas.DataFrame:
    """Does a set tell two solvers apart? The second's solve rate minus the first's, on the same problems.

    Takes two `solve_frame`s. Columns: set, problems, difference with interval.
    """
    import pandas

    both = first.merge(second, on=["set", "problem"], suffixes=("", "_second"))
    lines = []
    for name, group in both.groupby("set", sort=False):
        known = group[group["rate"].notna() & group["rate_second"].notna()]
        gap = share_difference(*_trials(known, "right", k), *_trials(known, "right_second", k))
        lines.append({"set": name, "problems": len(known), **interval_columns("difference", gap)})
    return pandas.DataFrame(lines)


def proxies_of(question: str, worked_answer: str | None, code: str | None) -> dict[str, float]:
    """What could tell difficulty without a solver: steps of the worked answer (its lines, or the sentences of
    a single line), nodes of the program's syntax tree, words of the question. nan = there is none.
    """
    lines = [line for line in (worked_answer or "").splitlines() if line.strip()]
    steps = len(lines) if len(lines) != 1 else len(re.findall(r"[.!?](?:\s|$)", lines[0])) or 1
    try:
        nodes = sum(1 for _ in ast.walk(ast.parse(code))) if code else NAN
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        nodes = NAN
    return dict(zip(PROXIES, (steps or NAN, nodes, len(question.split())), strict=True))


def proxy_correlations(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Spearman's correlation of each proxy with the solve rate, over all generated problems and in each set.

    `frame`: `solve_frame` with the columns of `proxies_of`, without seeds. Columns: proxy, set, problems,
    correlation with interval.
    """
    import pandas

    lines = []
    for proxy in PROXIES:
        for name in ("all", *dict.fromkeys(frame["set"])):
            group = frame if name == "all" else frame[frame["set"] == name]
            known = group[group["rate"].notna() & group[proxy].notna()]
            line = {"proxy": proxy.replace("_", " "), "set": name, "problems": len(known)}
            lines.append(line | interval_columns("correlation", spearman(known[proxy], known["rate"])))
    return pandas.DataFrame(lines)


def spearman(left: Sequence[float], right: Sequence[float]) -> Estimate:
    """Rank correlation (ties share their mean rank) and its 95 % interval; nan with fewer than `LEAST_PAIRS`
    pairs or where a side does not vary.

    Source of the standard error of its Fisher z: Bonett and Wright (2000), Psychometrika 65:23-28.
    """
    from scipy.stats import rankdata

    n = len(left)
    if n < LEAST_PAIRS or len(set(left)) < 2 or len(set(right)) < 2:
        return UNKNOWN
    value = float(np.corrcoef(rankdata(left), rankdata(right))[0, 1])
    z, half = math.atanh(np.clip(value, -0.999999, 0.999999)), 1.96 * math.sqrt((1 + value**2 / 2) / (n - 3))
    return Estimate(value, math.tanh(z - half), math.tanh(z + half))
