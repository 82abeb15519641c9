"""What a run tells while it goes."""

from __future__ import annotations

import io
import sys
from collections import Counter

import pytest

from cotkit.pipelines import progress as module
from cotkit.pipelines.progress import Display, Progress, status_line
from cotkit.records import Row


def row(n, accepted=True, errors=()):
    reason = None if accepted else "wrong_answer"
    return Row(index=n, id=f"p{n}", problem="p", accepted=accepted, drop_reason=reason, errors=list(errors))


class Ledger:
    def totals(self):
        return {"calls": 12, "prompt_tokens": 1000, "completion_tokens": 234, "cost_usd": None}


def test_a_line_each_ten_percent_and_one_at_the_end(capsys):
    progress = Progress("run", 40)
    display = Display(progress, "lines")
    for n in range(39):
        progress.add(row(n))
        display.tick()
    display.close()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == [*(f"{n}/40" for n in range(4, 40, 4)), "39/40"]


def test_a_heartbeat_when_nothing_finishes(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    display = Display(Progress("run", 40), "lines")
    for second in range(0, 95, 5):
        now[0] = float(second)
        display.tick()
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_the_line_says_what_a_person_waits_for(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    progress = Progress("run", 10, Ledger(), kept=2, drops=Counter(truncated=1))
    progress.add(row(1))
    progress.add(row(2, False, [{"kind": "server", "message": "oops"}]))
    now[0] = 60.0
    line = progress.line()
    assert line.startswith(
        "5/10 done, 3 kept, 2 dropped (1 truncated, 1 wrong_answer), 2 rows/min, 2 min left"
    )
    assert "12 calls, 1,234 tokens, cost unknown" in line and "last error: p2: server: oops" in line


def test_rates_are_unknown_before_the_first_row():
    now = Progress("run", 10, kept=4).snapshot()
    assert now["rows_per_minute"] is None and now["eta_s"] is None and "left" not in status_line(now)


def test_an_empty_run_draws_without_error(capsys):
    display = Display(Progress("run", 0), "lines")
    display.tick()
    display.close()
    assert "0/0 done" in capsys.readouterr().out


def test_the_terminal_bar_ends_with_the_full_line(capsys):
    progress = Progress("run", 2)
    display = Display(progress, "bar")
    progress.add(row(1))
    progress.add(row(2, False))
    display.tick()
    display.close()
    assert "2/2 done, 1 kept, 1 dropped (1 wrong_answer)" in capsys.readouterr().err


def test_an_unknown_way_to_show_is_refused():
    with pytest.raises(ValueError, match="'auto', 'bar', 'lines' or 'none'"):
        Display(Progress("run", 2), "loud")


def test_stop_keeps_its_first_reason():
    progress = Progress("run", 2)
    progress.stop("budget")
    progress.stop("user")
    assert progress.stopping == "budget" and "stopping: budget" in progress.line()


def test_an_error_that_is_being_tried_again_is_told_before_any_row_ends():
    class Model:
        def stats(self):
            return {"by_endpoint": {"m at host": {"last_failure": "server: 500 oops"}}}

    assert "last error: server: 500 oops" in Progress("run", 2, models=[Model(), object()]).line()


@pytest.mark.parametrize("show, stream", [("lines", "stdout"), ("bar", "stderr")])
def test_what_a_stream_cannot_encode_is_escaped_and_ends_no_run(monkeypatch, show, stream):
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, stream, plain)
    progress = Progress("lauf-ä", 2)
    display = Display(progress, show)
    progress.add(row(1, False, [{"kind": "bad_request", "message": "请求无效 \ud83d"}]))
    display.tick()
    display.close()
    plain.flush()
    told = plain.buffer.getvalue().decode()
    assert "lauf-\\xe4" in told and "\\u8bf7\\u6c42" in told
