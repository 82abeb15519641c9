"""When requests may start: the cap, the order, cool-downs, the rate, AIMD; all in virtual time."""

from __future__ import annotations

import asyncio
import time

import pytest
from asking import VirtualClock

from cotkit.chat.breaker import Breaker
from cotkit.chat.errors import Failure
from cotkit.chat.limiter import CLEAN_ANSWERS, Limiter


def limiter(most=4, per_minute=None):
    return Limiter(most, per_minute, VirtualClock())


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


def test_no_more_than_the_limit_start_and_the_others_come_in_order():
    async def scene():
        gate, started = limiter(2), []

        async def caller(name):
            started.append((name, await gate.acquire()))

        tasks = [asyncio.create_task(caller(n)) for n in range(5)]
        await settle()
        assert [name for name, _ in started] == [0, 1] and gate.in_flight == 2 and gate.waiting == 3
        for _ in range(3):
            gate.release(0, clean=True)
            await settle()
        await asyncio.gather(*tasks)
        assert [name for name, _ in started] == [0, 1, 2, 3, 4]

    asyncio.run(scene())


def test_a_call_that_comes_back_is_first_in_the_queue():
    async def scene():
        gate, order = limiter(1), []
        await gate.acquire()

        async def caller(name, first):
            await gate.acquire(first=first)
            order.append(name)
            gate.release(0)

        tasks = [asyncio.create_task(caller("new", False)), asyncio.create_task(caller("again", True))]
        await settle()
        gate.release(0)
        await asyncio.gather(*tasks)
        assert order == ["again", "new"]

    asyncio.run(scene())


def test_a_cancelled_caller_gives_its_place_back_at_once():
    async def scene():
        gate = limiter(1)
        await gate.acquire()
        waiting = asyncio.create_task(gate.acquire())
        late = asyncio.create_task(gate.acquire())
        await settle()
        waiting.cancel()
        await settle()
        assert gate.waiting == 1
        gate.release(0)  # hands the place to `late`, which is cancelled before it knows
        late.cancel()
        await asyncio.gather(waiting, late, return_exceptions=True)
        assert (gate.in_flight, gate.waiting) == (0, 0)
        assert await gate.acquire() is not None

    asyncio.run(scene())


def test_a_cool_down_parks_everyone_and_restarts_are_spread_out():
    async def scene():
        gate, starts = limiter(50), []

        async def caller():
            ticket = await gate.acquire()
            starts.append(gate._clock.now())
            await asyncio.sleep(0)
            gate.release(ticket)

        gate.park(7)
        begun = gate._clock.now()
        await asyncio.gather(*(caller() for _ in range(50)))
        assert min(starts) >= begun + 7
        assert max(starts) <= begun + 7 + 50 * 0.12
        assert len({int((at - begun) / 0.05) for at in starts}) > 25  # most in 50 ms of their own

    asyncio.run(scene())


def test_a_cool_down_costs_a_rate_that_is_kept_nothing_more():
    async def scene():
        gate = limiter(50, per_minute=1200)

        async def caller():
            gate.release(await gate.acquire())

        gate.park(7)
        begun = gate._clock.now()
        await asyncio.gather(*(caller() for _ in range(200)))
        assert gate._clock.now() - begun < 7.2 + 200 * 60 / 1200 * 1.02

    asyncio.run(scene())


@pytest.mark.parametrize("per_minute", [60, 1200])
def test_the_rate_is_kept_and_used(per_minute):
    async def scene():
        gate, starts = limiter(1000, per_minute), []

        async def caller():
            ticket = await gate.acquire()
            starts.append(gate._clock.now())
            gate.release(ticket)

        await asyncio.gather(*(caller() for _ in range(200)))
        for at in starts:
            assert sum(at <= other < at + 60 for other in starts) <= per_minute
        took = starts[-1] - starts[0]
        assert 0.97 < (199 / took) / (per_minute / 60) < 1.03

    asyncio.run(scene())


