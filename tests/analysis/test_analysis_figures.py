"""Figures are drawn, measured and read: nothing cut off, nothing overlaps, and the numbers are there."""

from __future__ import annotations

import itertools
import threading
import time

import matplotlib.pyplot
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from synthetic_rows import candidate, make_report, make_rows
from synthetic_rows import row as synthetic_row

from cotkit import analysis
from cotkit.analysis import figures

CASES = {
    "a dozen": make_rows(12, endpoint_fails=0),
    "a thousand": make_rows(1000),
    "rationalized": make_rows(14, skill=0.2, rationalization=True),
    "no reference": make_rows(6, reference=False),
    "no judge, one draft": make_rows(6, judge=False, drafts=1, max_iterations=0),
    "one problem": make_rows(1, endpoint_fails=0),
    "no rows": [],
}
FIGURES = {
    "funnel": lambda rows, report: figures.funnel(analysis.funnel(rows, report)),
    "acceptance": lambda rows, report: figures.acceptance(analysis.acceptance_by_iteration(rows)),
    "accuracy": lambda rows, report: figures.accuracy(analysis.accuracy_comparison(rows)),
    "scores": lambda rows, report: figures.scores(
        analysis.candidates_frame(rows), analysis.judge_agreement(rows)
    ),
    "lengths": lambda rows, report: figures.lengths(analysis.candidates_frame(rows)),
    "calls": lambda rows, report: figures.calls(analysis.throughput(rows, report)),
}
DRAWN = [
    *itertools.product(FIGURES, ["a dozen", "a thousand", "rationalized"]),
    *itertools.product(["scores", "lengths"], ["no reference"]),
    *itertools.product(["acceptance", "accuracy", "calls"], ["no judge, one draft", "one problem"]),
    *itertools.product(["funnel", "lengths"], ["no rows"]),
]


def drawn(name, rows, **report):
    figure = FIGURES[name](rows, make_report(rows, **report))
    FigureCanvasAgg(figure).draw()
    return figure


def visible_texts(figure):
    found = [t for t in figure.findobj(matplotlib.text.Text) if t.get_visible() and t.get_text().strip()]
    ticks = {label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for label in _outside(axis)}
    return [t for t in found if t not in ticks]


def _outside(axis):
    """Labels of ticks beyond the axis limits: they exist, but are not drawn."""
    low, high = sorted(axis.get_view_interval())
    ticks = axis.get_major_ticks() + axis.get_minor_ticks()
    return [tick.label1 for tick in ticks if not low <= tick.get_loc() <= high] + [
        tick.label2 for tick in ticks
    ]


def words(figure):
    return (
        " ".join(t.get_text() for t in visible_texts(figure))
        .replace("\n", " ")
        .replace("\N{NO-BREAK SPACE}", " ")
    )


@pytest.mark.parametrize("name, case", DRAWN)
def test_no_text_is_cut_off_or_on_top_of_another(name, case):
    figure = drawn(name, CASES[case], given=len(CASES[case]) + 2)
    page = figure.bbox
    boxes = [(t.get_text(), t.get_window_extent()) for t in visible_texts(figure)]
    assert boxes
    for text, box in boxes:
        inside = (
            page.x0 - 1 <= box.x0
            and box.x1 <= page.x1 + 1
            and page.y0 - 1 <= box.y0
            and box.y1 <= page.y1 + 1
        )
        assert inside, f"{text!r} is cut off"
    for (text, box), (other, other_box) in itertools.combinations(boxes, 2):
        shared = box.intersection(box, other_box)
        assert shared is None or shared.width < 2 or shared.height < 2, f"{text!r} lies on {other!r}"


@pytest.mark.parametrize("name", FIGURES)
def test_figures_leave_nothing_open_and_the_users_style_alone(name):
    before = dict(matplotlib.rcParams)
    drawn(name, CASES["a dozen"])
    assert matplotlib.pyplot.get_fignums() == []
    assert dict(matplotlib.rcParams) == before


def test_the_funnel_shows_counts_reasons_and_the_interval():
    rows = CASES["a thousand"]
    text = words(drawn("funnel", rows))
    kept = sum(r.accepted for r in rows)
    assert f"{kept} of 1,000 problems kept: {kept / 10:.0f} %, 95 % interval" in text
    assert "model_timeout" in text and "wrong_answer" in text
    assert f", {sum(r.best.rationalized for r in CASES['rationalized'] if r.accepted)} with a hint" in words(
        drawn("funnel", CASES["rationalized"])
    )
    assert "2 unfinished" in words(drawn("funnel", rows, given=1002))


def test_the_bars_of_the_funnel_are_as_long_as_the_counts():
    rows = CASES["a thousand"]
    frame = analysis.funnel(rows, make_report(rows))
    bars, losses = drawn("funnel", rows).axes[0].containers
    assert [bar.get_width() for bar in bars] == frame["problems"].tolist()
    assert [bar.get_width() for bar in losses] == frame["lost"].tolist()


def test_accuracy_draws_every_interval_and_marks_where_the_reference_helped():
    rows = CASES["a thousand"]
    frame = analysis.accuracy_comparison(rows)
    lines = drawn("accuracy", rows).axes[0].get_lines()
    spans = [tuple(line.get_xdata()) for line in lines[0::2]]
    assert spans == list(zip(frame["accuracy_low"], frame["accuracy_high"], strict=True))
    hollow = [line.get_markerfacecolor() == "white" for line in lines[1::2]]
    assert hollow == frame["sees_reference"].tolist()


