"""The explorers used in JupyterLab as a person would; every widget in both themes and by keyboard alone."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest
from lab import keep_picture
from looks import LOW_CONTRAST, UNNAMED, unreached
from mock_server import Reply
from test_widgets_in_lab import setup, solve

import cotkit
from cotkit.widgets import StrategyExplorer, ThresholdExplorer

ANALYSIS = str(pathlib.Path(__file__).parents[1] / "analysis")
sys.path.insert(0, ANALYSIS)
ROWS = f"""
import sys; sys.path.insert(0, {ANALYSIS!r})
import cotkit
from cotkit.widgets import StrategyExplorer, ThresholdExplorer
from scored import scored
rows = scored(150, 2, names=("steps", "consistency", "form"))
report = cotkit.tune_thresholds(rows, rule="any", resamples=2)
"""
RUNS = f"""
import sys; sys.path.insert(0, {ANALYSIS!r})
from cotkit.analysis import StrategyComparison
from cotkit.widgets import StrategyExplorer
from synthesis_rows import attempts, report as made, seeds
runs = {{name: attempts(name, 40, 0.7) for name in ("few_shot", "evol_instruct")}}
for row in runs["evol_instruct"][20:]:
    row.metadata["synthesis"]["lineage"] = [row.index - 20]
comparison = StrategyComparison.of(runs, {{name: made(rows) for name, rows in runs.items()}}, seeds(12))
"""


def here(cell, name):
    """What a cell leaves under a name, in this process."""
    names: dict = {}
    exec(cell, names)
    return names[name]


@pytest.mark.filterwarnings("ignore:.*does not record the judge's prompt")
def test_thresholds_are_moved_by_keyboard_and_saved(notebook, lab_folder):
    expected = ThresholdExplorer(here(ROWS, "report"))
    page = notebook(ROWS, "ThresholdExplorer(report)")
    shares = page.get_by_role("table", name="shares")
    shares.get_by_text(expected.shares["precision"].in_words("kept traces")).wait_for()
    row = page.locator(".widget-hbox").filter(has=page.get_by_role("spinbutton", name="steps", exact=True))
    row.locator(".noUi-handle").focus()
    for _ in range(10):
        page.keyboard.press("ArrowLeft")
    moved = round(expected.limits["steps"] - 0.1, 2)
    tuned = expected.confusion
    expected.choose("any", {**{name: expected.limits[name] for name in expected.used}, "steps": moved})
    assert expected.confusion != tuned
    page.get_by_text("set by hand: no certificate").wait_for()
    page.get_by_text(expected.in_words(), exact=True).wait_for()
    for name, of in (("precision", "kept traces"), ("recall", "right traces"), ("kept", "traces")):
        shares.get_by_text(expected.shares[name].in_words(of)).first.wait_for()
    cells = page.get_by_role("table", name="confusion").locator("td").all_inner_texts()
    assert [int(cell) for cell in cells] == list(expected.confusion.values())

    page.get_by_role("combobox", name="keep if").select_option(
        label="the mean of the scores reaches the threshold"
    )
    page.get_by_role("spinbutton", name="the mean").fill("0.55")
    page.keyboard.press("Enter")
    page.get_by_text("mean ≥ 0.55", exact=True).wait_for()
    page.locator(".noUi-handle:visible").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.get_by_text("mean ≥ 0.6", exact=True).wait_for()
    page.get_by_role("textbox", name="save as").fill("by_hand.json")
    page.get_by_role("button", name="Save thresholds").press("Enter")
    page.get_by_text("saved mean ≥ 0.6 in by_hand.json").wait_for()
    written = json.loads((lab_folder / "by_hand.json").read_text())
    assert written["rule"] == "mean" and written["thresholds"] == pytest.approx(0.6)
    assert written["certified"] is False and "set by hand" in written["reason"]
    with pytest.warns(UserWarning, match="no certificate"):
        assert cotkit.Thresholds.for_judge(lab_folder / "by_hand.json", cotkit.StepJudge()).rule == "mean"

    page.get_by_role("combobox", name="keep if").select_option(label="every used score reaches its threshold")
    page.get_by_role("checkbox", name="use consistency").check()
    page.get_by_text("steps ≥ 0.6 and consistency ≥ 0", exact=True).wait_for()
    page.get_by_role("button", name="As tuned").click()
    page.get_by_text(ThresholdExplorer(here(ROWS, "report")).in_words(), exact=True).wait_for()


def test_a_seed_is_chosen_and_a_lineage_followed(notebook):
    expected = StrategyExplorer(here(RUNS, "comparison"))
    page = notebook(RUNS, "StrategyExplorer(comparison)")
    output = page.locator(".cotkit-widget").first
    page.get_by_role("combobox", name="seed").select_option(index=3)
    expected.choose("s3")
    output.get_by_text(f"where {expected.followed[0]} {expected.followed[1]} comes from").wait_for()
    for strategy in expected.made:
        for attempt in expected.shown(strategy):
            assert output.get_by_text(expected.rows[attempt].problem).count() >= 1
    origin = page.get_by_role("combobox", name="origin of")
    assert len(origin.locator("option").all()) == len(expected.asked())
    evolved = next(attempt for attempt in expected.asked() if len(expected.lineage(attempt)) == 2)
    origin.select_option(index=expected.asked().index(evolved))
    output.get_by_text(f"where {evolved[0]} {evolved[1]} comes from").wait_for()
    steps = page.locator("ol.ck-steps li")
    assert steps.count() == 3 and "invert" in steps.nth(2).inner_text()
    assert steps.locator("ins").count() > 0

    points = page.locator(".ck-map g")
    assert points.count() == len(expected.comparison.map)
    ringed = page.locator(".ck-map g[tabindex='0']")
    accepted = [
        attempt for made in expected.made.values() for attempt in made if expected.rows[attempt].accepted
    ]
    assert ringed.count() == len(accepted) + 1
    origin.focus()
    page.keyboard.press("Tab")
    page.wait_for_function("() => document.activeElement.closest('.ck-map')")
    words = ringed.first.locator("title").text_content()
    assert ringed.first.locator("text").is_visible()
    assert ringed.first.locator("tspan").first.text_content().split()[:6] == words.split()[:6]
    assert (
        page.get_by_role("table", name="funnel").locator("tr").count()
        == expected.comparison.funnel["step"].nunique() + 1
    )


WIDGETS = {
    "RunMonitor": "widgets.RunMonitor(job)",
    "TraceBrowser": "widgets.TraceBrowser(run)",
    "PairInspector": "widgets.PairInspector(run)",
    "PromptPlayground": "widgets.PromptPlayground({'mock': model}, problems)",
    "ThresholdExplorer": "ThresholdExplorer(report)",
    "StrategyExplorer": "StrategyExplorer(comparison)",
}


def test_every_widget_is_read_in_both_themes_and_used_by_keyboard(serve, notebook):
    first = setup(serve(lambda request: Reply(solve(request), delay=0.05)), 12, width=2) + (
        "run = cotkit.distill(problems, model, cotkit.StepJudge(), max_iterations=1, run='seen')\n"
        "many = [cotkit.Problem(id=f'q{n}', problem=f'PID={n}; go on', reference='1') for n in range(5000)]\n"
        "job = cotkit.start_distill(many, model, max_iterations=0, run='going')\n"
    )
    page = notebook(first + ROWS + RUNS, *WIDGETS.values())
    page.set_viewport_size({"width": 1280, "height": 2400})  # all of each widget on its picture
    shown = page.locator(".cotkit-widget")
    page.locator(".ck-map").wait_for()
    faults = {}
    for scheme, light in (("light", "true"), ("dark", "false")):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function("light => document.body.dataset.jpThemeLight === light", arg=light)
        for name, widget in roots(shown):
            widget.scroll_into_view_if_needed()
            faults[name, scheme] = widget.evaluate(LOW_CONTRAST)
            keep_picture(widget, f"{name}_{scheme}")
    for name, widget in roots(shown):
        faults[name, "unnamed"] = widget.evaluate(UNNAMED)
        faults[name, "unreached"] = unreached(page, widget)
    page.get_by_role("button", name="Stop", exact=True).press("Enter")
    page.get_by_text("stopped by the user").first.wait_for()
    assert {where: found for where, found in faults.items() if found} == {}


def roots(shown):
    """The widgets in the order of their cells; a widget inside another belongs to that one."""
    outer = [one for one in shown.all() if one.evaluate("e => !e.parentElement.closest('.cotkit-widget')")]
    assert len(outer) == len(WIDGETS)
    return list(zip(WIDGETS, outer, strict=True))
