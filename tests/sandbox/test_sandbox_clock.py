"""A program on another day: what it sees, and that nothing else about it changes."""

from __future__ import annotations

import pytest

from cotkit import run_python

QUANTLIB = """
import sys, types

class Date:
    def __init__(self, *value): self.value = value if len(value) == 3 else value[0]  # or a serial number
    def serialNumber(self): return self.value
    @staticmethod
    def todaysDate(): return Date(1, 1, 1970)

class Settings:
    evaluationDate = None
    shared = None
    @classmethod
    def instance(cls):
        cls.shared = cls.shared or cls()
        return cls.shared

sys.modules["QuantLib"] = types.ModuleType("QuantLib")
sys.modules["QuantLib"].__dict__.update(Date=Date, Settings=Settings)
from QuantLib import *
print(Settings.instance().evaluationDate.value, Date.todaysDate().value)
"""


def printed(code: str, day: str = "2031-11-09") -> str:
    result = run_python(code, timeout=60, date=day)
    assert result.status == "ok", result
    return result.stdout.strip()


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("import datetime\nprint(datetime.date.today())", "2031-11-09"),
        ("import datetime\nprint(datetime.datetime.now().date())", "2031-11-09"),
        ("import datetime\nprint(datetime.datetime.today().date())", "2031-11-09"),
        ("import datetime as d\nprint(d.datetime.now(d.timezone.utc).year)", "2031"),
        ("from datetime import datetime\nprint(datetime.utcnow().month)", "11"),
        ("import time\nprint(time.gmtime(time.time()).tm_yday)", "313"),
        ("import time\nprint(time.gmtime(time.time_ns() / 1e9).tm_yday)", "313"),
        ("import time\nprint(time.ctime()[:10], time.asctime()[:10])", "Sun Nov  9 Sun Nov  9"),
        ("import time\nprint(time.strftime('%Y-%m-%d'))", "2031-11-09"),
        (
            "import pandas, datetime as d\nprint(pandas.Timestamp.today().date(), d.date.today())",
            "2031-11-09 2031-11-09",
        ),
        (QUANTLIB, "(9, 11, 2031) (9, 11, 2031)"),
    ],
)
def test_the_day_is_moved(code, output):
    assert printed(code) == output


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("import datetime\nprint([datetime.date(2024, 1, 2)])", "[datetime.date(2024, 1, 2)]"),
        ("import datetime\nprint(datetime.date(2024, 3, 1) - datetime.date(2024, 2, 1))", "29 days, 0:00:00"),
        (
            "import datetime as d\nx = d.datetime(2024, 1, 2)\n"
            "print(isinstance(x.date(), d.date), isinstance(x, d.date))",
            "True True",
        ),
        ("import datetime as d\nclass A(d.date): pass\nprint(isinstance(d.date(2024, 1, 1), A))", "False"),
        ("import datetime as d\nprint(d.datetime.strptime('5.1.24', '%d.%m.%y'))", "2024-01-05 00:00:00"),
        ("import datetime as d, pickle\nprint(pickle.loads(pickle.dumps(d.date(2024, 1, 2))))", "2024-01-02"),
        ("import time\nprint(time.gmtime(0).tm_year, time.strftime('%Y', time.gmtime(0)))", "1970 1970"),
        ("from __future__ import annotations\nprint(__name__)", "__main__"),
        (
            "import dataclasses, pickle\n@dataclasses.dataclass\nclass A:\n    x: int\n"
            "print(pickle.loads(pickle.dumps(A(3))))",
            "A(x=3)",
        ),
        (
            "import sys\nprint(len(sys.argv), [name for name in globals() if not name.startswith('__')])",
            "1 ['sys']",
        ),
    ],
)
def test_the_rest_of_the_program_is_as_before(code, output):
    assert printed(code) == output


def test_the_clock_runs_on():
    assert (
        printed("import time\nt = time.time()\nwhile time.time() - t < 0.05: pass\nprint('ended')") == "ended"
    )
