"""The audit on public LoongBench rows: date-dependent finance, physics with units, absurd tolerances."""

from __future__ import annotations

import functools
import json
import re

import pytest

from cotkit import run_python
from cotkit.verify import audit_files, isolation


@pytest.fixture(scope="module")
def loongbench(shared_data):
    folder = shared_data / "loongbench"
    if not folder.is_dir():
        pytest.skip("no LoongBench rows in the test data")
    if isolation().weak:
        pytest.skip(f"foreign programs, and this machine reaches isolation {isolation().level} only")
    return folder


def test_the_finance_rows_that_ask_for_today_are_found(loongbench):
    rows = json.loads((loongbench / "finance.json").read_text(encoding="utf-8"))
    asking = sum(bool(re.search(r"todaysDate|date\.today|datetime\.now", row["rationale"])) for row in rows)
    ((_, report),) = audit_files(loongbench / "finance.json")
    found = {finding.id for finding in (*report.of("date_dependent"), *report.of("asks_for_today"))}
    assert asking > 10 and len(found) == asking
    assert report.of("date_dependent") and report.of("absurd_tolerance")
    assert not report.clean


def test_at_least_95_percent_of_the_physics_programs_print_their_reference(loongbench):
    @functools.lru_cache  # the second run is not the point
    def once(code):
        result = run_python(code, timeout=60)
        return result.status, result.stdout, result.stderr

    ((_, report),) = audit_files(loongbench / "advanced_physics.json", run=lambda code, *_: once(code))
    assert report.ran == report.problems == 60
    bad = {finding.id for finding in report.findings}
    assert 1 - len(bad) / report.problems >= 0.95
    assert {finding.kind for finding in report.findings} == {"wrong"}
    assert any("415.3" in finding.detail and "418 N" in finding.detail for finding in report.of("wrong"))


def test_rows_whose_libraries_are_missing_are_no_faults(loongbench):
    ((_, report),) = audit_files(loongbench / "medicine.json")
    if not report.counts["missing_library"]:
        pytest.skip("the library of these rows is installed here")
    assert report.ran == 0 and set(report.counts) == {"missing_library"} and not report.clean
