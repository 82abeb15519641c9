"""`aio.pool` and jobs: how they end, and that work which waits for nothing lets others have their turn."""

from __future__ import annotations

import asyncio
import time

import pytest

from cotkit import aio


def hanging():
    """Work that waits for long, and what of it has ended."""
    ended = []

    async def work(n):
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(n)

    return work, ended


def test_each_item_is_worked_on_once_and_no_more_are_drawn_than_there_are_places():
    drawn, done, most = [], [], 0

    def items():
        for n in range(50):
            drawn.append(n)
            yield n

    async def work(n):
        nonlocal most
        most = max(most, len(drawn) - len(done))
        await asyncio.sleep(0.001 * (n % 3))
        done.append(n)

    aio.run(aio.pool(items(), work, 7))
    assert sorted(done) == drawn == list(range(50)) and most == 7


@pytest.mark.parametrize("width", [1, 3, 100])
def test_an_exception_ends_the_pool_and_everything_in_it(width):
    ended, started = [], []

    async def work(n):
        started.append(n)
        try:
            await asyncio.sleep(0.01 if n == 4 else 0.002 if n < 4 else 30)
            if n == 4:
                raise OSError(28, "No space left")
        finally:
            ended.append(n)

    with pytest.raises(OSError, match="No space left"):
        aio.run(aio.pool(range(20), work, width))
    assert sorted(ended) == sorted(started) and len(started) <= 4 + width


def test_cancelling_it_cancels_what_is_running():
    work, ended = hanging()

    async def scene():
        task = asyncio.create_task(aio.pool(range(100), work, 5))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    aio.run(scene())
    assert sorted(ended) == list(range(5))


def test_work_whose_future_was_cancelled_ends_the_pool_with_an_error():
    async def work(n):
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    with pytest.raises(RuntimeError, match="was cancelled"):
        aio.run(aio.pool(range(3), work, 2))


def test_work_that_waits_for_nothing_leaves_others_their_turn():
    seen = []

    async def work(n):
        time.sleep(0.02 if n < 8 else 0)
        seen.append(n)

    async def scene():
        task = asyncio.create_task(aio.pool(range(10_000), work, 4))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    aio.run(scene())
    assert 4 <= len(seen) < 100


def test_a_place_is_needed():
    with pytest.raises(ValueError, match="width must be at least 1"):
        aio.run(aio.pool([1], asyncio.sleep, 0))


def test_a_job_that_is_cancelled_at_once_cleans_up_all_the_same():
    work, ended = hanging()

    for n in range(50):
        job = aio.start(work(n))
        job.cancel()
        assert job.wait(10)
    assert ended == list(range(50))
