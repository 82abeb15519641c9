"""Figures of a comparison: each shows its frame, says so in its title, and survives frames without data."""

from __future__ import annotations

import io

import pytest
from synthesis_rows import attempts, report, seeds, solved

from cotkit.analysis import StrategyComparison, compared_texts, figures


def made(runs, baseline, with_solver):
    texts = compared_texts(runs, baseline)
    chance = {t: 0.3 if t.startswith("evol") else 0.95 for t in texts}
    rows = solved(texts, chance) if with_solver else ()
    return StrategyComparison.of(runs, {name: report(r) for name, r in runs.items()}, baseline, solved=rows)


CASES = {
    "full": lambda: made(
        {n: attempts(n, 60, p) for n, p in (("few_shot", 0.95), ("evol_instruct", 0.5))}, seeds(14), True
    ),
    "no solver, no seeds": lambda: made({"few_shot": attempts("few_shot", 20, 0.9)}, [], False),
    "few": lambda: made({"a": attempts("a", 5, 0.6), "b": attempts("b", 5, 0.0)}, seeds(3), True),
    "nothing": lambda: made({"a": attempts("a", 3, 0.0), "b": []}, [], False),
    "price in a name": lambda: made({"gpt $1": attempts("gpt $1", 20, 0.9)}, seeds(8), True),
}


def drawn(found):
    return {
        "triangle": figures.triangle(found.summary()),
        "funnel": figures.strategy_funnel(found.funnel),
        "map": figures.question_map(found.map, found.questions.kernel.name),
        "solve rates": figures.solve_rates(found.solve_rates, found.difficulty),
    }


@pytest.mark.parametrize("case", CASES)
def test_every_figure_is_drawn_whatever_is_missing(case):
    for name, figure in drawn(CASES[case]()).items():
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
        assert buffer.tell() > 3000, name


def test_titles_say_what_the_figures_show():
    titles = {name: figure.get_suptitle() for name, figure in drawn(CASES["full"]()).items()}
    triangle = titles["triangle"].replace("\n", " ")
    assert "Most reliable: few_shot" in triangle and "hardest: evol_instruct" in triangle
    assert "most diverse: not told apart" in triangle  # drawn from the same words
    assert "few_shot 9" in titles["funnel"] and "questions lie" in titles["map"]
    assert "seeds" in titles["solve rates"]


def test_sets_differ_by_shape_as_well_as_colour():
    from cotkit.analysis.figures.strategies import look_of

    looks = look_of(["seeds", "a", "b", "c", "d"])
    assert len({shape for _, shape in looks.values()}) == len({colour for colour, _ in looks.values()}) == 5
