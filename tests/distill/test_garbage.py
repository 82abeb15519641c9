"""The garbage collector during a run, and that it is as before when the last run has ended."""

from __future__ import annotations

import gc

import pytest
from scripted import model, problems, solve

import cotkit
from cotkit.pipelines.garbage import RARER, rarely_collected


@pytest.fixture(autouse=True)
def as_python_has_it():
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    gc.unfreeze()
    yield
    gc.set_threshold(*before)
    assert gc.get_freeze_count() == 0 and gc.isenabled()


def test_rarer_while_any_run_is_under_way():
    with rarely_collected():
        with rarely_collected():
            assert gc.get_threshold() == (RARER, 10, 10) and gc.get_freeze_count() > 0
        assert gc.get_threshold() == (RARER, 10, 10)
    assert gc.get_threshold() == (700, 10, 10) and gc.get_freeze_count() == 0


def test_as_before_after_an_error():
    with pytest.raises(KeyError), rarely_collected():
        raise KeyError
    assert gc.get_threshold() == (700, 10, 10) and gc.get_freeze_count() == 0


@pytest.mark.parametrize("thresholds", [(0, 10, 10), (50_000, 5, 5)])
def test_what_the_user_has_set_stays(thresholds):
    gc.set_threshold(*thresholds)
    with rarely_collected():
        assert gc.get_threshold() == thresholds and gc.get_freeze_count() == 0
    assert gc.get_threshold() == thresholds


def test_a_collector_that_is_off_or_frozen_stays_so():
    gc.disable()
    with rarely_collected():
        assert gc.get_threshold() == (700, 10, 10)
    assert not gc.isenabled()
    gc.enable()
    gc.freeze()
    with rarely_collected():
        assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() > 0
    gc.unfreeze()


def test_what_the_user_sets_or_freezes_during_a_run_stays():
    with rarely_collected():
        gc.set_threshold(20_000, 10, 10)
        more = [[] for _ in range(50_000)]
        gc.freeze()
    assert gc.get_threshold() == (20_000, 10, 10) and gc.get_freeze_count() > len(more)
    gc.unfreeze()


def test_a_run_is_collected_rarely(serve, tmp_path):
    seen = []

    def script(request):
        seen.append(gc.get_threshold()[0])
        return solve(request)

    cotkit.distill(problems(1), model(serve(script)), run=tmp_path / "r", show="none")
    assert seen == [RARER] and gc.get_threshold()[0] == 700