def test_a_burst_of_429s_lowers_the_limit_once_and_clean_answers_raise_it():
    async def scene():
        gate = limiter(16)
        tickets = [await gate.acquire() for _ in range(16)]
        for ticket in tickets:
            gate.release(ticket, limited=True)
        assert gate.limit == 12
        for expected in (9, 6, 4, 3, 2, 1, 1):
            gate.release(await gate.acquire(), limited=True)
            assert gate.limit == expected
        for _ in range(CLEAN_ANSWERS):
            gate.release(await gate.acquire(), clean=True)  # one of one in flight: saturated
        assert gate.limit == 2
        for _ in range(10 * CLEAN_ANSWERS):
            gate.release(await gate.acquire(), clean=True)  # one of two in flight: not saturated
        assert gate.limit == 2
        for _ in range(100 * CLEAN_ANSWERS):
            tickets = [await gate.acquire() for _ in range(gate.limit)]
            for ticket in tickets:
                gate.release(ticket, clean=True)
        assert gate.limit == 16

    asyncio.run(scene())


def test_ten_thousand_waiting_callers_are_cheap():
    async def scene():
        gate = limiter(100)
        gate.park(60)

        async def caller():
            ticket = await gate.acquire()
            await asyncio.sleep(0)
            gate.release(ticket)

        started = time.process_time()
        await asyncio.gather(*(caller() for _ in range(10_000)))
        return time.process_time() - started, len(gate._clock.slept)

    seconds, sleeps = asyncio.run(scene())
    assert seconds < 5  # 0.2 s on an idle core
    assert sleeps <= 102  # the cool-down and the spread-out restarts: no timer for each caller


def test_everyone_who_waits_is_sent_away_when_the_endpoint_is_left_alone():
    async def scene():
        gate = limiter(1)
        await gate.acquire()
        gate.park(100)
        waiting = [asyncio.create_task(gate.acquire()) for _ in range(3)]
        await settle()
        gate.send_away()
        assert await asyncio.gather(*waiting) == [None] * 3
        assert gate.waiting == 0

    asyncio.run(scene())


def test_the_breaker_opens_on_faults_in_a_row_of_several_calls_only():
    fault = Failure("server", "status 500")
    poisoned = Breaker(VirtualClock())
    assert not any(poisoned.failed(fault, caller=1) for _ in range(50))
    broken = Breaker(VirtualClock())
    assert [broken.failed(fault, caller=n) for n in range(12)].index(True) == 9
    healthy = Breaker(VirtualClock())
    for n in range(100):
        assert not healthy.failed(fault, caller=n)
        if n % 9 == 8:
            healthy.succeeded()


def test_an_open_breaker_is_probed_by_one_call_after_the_cool_down():
    clock = VirtualClock()
    breaker = Breaker(clock)
    breaker.open(Failure("auth", "status 401"), hard=True)
    assert not breaker.admits() and not breaker.admits(last_resort=True)
    for cool_down in (30, 60, 120):
        clock.time += cool_down - 1
        assert not breaker.admits()
        clock.time += 1
        assert breaker.admits()
        probes = breaker.enter()
        assert probes and not breaker.admits()
        breaker.open(Failure("auth", "status 401"), hard=True)
        breaker.leave(probes)
        assert not breaker.admits()
    clock.time += 600
    assert breaker.admits()
    breaker.leave(breaker.enter())  # a probe that is cancelled leaves the way free for the next
    assert breaker.admits()
    breaker.enter()
    breaker.succeeded()
    assert breaker.admits() and breaker.kind is None


def test_an_endpoint_is_given_up_after_many_prompts_in_a_row_without_an_answer():
    for most_in_flight, enough in [(1, 20), (10, 20), (16, 32)]:
        breaker = Breaker(VirtualClock(), most_in_flight)
        for _ in range(3):
            for prompt in range(enough - 1):
                breaker.gave_up(prompt)
                breaker.gave_up(prompt)  # another sample of it
            assert not breaker.given_up
            breaker.succeeded()
        for prompt in range(enough):
            assert not breaker.given_up
            breaker.gave_up(prompt)
        assert breaker.given_up
        breaker.told()
        assert not breaker.given_up
    breaker.open(Failure("auth", "status 401"), hard=True)
    breaker.told()
    assert breaker.given_up


def test_a_softly_open_breaker_lets_a_call_through_that_has_no_other_endpoint():
    breaker = Breaker(VirtualClock())
    breaker.open(Failure("server", "status 500"), hard=False)
    assert not breaker.admits() and breaker.admits(last_resort=True)
