"""Diversity: each measure against its reference implementation, and comparisons that size cannot fool."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from synthesis_rows import THINGS, question

from cotkit.analysis.diversity import (
    SEEDS,
    Questions,
    against_seeds,
    distinct_n,
    inside,
    resemblance,
    self_bleu,
    signatures,
    subset_sizes,
)
from cotkit.analysis.kernels import (
    Kernel,
    given_kernel,
    question_map,
    tfidf_kernel,
    vendi_score,
    words,
)


def questions(sets, kernel=None, topics=None):
    """`Questions` of {set: texts}."""
    texts = [text for members in sets.values() for text in members]
    places, start = {}, 0
    for name, members in sets.items():
        places[name] = np.arange(start, start := start + len(members))
    families = [str(i) for i in range(len(texts))]
    topics = topics or [None] * len(texts)
    return Questions.of(places, texts, topics, families, kernel or tfidf_kernel(texts))


def some(count, seed=0, themes=THINGS):
    rng = random.Random(seed)
    return [question(rng, themes) for _ in range(count)]


def line_of(frame, name, size=None):
    chosen = frame[(frame["set"] == name) & ((frame["size"] == size) if size else True)]
    return chosen.iloc[0]


def waves(count=40):
    rows = np.array([[math.cos(0.7 * i * j + j * j) for j in range(1, 13)] for i in range(count)])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("similarities", "expected"),
    [
        (np.eye(4), 4.0),
        (np.ones((5, 5)), 1.0),
        (np.array([[1, 0.9, 0], [0.9, 1, 0], [0, 0, 1.0]]), 2.1573004833739833),
        (waves() @ waves().T, 8.038363550374745),
    ],
)
def test_vendi_scores_are_those_of_the_vendi_score_package(similarities, expected):
    assert vendi_score(similarities) == pytest.approx(expected, rel=1e-9)  # computed with vendi-score 0.0.3


def test_self_bleu_is_sacrebleus():
    sacrebleu = pytest.importorskip("sacrebleu")
    rng = random.Random(3)
    texts = [[rng.choice("abcdef") for _ in range(rng.randint(1, 14))] for _ in range(30)]
    joined = [" ".join(text) for text in texts]
    expected = [
        sacrebleu.sentence_bleu(one, joined[:i] + joined[i + 1 :], tokenize="none").score
        for i, one in enumerate(joined)
    ]
    assert self_bleu(texts) == pytest.approx(np.mean(expected), abs=1e-9)
    assert self_bleu([["x"] * 5, ["x"] * 5]) == pytest.approx(100)
    assert math.isnan(self_bleu([["x"]]))


def test_signatures_estimate_jaccard_as_datasketch_does():
    from datasketch import MinHash

    tokens = [words(text) for text in some(12)]
    prints, sketches = signatures(tokens), []
    for text in tokens:
        plain = [word for word in text if word.isalnum()]
        sketches.append(MinHash())
        for start in range(len(plain) - 2):
            sketches[-1].update(" ".join(plain[start : start + 3]).encode())
    expected = [[one.jaccard(other) for other in sketches] for one in sketches]
    assert resemblance(prints, prints) == pytest.approx(np.array(expected))


@pytest.mark.parametrize(
    ("tokens", "n", "expected"),
    [
        ([["a", "b", "a", "b"]], 1, 0.5),
        ([["a", "b", "a", "b"]], 2, 2 / 3),
        ([["a", "b"], ["b", "a"]], 2, 1.0),  # no n-gram crosses from one text to the next
        ([["a"]], 2, math.nan),
    ],
)
def test_distinct_n(tokens, n, expected):
    assert distinct_n(tokens, n) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ann has 1,234.5 kg!", ["ann", "has", "0", "kg", "!"]),
        ("x2 costs $7", ["x", "0", "costs", "$", "0"]),
        ("小明有3个", ["小", "明", "有", "0", "个"]),
        ("", []),
    ],
)
def test_words_make_all_numbers_alike(text, expected):
    assert words(text) == expected


def test_questions_that_only_change_the_numbers_are_one_question():
    texts = [f"Ann has {n} apples and buys {3 * n} more. How many has she?" for n in range(40)]
    line = inside(questions({"copies": texts, "other": some(40)})).iloc[0]
    assert line["vendi"] == pytest.approx(1) and line["near_duplicates"] == 1 and line["self_bleu"] > 99


def test_a_larger_set_of_the_same_kind_does_not_look_more_or_less_diverse():
    found = inside(questions({"small": some(60, seed=1), "large": some(600, seed=2)}), seed=4)
    assert set(found["size"]) == {30}
    small, large = line_of(found, "small"), line_of(found, "large")
    for name in ("vendi", "nearest_cosine", "self_bleu", "distinct_2", "near_duplicates"):
        assert small[f"{name}_low"] <= large[name] <= small[f"{name}_high"], name


def test_a_poorer_set_is_clearly_less_diverse_by_every_measure():
    found = inside(questions({"rich": some(80), "poor": some(80, themes=THINGS[:1])}))
    rich, poor = line_of(found, "rich"), line_of(found, "poor")
    assert poor["distinct_1"] < rich["distinct_1_low"]  # all its few words stand in every cut: no spread
    for name in ("vendi", "distinct_2", "distinct_3"):
        assert poor[f"{name}_high"] < rich[f"{name}_low"], name
    for name in ("mean_cosine", "nearest_cosine", "self_bleu"):
        assert poor[f"{name}_low"] > rich[f"{name}_high"], name


def test_intervals_of_diversity_hold_the_true_value():
    rng = np.random.default_rng(0)

    def drawn(count):
        vectors = rng.standard_normal((count, 6)) + 1.0
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    size, truth = 15, []
    for _ in range(1500):
        one = drawn(size)
        truth.append(vendi_score(one @ one.T))
    held = []
    for trial in range(40):
        vectors = np.concatenate([drawn(30), drawn(90)])
        texts = {"few": ["a b"] * 30, "many": ["a b"] * 90}
        found = inside(questions(texts, Kernel("given", vectors)), seed=trial)
        assert set(found["size"]) == {size}
        held += [
            low <= np.mean(truth) <= high
            for low, high in zip(found["vendi_low"], found["vendi_high"], strict=True)
        ]
    assert np.mean(held) > 0.87  # of 80 intervals of 95 %


def test_a_negative_likeness_lies_in_its_interval():
    rng = np.random.default_rng(0)
    side = rng.standard_normal((10, 12))
    vectors = np.concatenate([side, -side])  # each has its opposite: less alike than by chance
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    line = line_of(inside(questions({"a": ["a b"] * 20}, Kernel("given", vectors))), "a")
    assert (
        line["mean_cosine"] < 0 and line["mean_cosine_low"] < line["mean_cosine"] < line["mean_cosine_high"]
    )


@pytest.mark.parametrize(
    ("counts", "sizes"),
    [
        ({"a": 100, "b": 40}, [20]),
        ({SEEDS: 14, "a": 100, "b": 40}, [7, 20]),  # few seeds do not blunt the comparison of the others
        ({SEEDS: 14, "a": 16}, [7]),  # nor is much the same told twice
        ({SEEDS: 14, "a": 5}, [7]),
        ({"a": 5, "b": 2}, []),
        ({"a": 900, "b": 900}, [200]),
    ],
)
def test_sets_are_compared_on_half_of_the_smallest(counts, sizes):
    assert subset_sizes({name: range(n) for name, n in counts.items()}, 200) == sizes


def test_a_set_that_is_too_small_has_no_value_and_sinks_no_other():
    found = inside(questions({"tiny": some(3), "large": some(50), "empty": []}))
    assert math.isnan(line_of(found, "tiny")["vendi"]) and math.isnan(line_of(found, "empty")["vendi"])
    assert line_of(found, "large")["vendi"] > 1
    alone = inside(questions({"tiny": some(3)}))
    assert math.isnan(alone["vendi"].iloc[0]) and alone["size"].iloc[0] == 0


def test_far_from_the_seeds_and_diverse_inside_are_two_things():
    seeds = some(30, themes=THINGS[:5])
    far_but_poor, near_and_rich = some(30, seed=7, themes=THINGS[-1:]), some(30, seed=8, themes=THINGS[:5])
    measured = questions({SEEDS: seeds, "far": far_but_poor, "near": near_and_rich})
    distance, variety = against_seeds(measured).set_index("set"), inside(measured).set_index("set")
    assert distance["nearest_seed_high"]["far"] < distance["nearest_seed_low"]["near"]
    assert variety["vendi_high"]["far"] < variety["vendi_low"]["near"]
    assert distance["nearest_seed"][SEEDS] < 0.999  # a seed is not compared with itself


def test_copies_of_seeds_are_counted():
    seeds = some(10)
    found = against_seeds(questions({SEEDS: seeds, "a": [*seeds[:4], *some(12, seed=9)]})).set_index("set")
    assert found["near_duplicates"]["a"] == pytest.approx(4 / 16, abs=0.07)
    assert found["near_duplicates"][SEEDS] == 0


def test_topics_are_counted_in_subsets():
    found = inside(
        questions({"a": some(20), "b": some(20)}, topics=["one"] * 20 + [f"t{i}" for i in range(20)])
    )
    assert line_of(found, "a")["topics"] == 1 and line_of(found, "b")["topics"] == 10


def test_without_seeds_there_is_no_distance():
    assert against_seeds(questions({"a": some(8)}))["nearest_seed"].isna().all()


@pytest.mark.parametrize(
    "vectors",
    [[[1.0, 0.0]], [[1.0], [0.0]], [[1.0], [math.nan]], [1.0, 2.0]],
    ids=["few", "zero", "nan", "flat"],
)
def test_embeddings_that_cannot_be_a_kernel_are_refused(vectors):
    with pytest.raises(ValueError, match="kernel mine"):
        given_kernel(vectors, 2, "mine")


def test_the_map_keeps_alike_questions_together():
    sets = ["a"] * 40 + ["b"] * 40
    kernel = tfidf_kernel(some(40, themes=THINGS[:1]) + some(40, themes=THINGS[1:2]))
    found = question_map(kernel, sets)
    centres = found.groupby("set")[["x", "y"]].mean()
    spread = found.groupby("set")[["x", "y"]].std().to_numpy().max()
    assert np.linalg.norm(centres.loc["a"] - centres.loc["b"]) > spread
    assert question_map(kernel, ["a"] * 3).empty and question_map(kernel, []).empty
