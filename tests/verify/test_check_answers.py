"""Many answers at once: the same verdicts as one by one, here or on an executor."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import Executor, Future, ProcessPoolExecutor

import pytest

from cotkit import AnswerPolicy, check_answer, check_answers

PAIRS = [
    ("72", "72"),
    ("73", "72"),
    ("The answer is \\boxed{1/2}.", "0.5"),
    ("x^2 + 2x + 1", "(x + 1)^2"),
    (None, "3"),
    ("3", None),
] * 3


def test_the_same_verdicts_in_the_same_order():
    assert check_answers(PAIRS) == [check_answer(*pair) for pair in PAIRS]
    assert check_answers(iter(PAIRS)) == check_answers(PAIRS)
    assert check_answers([]) == []


def test_options_hold_for_all_and_a_row_has_its_own():
    rows = [("3.14", "3.1416"), {"prediction": "3.14", "reference": "3.1416", "tolerance": 1e-6}]
    assert [v.correct for v in check_answers(rows, tolerance=0.01, answer_type="number")] == [True, False]


def test_on_an_executor(monkeypatch):
    monkeypatch.setattr("cotkit.verify.check.CHUNK", 5)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        found = check_answers(PAIRS, executor=pool, policy=AnswerPolicy(seconds=10))
    assert found == check_answers(PAIRS)


def test_equal_pairs_are_worked_out_once_and_few_wait_in_the_workers_queue(monkeypatch):
    from cotkit.verify import check

    pool, jobs, waiting = check.shared_pool(), [], []

    class Counting:
        def submit(self, pairs, options, seconds):
            jobs.append(pairs)
            waiting.append(pool.submit(pairs, options, seconds))
            assert sum(not future.done() for future in waiting) <= check.AHEAD
            return waiting[-1]

    monkeypatch.setattr(check, "shared_pool", Counting)
    pairs = [(f"x^2 + {2 * n}x + {n * n}", f"(x + {n})^2") for n in range(41, 53)]
    assert all(verdict.correct for verdict in check_answers(pairs * 4))
    assert len(jobs) <= len(pairs) + check.AHEAD


def test_an_interrupt_takes_back_what_waits(monkeypatch):
    from cotkit.verify import check

    futures = []

    class Interrupted:
        def submit(self, *job):
            futures.append(Future())
            if len(futures) == 1:
                futures[0].set_exception(KeyboardInterrupt())
            return futures[-1]

    monkeypatch.setattr(check, "shared_pool", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        check_answers([(f"x + {n} + y", f"y + x + {n}") for n in range(61, 90)])
    assert len(futures) == check.AHEAD and all(future.cancelled() for future in futures[1:])


class Failing(Executor):
    """The second chunk fails, the others never end."""

    def __init__(self):
        self.futures = []

    def submit(self, work, *arguments):
        self.futures.append(Future())
        if len(self.futures) == 2:
            self.futures[0].set_result(work(*arguments))
            self.futures[1].set_exception(OSError("lost"))
        return self.futures[-1]


def test_a_chunk_that_fails_cancels_the_others(monkeypatch):
    monkeypatch.setattr("cotkit.verify.check.CHUNK", 5)
    executor = Failing()
    with pytest.raises(OSError, match="lost"):
        check_answers(PAIRS, executor=executor)
    first, second, *others = (future.cancelled() for future in executor.futures)
    assert not first and not second and others and all(others)


def test_what_is_no_executor_is_refused():
    with pytest.raises(TypeError, match=r"executor must have concurrent.futures' submit, got str"):
        check_answers(PAIRS, executor="dask")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("1", 2), "row 1: check_answer compares texts: reference is int"),
        ("11", "row 1: give \\(prediction, reference\\) or a dict, got '11'"),
        (("1", "2", "3"), "row 1: give"),
        ({"prediction": "1"}, "row 1: missing a required argument: 'reference'"),
        ({"prediction": "1", "reference": "1", "typ": "number"}, "row 1: got an unexpected keyword argument"),
        ({"prediction": "1", "reference": "1", "answer_type": "nmber"}, "row 1: .*nmber"),
        ({"prediction": "1", "reference": "1", "tolerance": 2}, "row 1: tolerance"),
    ],
)
def test_a_bad_row_is_named_before_any_check(row, message, monkeypatch):
    monkeypatch.setattr("cotkit.verify.check.Check", lambda **row: pytest.fail("checked"))
    with pytest.raises((TypeError, ValueError), match=message):
        check_answers([("1", "1"), row])
