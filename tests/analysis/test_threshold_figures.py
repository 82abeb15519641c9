"""Figures of tuned thresholds are drawn, measured and read: nothing cut off or overlapping, numbers right."""

from __future__ import annotations

import itertools

import matplotlib.pyplot
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from scored import scored
from test_analysis_figures import visible_texts, words

import cotkit
from cotkit import analysis
from cotkit.analysis import figures

FIGURES = {
    "verdict_histograms": lambda r: figures.verdict_histograms(r.rows, r.scores.head(3)),
    "roc": lambda r: figures.roc(r.curve),
    "precision_recall": lambda r: figures.precision_recall(r.curve, 0.9),
    "threshold_curve": lambda r: figures.threshold_curve(r.curve, 0.9),
    "reliability": lambda r: figures.reliability(r.reliability),
    "cost_curve": lambda r: figures.cost_curve(r.curve),
    "threshold_heat": lambda r: figures.threshold_heat(
        analysis.threshold_grid(r.rows, r.scores["score"].iloc[0], r.scores["score"].iloc[-1])
    ),
    "kappa_matrix": lambda r: figures.kappa_matrix(r.agreement),
    "score_by_length": lambda r: figures.score_by_length(r.rows, r.length),
    "precision_by_iteration": lambda r: figures.precision_by_iteration(r.by_iteration, 0.9),
    "rules_front": lambda r: figures.rules_front(r.curve, 0.9),
}
SIX = ("logical_correctness", "consistency", "form", "clarity_of_steps", "self_consistency", "mean_logprob")
CASES = {
    "three scores": lambda: scored(300, 3, iterations=2),
    "one score": lambda: scored(200, 1, power=(2.0,), names=("correctness",)),
    "useless": lambda: scored(100, 1, power=(0.0, 0.0)),
    "six scores": lambda: scored(100, 2, power=(1.0,) * 6, names=SIX),
    "ten rows": lambda: scored(10, 1),
    "all right": lambda: scored(60, 1).assign(correct=True),
    "logits": lambda: scored(150, 2, power=(1.5, 1.0)).assign(
        score_correctness=lambda f: 7 * f["score_correctness"] - 5 + 1e-3 * np.arange(len(f))
    ),
}


@pytest.fixture(scope="module")
def reports():
    return {name: cotkit.tune_thresholds(make(), resamples=20) for name, make in CASES.items()}


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("case", CASES)
def test_no_text_is_cut_off_or_on_top_of_another(reports, name, case):
    if name == "threshold_heat" and len(reports[case].scores) == 1:
        pytest.skip("needs two scores")
    figure = FIGURES[name](reports[case])
    FigureCanvasAgg(figure).draw()
    page = figure.bbox
    boxes = [(t.get_text(), t.get_window_extent()) for t in visible_texts(figure)]
    assert boxes
    for text, box in boxes:
        inside = page.x0 - 1 <= box.x0 and box.x1 <= page.x1 + 1
        assert inside and page.y0 - 1 <= box.y0 and box.y1 <= page.y1 + 1, f"{text!r} is cut off"
    for (text, box), (other, other_box) in itertools.combinations(boxes, 2):
        shared = box.intersection(box, other_box)
        assert shared is None or shared.width < 2 or shared.height < 2, f"{text!r} lies on {other!r}"
    assert matplotlib.pyplot.get_fignums() == []


def test_the_key_figure_draws_curve_band_target_and_choice(reports):
    report = reports["three scores"]
    axes = FIGURES["threshold_curve"](report).axes[0]
    path = report.curve[report.curve["chosen"]]
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert list(lines["precision"].get_ydata()) == path["precision"].tolist()
    assert len(axes.collections) == 3  # a band each
    assert [0.9, 0.9] in [list(line.get_ydata()) for line in axes.get_lines()]
    picked = path[path["picked"]].iloc[0]
    assert "certified" in words(axes.figure) and picked["threshold"].split(" ≥")[0] in words(axes.figure)


def test_titles_say_what_the_data_say(reports):
    text = {name: words(draw(reports["three scores"])) for name, draw in FIGURES.items()}
    scores = reports["three scores"].scores
    assert f"AUC {scores['auc'][0]:.2f}" in text["verdict_histograms"]
    rows = reports["three scores"].rows
    outside = (rows["tuned"] & (rows["split"] != "tune")).sum()
    assert f"of {outside:,} kept" in text["threshold_curve"] and f"({outside:,} traces)" in text["roc"]
    path = reports["three scores"].curve.query("chosen")
    chosen, area = path.iloc[0], np.trapezoid([0, *path["recall"], 1], [0, *path["false_kept"], 1])
    assert chosen["auc"] == pytest.approx(area)
    interval = f"{chosen['auc']:.2f} [{chosen['auc_low']:.2f}, {chosen['auc_high']:.2f}]"
    assert f"area under the ROC curve {interval}" in text["roc"]
    assert "Brier" in text["reliability"] and "ECE" in text["reliability"]
    assert "alpha of all scores" in text["kappa_matrix"]
    assert "iteration 1" in text["precision_by_iteration"] and "tuned" in text["precision_by_iteration"]
    useless = reports["useless"]
    assert "No threshold" in words(FIGURES["threshold_curve"](useless))
    assert "no rule reaches it" in words(FIGURES["rules_front"](useless))


def test_thin_cells_of_the_heat_map_are_hatched(reports):
    grid = analysis.threshold_grid(reports["useless"].rows, "score_correctness", "score_clarity")
    axes = figures.threshold_heat(grid).axes[0]
    assert len(axes.patches) == (grid["n"] < 20).sum() > 0
    assert all(patch.get_hatch() for patch in axes.patches)
    assert sorted(int(t.get_text().replace(",", "")) for t in axes.texts) == sorted(grid["n"])


@pytest.mark.parametrize(
    ("name", "case", "says"),
    [("roc", "all right", "no ROC curve"), ("precision_by_iteration", "useless", "No trace reaches")],
)
def test_a_figure_without_data_says_so(reports, name, case, says):
    assert says in words(FIGURES[name](reports[case]))


def test_lengths_that_are_unknown_are_said_to_be(reports):
    report = cotkit.tune_thresholds(scored(60, 1).drop(columns="trace_characters"), resamples=2)
    assert "not known" in words(FIGURES["score_by_length"](report))


def test_a_slope_over_a_handful_of_problems_is_said_to_be_unknown():
    figure = FIGURES["score_by_length"](cotkit.tune_thresholds(scored(8, 3), resamples=2))
    FigureCanvasAgg(figure).draw()
    assert "no slope is known (n = 24)" in words(figure) and "nan" not in words(figure)
