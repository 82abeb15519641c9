"""Numbers under keys, for millions of keys."""

from __future__ import annotations

import hashlib
import struct
from array import array

_FREE, _REMOVED, _NUMBERS = 0, 1, 2  # what stands in a slot: a number is kept with _NUMBERS added
_halves = struct.Struct("=QQ").unpack_from


class DigestMap:
    """{key: whole number from 0 to 2**63}, of which the keys cannot be listed.

    Of a key 16 bytes of its digest are kept, in an array with open addressing: 36 to 72 bytes a key, and 108
    while the array grows, where a dict takes 150 to 250. Keys are texts, or bytes that are a digest already.
    The chance that two of n keys have one digest is n² in 2**129.
    """

    def __init__(self) -> None:
        self._slots, self._mask = array("Q", [0]) * 24, 7  # of a slot: two halves, what it holds
        self._taken = self._removed = 0

    def __len__(self) -> int:
        return self._taken - self._removed

    def __contains__(self, key: str | bytes) -> bool:
        return self.get(key) is not None

    def get(self, key: str | bytes) -> int | None:
        held = self._slots[self._slot(*_digest(key)) + 2]
        return held - _NUMBERS if held >= _NUMBERS else None

    def __getitem__(self, key: str | bytes) -> int:
        if (number := self.get(key)) is None:
            raise KeyError(key)
        return number

    def __setitem__(self, key: str | bytes, number: int) -> None:
        if 3 * self._taken > 2 * self._mask:
            self._grow()
        self._put(*_digest(key), number + _NUMBERS)

    def __delitem__(self, key: str | bytes) -> None:
        slot = self._slot(*_digest(key))
        if self._slots[slot + 2] < _NUMBERS:
            raise KeyError(key)
        self._slots[slot + 2] = _REMOVED
        self._removed += 1

    def _slot(self, high: int, low: int) -> int:
        """Where the slot of a digest starts, or a free one for it."""
        slots, mask = self._slots, self._mask
        at = high & mask
        while slots[3 * at + 2] and (slots[3 * at] != high or slots[3 * at + 1] != low):
            at = (at + 1) & mask
        return 3 * at

    def _put(self, high: int, low: int, held: int) -> None:
        slot, slots = self._slot(high, low), self._slots
        self._taken += slots[slot + 2] == _FREE
        self._removed -= slots[slot + 2] == _REMOVED
        slots[slot], slots[slot + 1], slots[slot + 2] = high, low, held

    def _grow(self) -> None:
        old, self._mask = self._slots, 2 * self._mask + 1
        self._slots, self._taken, self._removed = array("Q", [0]) * (2 * len(old)), 0, 0
        for at in range(0, len(old), 3):
            if old[at + 2] >= _NUMBERS:
                self._put(old[at], old[at + 1], old[at + 2])


def _digest(key: str | bytes) -> tuple[int, int]:
    if isinstance(key, str):
        key = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return _halves(key)
