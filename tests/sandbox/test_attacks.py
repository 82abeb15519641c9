"""No attack gets through at L3 and L2; the truth is taken outside the program, never from what it printed.

COTKIT_TEST_EVERY=4 takes every fourth attack of each class, 100 the first: test_sandbox_places does so.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from attacks import CLASSES
from world import World, left_over, until

from cotkit.verify.sandbox.cancel import Cancellation
from cotkit.verify.sandbox.job import Job
from cotkit.verify.sandbox.program import isolation, run_job


def attack_and_judge(attack, level):
    with World() as world:
        job = Job(world.constants + attack.code, timeout=attack.timeout)
        result = run_job(job, level, Cancellation())
        breaches = world.breaches(result)
    if result.status not in attack.expected:
        breaches.append(f"status {result.status} ({result.detail}), stderr: {result.stderr[-400:]}")
    return [f"{attack.name}: {breach}" for breach in breaches]


@pytest.mark.parametrize("level", ["L3", "L2"])
@pytest.mark.parametrize("name", CLASSES)
def test_no_attack_gets_through(name, level):
    if level == "L3" and isolation().level != "L3":
        pytest.skip(f"this machine reaches {isolation().level}: {isolation().missing}")
    with ThreadPoolExecutor(4) as pool:
        attacks = CLASSES[name][:: int(os.environ.get("COTKIT_TEST_EVERY", "1"))]
        found = pool.map(lambda attack: attack_and_judge(attack, level), attacks)
    assert [breach for breaches in found for breach in breaches] == []
    until(lambda: not left_over())


def test_there_are_enough_attacks_and_each_has_its_own_name():
    names = [attack.name for attacks in CLASSES.values() for attack in attacks]
    assert len(names) == len(set(names)) >= 50
