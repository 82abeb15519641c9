"""Another date for a program, to find out whether its answer depends on the day it runs.

Shifts what Python's own functions tell: `time.time`, `time_ns`, `localtime`, `gmtime`, `ctime`, `strftime`,
`datetime.now`, `utcnow`, `today`, `date.today`. What compiled code asks the system for by itself, such as
numpy.datetime64("now") and pandas.Timestamp.now(), stays as it is.
"""

from __future__ import annotations

import datetime
import time


def set_date(date: str) -> None:
    """From now on it is this day (YYYY-MM-DD, UTC), at the true time of day."""
    true_time, true_time_ns = time.time, time.time_ns
    today = datetime.datetime.fromtimestamp(true_time(), datetime.UTC).date()
    shift = (datetime.date.fromisoformat(date) - today).days * 86400
    time.time = lambda: true_time() + shift
    time.time_ns = lambda: true_time_ns() + shift * 10**9
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, _of_now(getattr(time, name)))
    true_strftime = time.strftime
    time.strftime = lambda form, moment=None: true_strftime(form, moment or time.localtime())
    datetime.date, datetime.datetime = _shifted_classes()


def _of_now(convert):
    return lambda seconds=None: convert(time.time() if seconds is None else seconds)


def _shifted_classes() -> tuple[type, type]:
    true = {"date": datetime.date, "datetime": datetime.datetime}

    class Shifted(type):
        def __instancecheck__(cls, value):  # values made by compiled code count as well
            own = cls.__module__ == "datetime" and true.get(cls.__name__)
            return isinstance(value, own) if own else type.__instancecheck__(cls, value)

    def today(cls):
        return cls.fromtimestamp(time.time())

    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)

    def utcnow(cls):
        return cls.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

    common = {"__module__": "datetime", "__slots__": (), "today": classmethod(today)}
    moments = common | {"now": classmethod(now), "utcnow": classmethod(utcnow)}
    return Shifted("date", (true["date"],), common), Shifted("datetime", (true["datetime"],), moments)