def test_acceptance_draws_its_intervals_and_says_what_each_round_did():
    rows = CASES["a dozen"]
    figure, frame = drawn("acceptance", rows), analysis.acceptance_by_iteration(rows)
    segments = figure.axes[0].containers[0][2][0].get_segments()
    assert [s[0][1] for s in segments] == pytest.approx(frame["share_low"].tolist())
    assert [s[1][1] for s in segments] == pytest.approx(frame["share_high"].tolist())
    assert f"{frame['fixed'][1]} fixed, {frame['broken'][1]} broken" in words(figure)


def test_right_scores_go_up_and_wrong_ones_down():
    figure = drawn("scores", CASES["a thousand"])
    for axes in figure.axes:
        up, down = axes.containers
        assert sum(bar.get_height() for bar in up) == pytest.approx(1)
        assert sum(bar.get_height() for bar in down) == pytest.approx(-1)
    assert "AUC" in words(figure)


def scored(*scores):
    """Candidates of which every second one is right, with these scores of the dimensions a, b, ..."""
    rows = [
        synthetic_row(i, [candidate(i % 2 == 0, scores=dict(zip("abcdef", values, strict=False)))])
        for i, values in enumerate(scores)
    ]
    return analysis.candidates_frame(rows)


@pytest.mark.parametrize(
    "rewards",
    [
        [0.0, 4.0, 3.0, 1.0] * 5,
        [-31.5, 12.25, 7.0, 0.5] * 5,
        [2.5] * 20,
        [1e6, 2e6] * 10,
        [0.0, 1.0, 0.3, 0.7] * 5,
    ],
    ids=["whole", "any", "one value", "large", "tenths"],
)
def test_rewards_of_any_range_are_all_drawn(rewards):
    figure = figures.scores(scored(*([reward] for reward in rewards)))
    FigureCanvasAgg(figure).draw()
    (axes,) = figure.axes
    up, down = axes.containers
    assert sum(bar.get_height() for bar in up) == pytest.approx(1)
    assert sum(bar.get_height() for bar in down) == pytest.approx(-1)
    low, high = axes.get_xlim()
    assert low < min(rewards) and max(rewards) < high
    for bar, height in ((bar, abs(bar.get_height())) for bar in (*up, *down)):
        inside = [r for r in rewards if abs(r - bar.get_x() - bar.get_width() / 2) <= bar.get_width() / 1.7]
        assert bool(inside) or not height
    assert "Judge scores of 10 right and 10 wrong traces" in words(figure)


@pytest.mark.parametrize(
    "count, panels, left",
    [
        (1, "a", ""),
        (2, "a b mean", ""),
        (3, "a b c mean", ""),
        (4, "a b c mean", "d"),
        (5, "a b c mean", "d, e"),
    ],
)
def test_dimensions_that_find_no_place_are_named(count, panels, left):
    figure = figures.scores(scored(*([0.1 * (i % 9)] * count for i in range(20))))
    FigureCanvasAgg(figure).draw()
    assert [axes.get_title() for axes in figure.axes] == panels.split()
    assert (f"not drawn: {left}" in words(figure)) if left else ("not drawn" not in words(figure))


def test_figures_of_two_threads_leave_the_users_style_alone():
    before, one, two = dict(matplotlib.rcParams), threading.Event(), threading.Event()

    def beside():
        one.wait(10)
        with figures.style():
            two.wait(0.2)

    thread = threading.Thread(target=beside)
    thread.start()
    with figures.style():
        one.set()
        time.sleep(0.05)
    two.set()
    thread.join()
    assert dict(matplotlib.rcParams) == before


def test_lengths_say_n_and_unit():
    text = words(drawn("lengths", CASES["a dozen"]))
    frame = analysis.candidates_frame(CASES["a dozen"])
    assert f"(n = {int(frame['correct'].sum())})" in text and "completion tokens" in text
    without_usage = frame.assign(completion_tokens=frame["completion_tokens"].where(frame.index > 0))
    figure = figures.lengths(without_usage)
    FigureCanvasAgg(figure).draw()
    assert "characters" in words(figure)


def test_unknown_tokens_are_no_empty_bar():
    rows = CASES["a dozen"]
    report = make_report(rows)
    for counts in (report["ledger"], *report["ledger"]["by_role"].values()):
        counts["prompt_tokens"] = counts["completion_tokens"] = None
    figure = figures.calls(analysis.throughput(rows, report))
    FigureCanvasAgg(figure).draw()
    assert words(figure).count("unknown") == 3  # two roles, and the cost in the title


def test_names_with_dollars_are_not_set_as_mathematics():
    rows = [
        r.model_copy(update={"drop_reason": "$x_1$ and $"}) if not r.accepted else r for r in CASES["a dozen"]
    ]
    assert r"\$x_1\$ and \$" in words(drawn("funnel", rows))


@pytest.mark.parametrize(
    "name, says", [("accuracy", "no accuracy"), ("scores", "judge's score"), ("calls", "No call")]
)
def test_a_figure_without_data_says_so(name, says):
    assert says in words(drawn(name, []))
