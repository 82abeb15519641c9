"""A DigestMap is a dict of numbers whose keys cannot be listed, in a fraction of the memory."""

from __future__ import annotations

import hashlib
import random
import tracemalloc

import pytest

from cotkit.runs import DigestMap


def test_it_holds_what_a_dict_holds():
    chance, known, held = random.Random(0), {}, DigestMap()
    for _ in range(5000):
        key = chance.choice(["", "a\x00", "\ud800", "007"]) + str(chance.randrange(700))
        if chance.random() < 0.6:
            known[key] = held[key] = chance.choice([0, 1, chance.randrange(2**63), 2**63])
        elif key in known:
            del known[key], held[key]
        assert (key in held, held.get(key), len(held)) == (key in known, known.get(key), len(known))
    assert {key: held[key] for key in known} == known


def test_what_is_not_there_is_a_key_error():
    held = DigestMap()
    held["a"] = 1
    del held["a"]
    for use in (
        lambda: held["a"],
        lambda: held["b"],
        lambda: held.__delitem__("a"),
        lambda: held.__delitem__("b"),
    ):
        with pytest.raises(KeyError):
            use()
    assert len(held) == 0 and held.get("a") is None


def test_keys_may_be_digests():
    held, keys = DigestMap(), [hashlib.sha256(str(n).encode()).digest() for n in range(100)]
    for number, key in enumerate(keys):
        held[key] = number
    assert [held[key] for key in keys] == list(range(100)) and b"\x00" * 32 not in held


@pytest.mark.parametrize("count", [10_000, 15_000, 20_000])
def test_memory_for_a_key(count):
    tracemalloc.start()
    held = DigestMap()
    for number in range(count):
        held[str(number)] = 2**62 + number
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert now / count <= 73 and peak / count <= 110
