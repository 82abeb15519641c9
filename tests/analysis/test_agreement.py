"""Kappa and alpha are the libraries' on shared cases, and carry intervals."""

from __future__ import annotations

import krippendorff
import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from cotkit.analysis.agreement import agreement, cohen_kappa, krippendorff_alpha, weighted_kappa


def raters(n=300, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 11, n)
    others = [np.clip(first + rng.integers(-3, 4, n), 0, 10) for _ in range(2)]
    table = np.column_stack([first, *others]).astype(float)
    table[rng.random(table.shape) < missing] = np.nan
    return table


def test_kappas_are_scikit_learns():
    a, b, _ = raters().T
    assert cohen_kappa(a > 5, b > 5) == pytest.approx(cohen_kappa_score(a > 5, b > 5))
    expected = cohen_kappa_score(a, b, weights="quadratic", labels=range(11))
    assert weighted_kappa(a, b) == pytest.approx(expected)


@pytest.mark.parametrize("level", ["ordinal", "interval"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_alpha_is_krippendorffs(level, missing):
    table = raters(missing=missing)
    expected = krippendorff.alpha(table.T, level_of_measurement=level)
    assert krippendorff_alpha(table, level) == pytest.approx(expected)


def test_scores_that_never_differ_have_no_kappa():
    same = np.ones(10)
    assert np.isnan(cohen_kappa(same > 0, same > 0)) and np.isnan(weighted_kappa(same, same))
    assert np.isnan(krippendorff_alpha(np.ones((10, 2))))
    assert np.isnan(krippendorff_alpha(np.array([[1, np.nan], [np.nan, 2]])))


def test_an_unknown_level_is_refused():
    with pytest.raises(ValueError, match="ordinal"):
        krippendorff_alpha(raters(), "nominal")


def test_every_pair_has_a_line_and_an_interval_over_problems():
    a, b, c = raters(600).T
    problem = np.repeat(np.arange(200), 3)
    cuts = {"a": 5.0, "b": 5.0, "c": 5.0}
    table = agreement({"a": a, "b": b, "c": c}, cuts, a > 6, problem)
    assert table["measure"].value_counts().to_dict() == {"kappa": 6, "weighted kappa": 3, "alpha": 1}
    assert table["value"].between(table["value_low"], table["value_high"]).all()
    line = table.query("first == 'a' and second == 'verdict'").iloc[0]
    assert line["value"] == pytest.approx(cohen_kappa_score(a >= 5, a > 6)) and line["n"] == 600


def test_scores_that_order_alike_agree_whatever_their_scales():
    p = np.random.default_rng(0).random(300)
    scores = {"p": p, "ten": 10 * p, "log": np.log(p)}
    table = agreement(scores, dict.fromkeys(scores, 0.5), p > 0.5, np.arange(300), resamples=20)
    assert table.loc[table["measure"] != "kappa", "value"].tolist() == pytest.approx([1.0] * 4)
