"""Widgets without a browser: their state, what they write, and what a saved notebook shows of them."""

from __future__ import annotations

import json
import re
import threading
import time

import ipywidgets
import pytest
from mock_server import Reply

import cotkit
from cotkit.pipelines.progress import Progress
from cotkit.problems import Problem
from cotkit.runs import labels_frame
from cotkit.verify import isolation
from cotkit.widgets import ModelPicker, PairInspector, PromptPlayground, RunMonitor, TraceBrowser
from cotkit.widgets.base import Widget, mathematics
from cotkit.widgets.monitor import MOMENTS, History
from cotkit.widgets.trace_set import TraceSet
from cotkit.widgets.words import word_diff


def problems(count):
    return [
        Problem(
            id=f"p{n}", problem=f"PID={n}; what is {n} + {n}?", reference=str(2 * n), type=f"kind {n % 2}"
        )
        for n in range(count)
    ]


def solve(request):
    n = int(re.search(r"PID=(\d+)", request.user)[1])
    if n % 3 == 0 and "review" not in request.system:
        return f"{n} + {n} = {2 * n + 1}, so \\boxed{{{2 * n + 1}}}."
    return (
        f"{n} + {n} = {2 * n}. <script>alert(1)</script> The answer is \\boxed{{{2 * n if n % 5 else -1}}}."
    )


@pytest.fixture
def run(serve, tmp_path):
    model = cotkit.ChatModel("mock", base_url=serve(solve).base_url)
    return cotkit.distill(
        problems(12), model, cotkit.StepJudge(), max_iterations=1, run=tmp_path / "r", show="none"
    )


def ids(browser):
    return [line.id for line in browser.traces.chosen]


def test_the_browser_filters_sorts_and_steps(run):
    browser = TraceBrowser(run)
    assert ids(browser) == [f"p{n}" for n in range(12)]
    browser.show(outcome="dropped")
    assert ids(browser) == ["p0", "p5", "p10"]
    browser.next()
    assert browser.traces.row.id == "p5" and "problem 2 of 3" in browser.where()
    browser.next(), browser.next()
    assert browser.traces.row.id == "p10", "it stays at the end"
    browser.previous()
    assert browser.traces.row.id == "p5"
    browser.show(outcome="any", type="kind 1", search="PID=1")
    assert ids(browser) == ["p1", "p11"]
    browser.show(type="any", search="", iterations=(1, 9))
    assert ids(browser) == ["p0", "p3", "p5", "p6", "p9", "p10"]
    browser.show(iterations=None, sort="length")
    lengths = [line.length for line in browser.traces.chosen]
    assert lengths == sorted(lengths, reverse=True)
    browser.show(length=(lengths[5], lengths[1]))
    assert {line.length for line in browser.traces.chosen} == set(lengths[1:6])
    browser.show(length=None, score=(0.9, 1.0))
    assert 0 < len(ids(browser)) < 12 and all(line.score >= 0.9 for line in browser.traces.chosen)


@pytest.mark.parametrize("wrong", [{"sort": "colour"}, {"colour": "red"}])
def test_an_unknown_filter_is_refused(run, wrong):
    with pytest.raises(ValueError, match="colour"):
        TraceBrowser(run).show(**wrong)


def test_a_filter_that_lets_nothing_through_says_so(run):
    browser = TraceBrowser(run)
    browser.show(search="no such words")
    assert browser.traces.row is None
    assert "no problem of 12" in browser.static() and "no problem of 12" in repr(browser)
    with pytest.raises(ValueError, match="no trace"):
        browser.label("good")


