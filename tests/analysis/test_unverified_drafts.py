"""What could not be verified for a failure is no draft: neither right nor wrong."""

from __future__ import annotations

import pytest

from cotkit.analysis.cycles import compare, dev_measures
from cotkit.records import VERIFIER_FAILED, Candidate, Row, Verdict


def row(number: int, correct: bool | None, method: str = "number") -> Row:
    verdict = Verdict(correct=correct, method=method)
    candidate = Candidate(iteration=0, trace="t", text="t", answer="1", verdict=verdict)
    return Row(index=number, id=str(number), problem="p", reference="1", candidates=[candidate], final=0)


@pytest.mark.parametrize("method", sorted(VERIFIER_FAILED))
def test_a_challenger_is_not_wrong_where_its_verifier_failed(method):
    before = [row(number, True) for number in range(24)]
    now = [
        row(number, True if number < 12 else None, "number" if number < 12 else method)
        for number in range(24)
    ]
    found = compare(before, now)
    assert (found.n, found.challenger) == (12, 1.0)
    assert dev_measures(now)["pass1"]["n"] == 12
