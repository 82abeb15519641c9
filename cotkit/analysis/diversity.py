"""How different the questions of a set are: inside the set, and from the seeds. These are two things: a set
can be far from its seeds and poor in itself.

Most such measures change with the number of questions. So sets are compared on random subsets of one size,
half of the smallest set: a value is the mean over `RESAMPLES` subsets, its 95 % interval the delete-d
jackknife's (Shao and Wu 1989, Annals of Statistics 17:1176-1197), which takes the questions of a set as drawn
independently. Pairwise work is done on the subsets and, against the seeds, in blocks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cotkit.analysis.distillation import interval_columns
from cotkit.analysis.intervals import NAN, Rate, mean_interval
from cotkit.analysis.kernels import Kernel, vendi_score, words

if TYPE_CHECKING:
    import pandas

RESAMPLES = 50
LEAST = 6  # questions of a set: half of fewer says nothing
TOKEN_BUDGET = 5000  # of distinct-n, at most
DUPLICATE = 0.7  # Jaccard similarity of three-word shingles
BLOCK = 2000  # questions against all seeds at once
SEEDS = "seeds"  # the name of the baseline set
MEASURES = ("vendi", "mean_cosine", "nearest_cosine", "near_duplicates", "self_bleu", "topics")
DISTINCT = ("distinct_1", "distinct_2", "distinct_3")


class Estimate(NamedTuple):
    value: float
    low: float
    high: float


UNKNOWN = Estimate(NAN, NAN, NAN)


def distinct_n(tokens: Sequence[Sequence[str]], n: int) -> float:
    """Different n-grams / n-grams, none across texts. Falls with length: compare on one number of tokens.

    Source: Li et al. (2016), A Diversity-Promoting Objective Function, arXiv 1510.03055, section 5.
    """
    grams = [gram for text in tokens for gram in _grams(text, n)]
    return len(set(grams)) / len(grams) if grams else NAN


def _grams(tokens: Sequence[str], n: int) -> zip:
    return zip(*(tokens[i:] for i in range(n)), strict=False)


def self_bleu(tokens: Sequence[Sequence[str]]) -> float:
    """Mean BLEU-4 (0..100) of each text against all others as references; high = alike. nan for under two.

    Sentence BLEU as sacrebleu computes it (exponential smoothing, effective order, closest length).
    Sources: Zhu et al. (2018), Texygen, arXiv 1802.01886; Post (2018), arXiv 1804.08771.
    """
    if len(tokens) < 2:
        return NAN
    counts = [[Counter(_grams(text, n)) for text in tokens] for n in (1, 2, 3, 4)]
    highest = [_two_highest(order) for order in counts]
    lengths = np.array([len(text) for text in tokens])
    scores = []
    for i, length in enumerate(lengths):
        others = np.delete(lengths, i)
        gaps = np.abs(others - length)
        matches = []
        for order, best in zip(counts, highest, strict=True):
            of_others = ((count, best[gram]) for gram, count in order[i].items())
            matches.append(
                sum(
                    min(count, second if owner == i else first) for count, (first, owner, second) in of_others
                )
            )
        scores.append(_bleu(matches, int(length), int(others[gaps == gaps.min()].min())))
    return float(np.mean(scores))


def _two_highest(order: Sequence[Counter]) -> dict[Any, tuple[int, int, int]]:
    """For each n-gram its highest count in a text, that text, and the highest count in any other text."""
    best: dict[Any, tuple[int, int, int]] = {}
    for text, counter in enumerate(order):
        for gram, count in counter.items():
            first, owner, second = best.get(gram, (0, -1, 0))
            best[gram] = (count, text, first) if count > first else (first, owner, max(second, count))
    return best


def _bleu(matches: Sequence[int], length: int, reference: int) -> float:
    if not matches[0]:
        return 0.0
    logs, smooth = [], 1
    for n, right in enumerate(matches[:length]):
        smooth *= 1 if right else 2
        logs.append(math.log((right or 1 / smooth) / (length - n)))
    return 100 * math.exp(min(0.0, 1 - reference / length) + sum(logs) / len(logs))


def signatures(tokens: Sequence[Sequence[str]]) -> np.ndarray:
    """A MinHash signature a text, of its three-word shingles: the share of equal places estimates Jaccard.

    Source: Broder (1997), On the resemblance and containment of documents.
    """
    from datasketch import MinHash

    plain = [[word for word in text if word.isalnum()] for text in tokens]
    shingles = [list(_grams(text, 3)) or [text] for text in plain]
    encoded = ([" ".join(gram).encode("utf-8", "replace") for gram in grams] for grams in shingles)
    return np.array([one.hashvalues for one in MinHash.bulk(encoded)])


def resemblance(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Estimated Jaccard similarity of each signature of `left` with each of `right`."""
    return np.array([(right == one).mean(axis=1) for one in left])


@dataclass(frozen=True)
class Questions:
    """The questions of all sets, seeds included: `sets[name]` are places in the lists.

    `families[i]` names what question i is drawn with (those made from one seed), for intervals.
    """

    sets: Mapping[str, np.ndarray]
    tokens: Sequence[Sequence[str]]
    prints: np.ndarray
    topics: Sequence[str | None]
    families: Sequence[str]
    kernel: Kernel

    @classmethod
    def of(cls, sets: Mapping, texts: Sequence[str], topics: Sequence, families: Sequence, kernel: Kernel):
        tokens = [words(text) for text in texts]
        return cls(sets, tokens, signatures(tokens), topics, families, kernel)


