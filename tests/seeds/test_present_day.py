"""The source of a program shows where it asks for the present day."""

from __future__ import annotations

import pytest

from cotkit.verify.present_day import asks_for_today


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("x = 1\ntoday = ql.Date.todaysDate()", ["line 2: ql.Date.todaysDate()"]),
        ("t = Date().todaysDate()", ["line 1: Date().todaysDate()"]),
        (
            "datetime.date.today(); datetime.now(tz)",
            ["line 1: datetime.date.today()", "line 1: datetime.now(tz)"],
        ),
        (
            "np.datetime64('today'); pd.Timestamp('now')",
            ["line 1: np.datetime64('today')", "line 1: pd.Timestamp('now')"],
        ),
        ("time.localtime(); time.localtime(0)", ["line 1: time.localtime()"]),
        ("today = ql.Date(15, 5, 2023)  # today()", []),
        ("def now(): pass\nnow()", []),
        ("print(", []),
        ("\0", []),
    ],
)
def test_the_source_shows_where_today_is_asked_for(code, found):
    assert asks_for_today(code) == found
