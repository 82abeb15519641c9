"""Which problems are for what: train, dev and test sets that never meet, and what a cycle works on.

Sets are drawn by cluster, before anything is generated. A cluster holds problems that share an id or a parent
(made from one another, `metadata["synthesis"]`) and near duplicates: the same numbers, in digits or in words,
and a share of `NEAR` of their word triples. Problems of one template with other numbers are different
problems of one family; a family can be held out of training whole, to see what training does to what it never
saw.

A cycle draws its problems by how hard they were for the actor last time, as programs found, or critics where
no program can check: pools and weights are those of prime-rl's difficulty sampler (hard up to 0.25 right,
normal up to 0.75, easy above).
"""

from __future__ import annotations

import functools
import hashlib
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from cotkit import analysis
from cotkit.pipelines.novelty import Novelty
from cotkit.problems import Problem
from cotkit.records import VERIFIER_FAILED, Row
from cotkit.verify import answer_key

NEAR = 0.5  # share of common word triples from which two texts with the same numbers are one problem
POOLS = (("hard", 0.25, 0.2), ("normal", 0.75, 1.0), ("easy", 1.0, 0.2))  # name, pass rate up to, weight
UNSEEN = "unseen"
_UNIT = "one|two|three|four|five|six|seven|eight|nine"
_TEEN = "ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen"
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_SMALL = rf"(?:(?:{_TENS})(?:[\s-]+(?:{_UNIT}))?|{_TEEN}|{_UNIT})"
_SCALED = rf"(?:[\s-]+(?:hundred|thousand|million|billion)(?:(?:\s+and)?[\s-]+{_SMALL})?)"
_NUMBER = re.compile(
    rf"\d+(?:[.,]\d+)*(?:/\d+)?|\b(?:{_SMALL}{_SCALED}*|hundred|thousand|million|billion|half|third|quarter"
    r"|twice|double|triple|dozen)\b",
    re.IGNORECASE,
)
_TIMES = {"twice": "2", "double": "2", "triple": "3", "dozen": "12"}


def family(problem: Problem | Row) -> str:
    """What kind of problem it is: its type, "problem" where it has none."""
    return problem.type or "problem"


