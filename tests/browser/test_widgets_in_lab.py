"""Widgets used in JupyterLab as a person would: by mouse and keyboard, and what that left on the disk."""

from __future__ import annotations

import json
import re

from mock_server import Reply

SETUP = """
import re, cotkit
from cotkit import widgets
problems = [
    cotkit.Problem(id=f"p{{n}}", problem=f"PID={{n}}; what is ${{n}} + {{n}}$?", reference=str(2 * n))
    for n in range({count})
]
model = cotkit.ChatModel("mock", base_url="{base_url}", max_concurrency={width})
"""


def setup(server, count, width=8):
    return SETUP.format(count=count, base_url=server.base_url, width=width)


def solve(request):
    n = int(re.search(r"PID=(\d+)", request.user)[1])
    if n % 3 == 0 and "review" not in request.system:
        return f"We add: {n} + {n} = {2 * n + 1}, so it is \\boxed{{{2 * n + 1}}}."
    return f"We add: {n} + {n} = {2 * n}. The answer is \\boxed{{{2 * n if n % 5 else -1}}}."


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_traces_are_filtered_read_and_labelled(serve, notebook, lab_folder):
    server = serve(solve)
    page = notebook(
        setup(server, 12)
        + "judge = cotkit.StepJudge()\n"
        + "run = cotkit.distill(problems, model, judge, max_iterations=1, run='browsed', show='none')",
        "widgets.TraceBrowser(run)",
    )
    page.get_by_text("problem 1 of 12").wait_for()
    page.locator("mjx-container, .MathJax").first.wait_for()
    page.get_by_role("combobox", name="outcome").select_option("dropped")
    page.get_by_text("problem 1 of 3").wait_for()
    page.get_by_role("button", name="Next").focus()
    page.keyboard.press("Enter")
    page.get_by_text("problem 2 of 3").wait_for()
    page.locator(".jp-OutputArea-output", has_text="p5").first.wait_for()
    page.get_by_role("combobox", name="candidate").select_option(index=0)
    page.locator(".jp-OutputArea-output").get_by_text("We add: 5 + 5 = 10").first.wait_for()
    page.get_by_role("textbox", name="note").fill("adds wrongly")
    page.get_by_role("button", name="Bad").click()
    page.get_by_text("labelled bad").wait_for()
    said = lines(lab_folder / "runs/browsed/labels.jsonl")
    assert [(one["id"], one["label"], one["note"]) for one in said] == [("p5", "bad", "adds wrongly")]
    page.get_by_role("textbox", name="save as").fill("chosen.jsonl")
    page.get_by_role("button", name="Save selection").click()
    page.get_by_text(f"3 problems in {lab_folder / 'chosen.jsonl'}").wait_for()
    assert [row["id"] for row in lines(lab_folder / "chosen.jsonl")] == ["p0", "p5", "p10"]


def test_a_run_is_watched_stopped_and_resumed(serve, notebook, lab_folder):
    server = serve(lambda request: Reply(solve(request), delay=0.05))
    page = notebook(
        setup(server, 2000, width=2)
        + "start = lambda: cotkit.start_distill(problems, model, max_iterations=0, run='watched')",
        "widgets.RunMonitor(start(), start)",
        "print('CELLS ARE FREE')",
    )
    page.locator(".jp-OutputArea-output", has_text="CELLS ARE FREE").first.wait_for()
    done = "document.querySelector('[aria-label=\"problems done\"]')?.getAttribute('aria-valuenow')"
    page.wait_for_function(f"() => +{done} > 3")
    page.locator("img[alt='The run over time']").first.wait_for()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_text("stopped by the user").first.wait_for()
    page.wait_for_function(
        "() => [...document.querySelectorAll('button')].find(b => b.textContent === 'Cancel').disabled"
    )
    report = json.loads((lab_folder / "runs/watched/report.json").read_text())
    assert report["stopped"] == "stopped by the user" and 3 < report["kept"] < 2000
    asked = server.calls
    assert server.in_flight == 0 and asked < 2000
    page.get_by_role("button", name="Resume", exact=True).press("Enter")
    page.wait_for_function(f"asked => +{done} > asked + 3", arg=asked)
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_text("stopped by the user").first.wait_for()
    assert server.calls > asked


def test_pairs_are_judged_blind(serve, notebook, lab_folder):
    page = notebook(
        "from cotkit.widgets import PairInspector\n"
        "pairs = [{'prompt': f'q{n}', 'chosen': f'fine {n}', 'rejected': f'poor {n}'} for n in range(3)]\n"
        "PairInspector(pairs, path='said.jsonl')",
    )
    for number in (1, 2, 3):
        page.get_by_text(f"pair {number} of 3").first.wait_for()
        cells = page.locator("table.ck td")
        better = "A" if "fine" in cells.nth(0).inner_text() else "B"
        page.get_by_role("button", name=f"{better} is better").click()
    page.get_by_text("3 labelled").first.wait_for()
    assert [one["agrees"] for one in lines(lab_folder / "said.jsonl")] == [True, True, True]


def test_a_prompt_is_tried(serve, notebook):
    server = serve(solve)
    page = notebook(setup(server, 3), "widgets.PromptPlayground({'mock': model}, problems)")
    page.get_by_text("what is sent").first.wait_for()
    page.get_by_role("combobox", name="problem").select_option(index=1)
    page.get_by_role("textbox", name="prompt").fill("Solve now: {{ problem }}")
    page.get_by_role("textbox", name="prompt").press("Tab")
    page.locator(".jp-OutputArea-output").get_by_text("Solve now: PID=1").first.wait_for()
    page.get_by_role("button", name="Try it").click()
    page.get_by_text("✓ right").wait_for()
    assert server.log[-1].user.startswith("Solve now: PID=1")