def subset_sizes(sets: Mapping[str, Sequence], most: int) -> list[int]:
    """The sizes to compare at: half of the smallest set and, where it is the seeds that keep that small, half
    of the smallest other set too. [] = no set is large enough.
    """
    large = {name: len(members) for name, members in sets.items() if len(members) >= LEAST}
    others = [size for name, size in large.items() if name != SEEDS]
    sizes = [min(most, min(counts) // 2) for counts in (list(large.values()), others) if counts]
    return sizes if len(sizes) == 2 and sizes[1] >= 1.5 * sizes[0] else sizes[:1]


def inside(questions: Questions, most: int = 200, seed: int = 0) -> pandas.DataFrame:
    """How different the questions of each set are from each other, on subsets of equal size.

    One line a set and size. Columns: set, questions, size (of the subsets, at most `most`), tokens; then,
    with interval: vendi (1 to size), mean_cosine, nearest_cosine (to the most alike of the subset),
    near_duplicates (share that has one in the subset), self_bleu, topics (how many different), and
    distinct_1, _2, _3 on that many tokens. nan in a set of fewer than `LEAST` questions or twice the size.
    """
    import pandas

    lengths = np.array([len(text) for text in questions.tokens])
    large = [members for members in questions.sets.values() if len(members) >= LEAST]
    budget = min([TOKEN_BUDGET, *(int(lengths[members].sum()) // 2 for members in large)])
    lines = []
    for size in subset_sizes(questions.sets, most) or [0]:
        for name, members in questions.sets.items():
            found: dict[str, Estimate] = {}
            if size and len(members) >= max(LEAST, 2 * size):
                found = _on_subsets(questions, members, size, budget, np.random.default_rng(seed))
            line = {"set": name, "questions": len(members), "size": size, "tokens": budget}
            for measure in (*MEASURES, *DISTINCT):
                line |= interval_columns(measure, found.get(measure, UNKNOWN))
            lines.append(line)
    return pandas.DataFrame(lines)


def _on_subsets(
    questions: Questions, members: np.ndarray, size: int, budget: int, rng: np.random.Generator
) -> dict[str, Estimate]:
    draws = [rng.permutation(members) for _ in range(RESAMPLES)]
    measured = [_measures(questions, draw[:size]) for draw in draws]
    found = {name: _jackknife([m[name] for m in measured], size / len(members)) for name in MEASURES}
    cut = [_first_tokens(questions.tokens, draw, budget) for draw in draws]
    share = budget / sum(len(questions.tokens[i]) for i in members)
    for n, name in enumerate(DISTINCT, start=1):
        found[name] = _jackknife([distinct_n(tokens, n) for tokens in cut], share)
    return found


def _measures(questions: Questions, subset: np.ndarray) -> dict[str, float]:
    near, prints = questions.kernel.cosines(subset, subset), questions.prints[subset]
    apart = ~np.eye(len(subset), dtype=bool)
    values = (
        vendi_score(near),
        near[apart].mean(),
        np.where(apart, near, -1).max(axis=1).mean(),
        ((resemblance(prints, prints) >= DUPLICATE) & apart).any(axis=1).mean(),
        self_bleu([questions.tokens[i] for i in subset]),
        len({questions.topics[i] for i in subset} - {None}) or NAN,
    )
    return dict(zip(MEASURES, values, strict=True))


def _first_tokens(tokens: Sequence[Sequence[str]], order: np.ndarray, budget: int) -> list[Sequence[str]]:
    """The texts in this order up to `budget` tokens, the last one cut."""
    chosen, left = [], budget
    for place in order:
        if left <= 0:
            break
        chosen.append(tokens[place][:left])
        left -= len(chosen[-1])
    return chosen


def _jackknife(values: Sequence[float], share: float) -> Estimate:
    """Mean over subsets that hold `share` of the set, and the delete-d jackknife's interval; nan bounds where
    the subsets do not differ, which says nothing about the spread.
    """
    mean, spread = float(np.mean(values)), float(np.std(values, ddof=1))
    half = 1.96 * spread * math.sqrt(share / (1 - share)) if spread > 1e-12 else NAN
    low = mean - half
    return Estimate(mean, max(low, 0.0) if mean >= 0 else low, mean + half)  # only a cosine is below 0


def against_seeds(questions: Questions) -> pandas.DataFrame:
    """How far each set is from the seeds: nothing of it is said by `inside`.

    Columns: set, questions; with interval: nearest_seed (mean cosine to the most alike seed; of a seed, to
    another one) and near_duplicates (share that nearly repeats a seed).
    """
    import pandas

    seeds, lines = questions.sets.get(SEEDS, np.array([], int)), []
    for name, members in questions.sets.items():
        nearest: list[float] = []
        copies: list[bool] = []
        for start in range(0, len(members) if len(seeds) > 1 else 0, BLOCK):
            block = members[start : start + BLOCK]
            other = block[:, None] != seeds[None, :]  # a seed is not compared with itself
            near = questions.kernel.cosines(block, seeds)
            alike = resemblance(questions.prints[block], questions.prints[seeds]) >= DUPLICATE
            nearest += np.where(other, near, -1).max(axis=1).tolist()
            copies += (alike & other).any(axis=1).tolist()
        mean = UNKNOWN
        if nearest:
            groups = [questions.families[i] for i in members]
            low, high = mean_interval(nearest, groups)
            mean = Estimate(float(np.mean(nearest)), low, min(high, 1.0))
        line = {"set": name, "questions": len(members), **interval_columns("nearest_seed", mean)}
        lines.append(line | interval_columns("near_duplicates", Rate.of_flags(copies)))
    return pandas.DataFrame(lines)