def split_problems(
    problems: Sequence[Problem],
    dev: int | float,
    test: int | float,
    held_out_types: Collection[str] = (),
    seed: int = 0,
) -> dict[str, str]:
    """{id: "train" | "dev" | "test"}. `dev` and `test` are numbers of problems, or shares below 1.

    Whole clusters are drawn, in an order that a seed fixes, so a set may come out a problem or two larger
    than asked; a cluster that is too large for what a set still wants goes to another, at last to train.
    Problems of `held_out_types`, and what shares a cluster with one, are all in test, beside the `dev` and
    `test` that are drawn from the others: what decides a promotion is of the types that are trained.
    Raises ValueError when the sets would leave nothing to train on, TypeError for types that are no list.
    """
    if isinstance(held_out_types, str) or not isinstance(held_out_types, Collection):
        raise TypeError(f"held_out_types is a list of types: give [{held_out_types!r}]")
    held_out = set(held_out_types)
    if strange := held_out - {family(p) for p in problems}:
        raise ValueError(f"held_out_types names {sorted(strange)}, which no problem has")
    groups: dict[int, list[Problem]] = defaultdict(list)
    for problem, cluster in zip(problems, clusters(problems), strict=True):
        groups[cluster].append(problem)
    kept_out = [group for group in groups.values() if any(family(p) in held_out for p in group)]
    sets = {p.id: "test" for group in kept_out for p in group}
    order = sorted(groups.values(), key=lambda group: _coin(seed, group[0].id))
    order = [group for group in order if group[0].id not in sets]
    drawn_from = len(problems) - len(sets)
    wanted = {"dev": _number(dev, drawn_from, "dev"), "test": _number(test, drawn_from, "test")}
    sizes: Counter[str] = Counter()
    for group in order:
        open_sets = [
            name
            for name in ("test", "dev")
            if sizes[name] < wanted[name]
            and sizes[name] + len(group) <= wanted[name] + max(1, wanted[name] // 10)
        ]
        name = min(open_sets, key=lambda s: sizes[s] / wanted[s], default="train")
        sizes[name] += len(group)
        sets |= {p.id: name for p in group}
    if not sizes["train"]:
        given = f"{drawn_from} problems (in {len(order)} clusters) to train on"
        raise ValueError(f"dev={dev} and test={test} leave none of the {given}: give more problems")
    return sets


def _number(asked: int | float, problems: int, name: str) -> int:
    if isinstance(asked, bool) or not isinstance(asked, (int, float)) or not 0 <= asked < math.inf:
        raise ValueError(f"{name} is a number of problems, or a share below 1, got {asked!r}")
    return round(asked * problems) if asked < 1 else int(asked)


def clusters(problems: Sequence[Problem]) -> list[int]:
    """The cluster of each problem, as a number; see the top of this file."""
    parent = list(range(len(problems)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    place = {p.id: i for i, p in enumerate(problems)}
    by_lineage: dict[str, int] = {}
    for i, problem in enumerate(problems):
        for origin in _origins(problem):
            parent[root(i)] = root(place.get(origin, by_lineage.setdefault(origin, i)))
    for i, j in near_duplicates([p.problem for p in problems]):
        parent[root(i)] = root(j)
    return [root(i) for i in range(len(problems))]


def _origins(problem: Problem) -> list[str]:
    """The ids of the problems it was made from."""
    made = problem.metadata.get("synthesis") or {}
    origins = [made.get(name) or [] for name in ("seed_ids", "parents")] if isinstance(made, Mapping) else [0]
    if not all(isinstance(ids, list | tuple) for ids in origins):
        raise ValueError(
            f"problem {problem.id!r}: metadata 'synthesis' says what a made problem was made from, "
            f"{{'seed_ids': [...], 'parents': [...]}}; got {made!r:.80}: give other notes another name"
        )
    return [id for ids in origins for id in ids]


def near_duplicates(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs (i, j), i < j, of texts that are alike and have the same numbers."""
    index, pairs = Novelty(NEAR), []
    numbers = [numbers_of(text) for text in texts]
    for j, text in enumerate(texts):
        alike = {i for i, _ in index.like(text)}
        pairs += [(i, j) for i in sorted(alike) if numbers[i] == numbers[j]]
        index.add(j, text)
    return pairs


@functools.lru_cache(100_000)
def numbers_of(text: str) -> tuple[str, ...]:
    """The numbers of a text, sorted, each by its value however it is written; without "one" and 1, for the
    word mostly counts nothing."""
    runs = (" ".join(run.lower().split()) for run in _NUMBER.findall(text))
    return tuple(sorted(key for run in runs if (key := _TIMES.get(run) or answer_key(run)) != "1"))


class Sets:
    """Sets of problems that may not meet, by id or by near duplicate: {name: {id: text}}, the name in words
    such as "held out". Each is looked through once. Raises AssertionError when they do meet."""

    def __init__(self, sets: Mapping[str, Mapping[str, str]]):
        self._index = Novelty(NEAR)
        self._set_of: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        for name, texts in sets.items():
            self.assert_apart(texts, name)
            for id, text in texts.items():
                self._index.add(id, text)
            self._set_of |= dict.fromkeys(texts, name)
            self._texts |= texts

    def assert_apart(self, texts: Mapping[str, str], name: str = "trained on") -> None:
        """AssertionError when a problem of another set, {id: text}, is in one of these."""
        if both := sorted(set(texts) & set(self._texts)):
            other = self._set_of[both[0]]
            raise AssertionError(f"{len(both)} problems are {name} and {other}, for instance {both[0]!r}")
        for id, text in texts.items():
            for near, _ in self._index.like(text):
                if numbers_of(text) == numbers_of(self._texts[near]):
                    other = self._set_of[near]
                    raise AssertionError(f"problem {id!r}, {name}, nearly is {near!r}, which is {other}")


def pass_rates(rows: Iterable[Row], checked: Callable[[Row], bool] | None = None) -> dict[str, float]:
    """{id: share of the drafts that are proven right, or, of a problem that no program can check, accepted by
    the critics}; later rows replace earlier. A draft without words, or one that could not be decided, is
    not right; one that a verifier's model failed to check, or critics to score, does not count."""
    rows, rates = list(rows), {}
    checked = checked or analysis.drafts.checks(rows)
    for row in rows:
        drafts = analysis.drafts.drafts_of(row, checked(row))
        if checked(row):
            right = [c.verdict.correct is True for c in drafts if c.verdict.method not in VERIFIER_FAILED]
        else:
            right = [c.accepted for c in drafts if not (c.judgement and c.judgement.scores is None)]
        if right:
            rates[row.id] = sum(right) / len(right)
    return rates


def pool(rate: float | None) -> str:
    return UNSEEN if rate is None else next(name for name, most, _ in POOLS if rate <= most)


def pools(problems: Iterable[Problem], rates: Mapping[str, float]) -> dict[str, int]:
    """How many problems are in each pool."""
    return dict(Counter(pool(rates.get(p.id)) for p in problems))


def draw_problems(
    problems: Sequence[Problem], rates: Mapping[str, float], count: int | None, seed: str
) -> list[Problem]:
    """`count` problems (None = all), those of likelier pools first, in their own order.

    Weighted sampling without replacement by keys u^(1/w) (Efraimidis and Spirakis 2006, Information
    Processing Letters 97:181-185); a problem's u depends on the seed and its id alone.
    """
    weights = {UNSEEN: 1.0, **{name: weight for name, _, weight in POOLS}}
    keys = {p.id: _coin(seed, p.id) ** (1 / weights[pool(rates.get(p.id))]) for p in problems}
    chosen = set(sorted(keys, key=keys.get, reverse=True)[:count])
    return [p for p in problems if p.id in chosen]


def draw_replay(earlier: Sequence, new: int, fraction: float, seed: str) -> list:
    """Of earlier examples so many that they make up `fraction` of the whole; all of them at 1."""
    if fraction >= 1:
        return list(earlier)
    count = min(len(earlier), round(new * fraction / (1 - fraction)))
    return random.Random(seed).sample(list(earlier), count)


def _coin(seed: int | str, id: str) -> float:
    """A number in (0, 1) that seed and id fix."""
    digest = hashlib.sha256(f"{seed}:{id}".encode("utf-8", "surrogatepass")).digest()
    return (int.from_bytes(digest[:8]) + 0.5) / 2**64