def test_labels_are_written_at_once_and_the_last_one_holds(run):
    browser = TraceBrowser(run)
    browser.show(search="p3")
    browser.label("bad", note="lucky")
    browser.label("good", note="looked again")
    browser.label("unsure", candidate=0)
    frame = labels_frame(run).set_index("candidate")
    final = browser.traces.row.final
    assert frame.loc[final, "label"] == "good" and frame.loc[final, "note"] == "looked again"
    assert frame.loc[0, "label"] == "unsure" and len(frame) == 2
    again = TraceBrowser(run)
    again.show(label="none")
    assert "p3" not in ids(again) and len(ids(again)) == 11
    with pytest.raises(ValueError, match="good, bad, unsure"):
        browser.label("great")
    with pytest.raises(ValueError, match="no candidate -1"):
        browser.label("good", candidate=-1)


def test_a_label_of_a_trace_that_another_has_replaced_is_not_shown(run):
    browser = TraceBrowser(run)
    browser.show(search="p3")
    browser.label("good", candidate=0)
    assert TraceSet(run).labels
    for path in (run.path / "rows.jsonl", run.path / "drops.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for record in records:
            record["candidates"] = [c | {"trace": "another"} for c in record["candidates"]]
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert not TraceSet(run).labels


def test_the_selection_is_exported_as_whole_rows(run, tmp_path):
    browser = TraceBrowser(run)
    browser.show(outcome="kept", type="kind 0")
    path = browser.export(tmp_path / "out" / "some.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["id"] for row in rows] == ids(browser) and all(row["candidates"] for row in rows)


def test_a_trace_whose_judge_gave_no_number_is_browsed_without_a_score(run):
    lines = [json.loads(line) for line in (run.path / "rows.jsonl").read_text().splitlines()]
    for row in lines:
        for candidate in row["candidates"]:
            candidate["judgement"]["scores"] = {"arithmetic": None, "clarity": 0.5}  # JSON has no NaN
    (run.path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    browser = TraceBrowser(run)
    assert lines[0]["id"] in ids(browser)
    assert {line.score for line in browser.traces.lines if line.file == "rows.jsonl"} == {None}


def test_ten_thousand_problems_are_browsed_without_reading_them_all(run, tmp_path):
    line = (run.path / "rows.jsonl").read_text().splitlines()[0]
    record = json.loads(line)
    with open(run.path / "rows.jsonl", "w") as rows:
        for n in range(10_000):
            rows.write(json.dumps({**record, "id": f"q{n}", "index": n}) + "\n")
    (run.path / "drops.jsonl").write_text("")
    started = time.process_time()
    browser = TraceBrowser(run)
    opened = time.process_time() - started
    started = time.process_time()
    for _ in range(100):
        browser.next()
        assert browser.traces.row.id == f"q{browser.traces.place}"
    stepping = time.process_time() - started
    assert stepping < opened, "a step must not read the whole run"
    browser.show(search="q9999")
    assert ids(browser) == ["q9999"]


def test_a_problem_is_found_by_the_label_of_any_of_its_traces(run):
    browser = TraceBrowser(run)
    browser.show(search="p3")
    browser.label("bad", candidate=0)
    browser.label("good", candidate=1)
    browser.show(search="")
    for label in ("bad", "good"):
        browser.show(label=label)
        assert ids(browser) == ["p3"]
    browser.show(label="none")
    assert "p3" not in ids(browser)


def test_a_home_folder_is_found_for_what_is_written(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert TraceBrowser(run).export("~/some.jsonl") == tmp_path / "home" / "some.jsonl"
    inspector = PairInspector([{"prompt": "p", "chosen": "a", "rejected": "b"}], path="~/said.jsonl")
    inspector.say("A")
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["said.jsonl", "some.jsonl"]
    assert not (tmp_path / "~").exists()


def controls(view):
    return [view, *(inner for child in getattr(view, "children", ()) for inner in controls(child))]


def test_half_an_emoji_is_browsed_labelled_and_sent_to_the_page(run):
    for path in (run.path / "rows.jsonl", run.path / "drops.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for record in records:
            record |= {"id": record["id"] + "\ud83d", "problem": "\ud83d", "type": "t\ud83d"}
            record["candidates"] = [c | {"trace": "\ud83d", "answer": "\ud83d"} for c in record["candidates"]]
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    model = cotkit.ChatModel("m", base_url="http://127.0.0.1:1/v1")
    problem = Problem(id="\ud83d", problem="\ud83d", reference="\ud83d")
    browser = TraceBrowser(run)
    for widget in (browser, PromptPlayground({"m\ud83d": model}, [problem], "{{ problem }} \ud83d")):
        for control in controls(widget.view):
            json.dumps(control.get_state(), default=repr, ensure_ascii=False).encode("utf-8")
        json.dumps(widget._repr_mimebundle_(), ensure_ascii=False).encode("utf-8")
    browser._filters["type"].value = "t\ud83d"
    browser.next()
    browser.label("good")
    assert browser.traces.row.id == "p1\ud83d" and "of 12" in browser._where.value
    browser.show(label="good")
    assert ids(browser) == ["p1\ud83d"]


def test_what_cannot_be_drawn_is_said_and_the_controls_go_on():
    class Faulty(Widget):
        place = 0

        def build(self):
            self.control = ipywidgets.IntText()
            self.heed(self.control, self.go)
            return [self.control]

        def go(self, place):
            self.place = place
            self.redraw()

        def draw(self):
            if self.place == 1:
                raise ValueError("no <such> place")

    def alert():
        shown = [str(control.value) for control in controls(widget.view) if hasattr(control, "value")]
        return [value for value in shown if value.startswith("<div role='alert'")]

    widget = Faulty()
    assert not alert()
    with pytest.raises(ValueError, match="no <such> place"):
        widget.control.value = 1
    assert alert() == ["<div role='alert'>not drawn: ValueError: no &lt;such&gt; place</div>"]
    widget.control.value = 2
    assert widget.place == 2 and not alert()


@pytest.mark.parametrize("make", ["browser", "pairs", "picker", "playground"])
def test_a_saved_notebook_shows_every_widget_and_runs_no_word_of_a_model(run, make):
    model = cotkit.ChatModel("<b>m</b>", base_url="http://127.0.0.1:1/v1")
    widget = {
        "browser": lambda: TraceBrowser(run),
        "pairs": lambda: PairInspector(run),
        "picker": lambda: ModelPicker({"<i>x</i>": model}),
        "playground": lambda: PromptPlayground({"x": model}, problems(2)),
    }[make]()
    bundle = widget._repr_mimebundle_()
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert "<script" not in bundle["text/html"] and "<i>x" not in bundle["text/html"]
    assert len(bundle["text/html"]) > 300 and type(widget).__name__ in bundle["text/plain"]


def test_a_headless_run_makes_no_widget(run, monkeypatch):
    monkeypatch.setenv("COTKIT_REPORT", "1")
    assert set(TraceBrowser(run)._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_the_view_follows_the_buttons(run):
    browser = TraceBrowser(run)
    assert browser.view is browser.view
    browser._filters["outcome"].value = "dropped"
    assert "of 3" in browser._where.value
    least, _ = browser._spans["iterations"]
    browser._filters["outcome"].value, least.value = "any", 1
    assert browser.traces.filter.iterations == (1, 1) and "of 6" in browser._where.value
    least.value = 0
    assert browser.traces.filter.iterations is None, "at the ends a box filters nothing"
    browser.show(outcome="dropped")
    assert browser._filters["outcome"].value == "dropped"
    buttons = {b.description: b for box in browser.view.children for b in getattr(box, "children", ())
               if hasattr(b, "click")}  # fmt: skip
    buttons["Next ▶"].click()
    assert browser.traces.row.id == "p5" and "p5" in browser._problem.value
    browser._note.value = "a reason"
    buttons["Bad"].click()
    assert "labelled <b>bad</b>" in browser._said.value
    assert labels_frame(run)["note"].tolist() == ["a reason"]
    browser._candidates.value = len(browser.traces.row.candidates) - 1
    buttons["Good"].click()
    assert "labelled <b>good</b>" in browser._said.value and "refinement 1" in browser._candidates.label


@pytest.mark.parametrize(
    "words, typeset",
    [
        ("a pen costs $2.75 and a cap $6.25 each", []),
        ("from $20,000 to $30,000", []),
        ("so $x < 3$, that is $$x \\in A$$", ["$x &lt; 3$", "$$x \\in A$$"]),
        ("or \\(x^2\\) or \\[x\n+1\\]", ["\\(x^2\\)", "\\[x\n+1\\]"]),
        ("$\\$5$ is $5", ["$\\$5$"]),
    ],
)  # fmt: skip
def test_formulas_are_typeset_and_prices_are_not(words, typeset):
    left = re.split(r"<span class='mathjax_ignore tex2jax_ignore'>.*?</span>", mathematics(words), flags=re.S)
    assert [part for part in left if part] == typeset


@pytest.mark.parametrize(
    "before, after, marked",
    [
        ("a b c", "a b c", "a b c"),
        ("2 + 2 = 5", "2 + 2 = 4", "2 + 2 = <del>5</del><ins>4</ins>"),
        ("", "new <b>", "<ins>new &lt;b&gt;</ins>"),
        ("gone", "", "<del>gone</del>"),
    ],
)
def test_changed_words_are_marked(before, after, marked):
    assert word_diff(before, after) == marked


def test_very_long_texts_are_compared_by_line():
    before = "\n".join(f"line {n} " + "word " * 20 for n in range(1000))
    after = before.replace("line 500 ", "line five hundred ")
    assert word_diff(before, after).count("<ins>") == 1


PAIRS = [{"prompt": f"q{n}", "chosen": f"right {n}", "rejected": f"wrong {n}"} for n in range(20)]


def test_pairs_are_shown_blind_and_shuffled_the_same_each_time(tmp_path):
    inspector = PairInspector(PAIRS, path=tmp_path / "said.jsonl")
    order, left = [], []
    for _ in PAIRS:
        a, _ = inspector.sides
        order.append(inspector.pairs[inspector.place]["prompt"])
        left.append(a.startswith("right"))
        page = inspector.static()
        assert "chosen" not in page and "rejected" not in page
        inspector.step(1)
    assert order != [p["prompt"] for p in PAIRS] and 3 < sum(left) < 17
    again = PairInspector(PAIRS, path=tmp_path / "said.jsonl")
    assert [p["prompt"] for p in again.pairs] == order


def test_reasoning_that_stands_apart_from_the_answer_is_shown(tmp_path):
    def said(reasoning):
        return [{"role": "assistant", "reasoning_content": reasoning, "content": "It is 4."}]

    pair = {
        "prompt": [{"role": "user", "content": "2 + 2?"}],
        "chosen": said("2 + 2 = 4."),
        "rejected": said(None),
    }
    inspector = PairInspector([pair], path=tmp_path / "said.jsonl")
    assert set(inspector.sides) == {"2 + 2 = 4.\n\nIt is 4.", "It is 4."}
    assert inspector.pairs[0]["prompt"] == "2 + 2?"


def test_agreement_is_counted_from_what_was_said_and_survives(tmp_path):
    inspector = PairInspector(PAIRS, path=tmp_path / "deep" / "said.jsonl")
    for n in range(10):
        a, _ = inspector.sides
        right = "A" if a.startswith("right") else "B"
        inspector.say({8: "tie", 9: "B" if right == "A" else "A"}.get(n, right))
        assert "agree" not in inspector.static(), "what is said too early unblinds"
    again = PairInspector(PAIRS, path=tmp_path / "deep" / "said.jsonl")
    assert again.place == 10, "it goes on at the first pair that was not labelled"
    rate = again.agreement()
    assert (rate.successes, rate.n) == (8, 9)
    with pytest.raises(ValueError, match="A, B or tie"):
        again.say("chosen")
    first = PairInspector(PAIRS, path=tmp_path / "deep" / "said.jsonl", limit=10)
    assert "you agree with the data in 8 of 9 pairs (89 %" in first.static()


@pytest.mark.parametrize(
    "pairs, message", [([], "no pair"), ([{"prompt": "q", "chosen": "a"}], "rejected is missing")]
)
def test_pairs_that_are_none_are_refused(tmp_path, pairs, message):
    with pytest.raises(ValueError, match=message):
        PairInspector(pairs, path=tmp_path / "said.jsonl")


def test_a_run_s_pairs_hold_its_traces(run):
    inspector = PairInspector(run)
    assert inspector.path.parent == run.path
    assert all(pair["chosen"] != pair["rejected"] for pair in inspector.pairs)


def test_the_monitor_follows_a_job_to_its_end(serve, tmp_path):
    model = cotkit.ChatModel("mock", base_url=serve(solve).base_url, max_concurrency=2)
    job = cotkit.start_distill(problems(12), model, max_iterations=0, run=tmp_path / "r", budget_calls=500)
    monitor = RunMonitor(job)
    _ = monitor.view
    job.result(60)
    monitor._thread.join(30)
    numbers = monitor.numbers()
    assert monitor.state == "finished" and numbers["done"] == "12 of 12"
    assert numbers["kept"].startswith("0.50 [") and numbers["right"] == "6 of 12 final traces"
    assert numbers["calls"] == "12 of 500" and numbers["undecided"] is None
    assert monitor._stop.disabled and monitor._cancel.disabled and monitor._resume.disabled
    page = monitor.static()
    assert "6 wrong_answer" in page and "aria-valuenow='12'" in page
    assert repr(monitor).startswith("RunMonitor(finished: 12/12 done, 6 kept, 6 dropped (6 wrong_answer)")


@pytest.mark.parametrize("kept, state", [(10, "finished"), (9, "stopped")])
def test_a_run_that_has_as_many_as_were_wanted_is_finished(kept, state):
    class Job:
        progress = Progress("s", 50, kept=kept, drops={"novelty": 4}, enough=10).snapshot() | {"budgets": {}}

        def done(self):
            return True

    monitor = RunMonitor(Job(), Job)
    _ = monitor.view
    monitor._thread.join(30)
    assert monitor.state == state and monitor._resume.disabled == (state == "finished")
    assert monitor.numbers()["wanted"] == f"{kept} of 10 kept"


def test_stop_in_the_monitor_ends_the_run_cleanly_and_resume_goes_on(serve, tmp_path):
    server = serve(lambda request: Reply(solve(request), delay=0.05))
    model = cotkit.ChatModel("mock", base_url=server.base_url, max_concurrency=1)

    def start():
        return cotkit.start_distill(problems(60), model, max_iterations=0, run=tmp_path / "r")

    monitor = RunMonitor(start(), start)
    _ = monitor.view
    with pytest.raises(ValueError, match="only a stopped run goes on"):
        monitor.resume()
    while not monitor.job.progress["done"]:
        monitor.job.wait(0.02)
    monitor._stop.click()
    run = monitor.job.result(60)
    monitor._thread.join(30)
    assert monitor.state == "stopped" and "stopped by the user" in monitor.static()
    assert run.report["drops"]["unfinished"] > 30 and not monitor._resume.disabled
    monitor._resume.click()
    assert monitor.job.result(60).report["given"] == 60 and server.calls == 60, "nothing is asked twice"
    monitor._thread.join(30)
    assert monitor.state == "finished" and monitor._resume.disabled


def test_a_run_is_resumed_before_its_monitor_is_shown(serve, tmp_path, monkeypatch):
    failed = []
    monkeypatch.setattr(threading, "excepthook", lambda args: failed.append(args.exc_value))
    server = serve(lambda request: Reply(solve(request), delay=0.02))
    model = cotkit.ChatModel("mock", base_url=server.base_url, max_concurrency=1)

    def start():
        return cotkit.start_distill(problems(12), model, max_iterations=0, run=tmp_path / "r")

    monitor = RunMonitor(start(), start)
    while not monitor.job.progress["done"]:
        monitor.job.wait(0.02)
    monitor.stop()
    monitor.job.result(60)
    monitor.refresh()
    monitor.resume()
    monitor.job.result(60)
    for thread in [t for t in threading.enumerate() if t.name == "cotkit-monitor"]:
        thread.join(10)
    _ = monitor.view
    monitor._thread.join(30)
    assert monitor.state == "finished" and not failed and "12 of 12" in monitor._html.value


def test_the_history_stays_small():
    history = History()
    now = {"seconds": 0.0, "done": 0, "kept": 0, "models": []}
    for second in range(20 * MOMENTS):
        history.add({**now, "seconds": second})
    assert MOMENTS / 4 < len(history.moments) <= MOMENTS
    times = [moment["seconds"] for moment in history.moments]
    assert times == sorted(times) and times[-1] > 19 * MOMENTS


def test_the_playground_shows_what_is_sent_and_what_came(serve):
    server = serve(solve)
    model = cotkit.ChatModel("mock", base_url=server.base_url)
    playground = PromptPlayground({"m": model}, problems(4), prompt="Solve: {{ problem }}")
    playground.place = 1
    assert playground.messages() == [{"role": "user", "content": "Solve: PID=1; what is 1 + 1?"}]
    assert playground.try_it().text.startswith("1 + 1 = 2") and playground.verdict.correct
    page = playground.static()
    assert "✓ right" in page and "completion tokens" in page
    assert server.log[0].user == "Solve: PID=1; what is 1 + 1?"


@pytest.mark.skipif(isolation().weak, reason="no program runs on this machine")
def test_the_playground_verifies_as_a_run_does(serve):
    model = cotkit.ChatModel("mock", base_url=serve(lambda request: "\\boxed{[2, 1]}").base_url)
    check = "def check(answer):\n    return sorted(answer) == sorted('[1, 2]')"
    asked = {"id": "p", "problem": "Name an order of 1, 2.", "metadata": {"check_code": check}}
    for reference in ("[1, 2]", None):
        playground = PromptPlayground({"m": model}, [Problem(**asked, reference=reference)])
        playground.try_it()
        assert (playground.verdict.correct, playground.verdict.method) == (True, "check")
    assert "✓ right (check" in playground.static()


def test_the_playground_shows_errors_instead_of_raising(serve):
    server = serve(lambda request: Reply(status=401, error="bad key"))
    model = cotkit.ChatModel("mock", base_url=server.base_url)
    playground = PromptPlayground({"m": model}, problems(1))
    assert playground.try_it() is None and "failed:" in playground.static()
    playground.prompt = "{{ nothing_like_it }}"
    assert playground.try_it() is None and "cannot be rendered" in playground.static()


def test_the_picker_picks(serve):
    models = {name: cotkit.ChatModel(name, base_url="http://127.0.0.1:1/v1") for name in ("a", "b")}
    picker = ModelPicker(models)
    _ = picker.view
    picker._choice.value = "b"
    assert picker.model is models["b"] and "<b>b</b>" in picker._shown.value
    with pytest.raises(ValueError, match="no model 'c'"):
        picker.pick("c")


def test_a_headless_monitor_waits_for_the_end_and_shows_it(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("COTKIT_REPORT", "1")
    model = cotkit.ChatModel("mock", base_url=serve(solve).base_url)
    job = cotkit.start_distill(problems(6), model, max_iterations=0, run=tmp_path / "r")
    page = RunMonitor(job)._repr_mimebundle_()["text/html"]
    assert "finished" in page and "6 of 6" in page
