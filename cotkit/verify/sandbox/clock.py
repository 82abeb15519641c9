"""Another date for a program, to find out whether its answer depends on the day it runs.

Moved: `datetime`, `time`, `pandas.Timestamp` and QuantLib's evaluation date. Not moved: what asks the
operating system in C, such as numpy's `datetime64("today")` or a file's time stamp.
"""

from __future__ import annotations

import builtins
import datetime
import sys
import time


def set_date(day: str) -> None:
    """From now on it is this day (YYYY-MM-DD). It begins at noon and runs on, so that timers work."""
    noon = datetime.datetime.fromisoformat(f"{day} 12:00:00")
    shift = round(noon.timestamp() - time.time())
    real = datetime.date, datetime.datetime
    move_time(shift)
    datetime.date, datetime.datetime = moved_classes(datetime.timedelta(seconds=shift))
    move_imports(noon, real)


def move_time(shift: int) -> None:
    """The functions of `time`, by so many seconds."""
    real_time, real_ns = time.time, time.time_ns

    def from_now(function):
        return lambda seconds=None: function(time.time() if seconds is None else seconds)

    def of_now(function, where):
        return lambda *given: function(*given) if len(given) > where else function(*given, time.localtime())

    time.time = lambda: real_time() + shift
    time.time_ns = lambda: real_ns() + shift * 10**9
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, from_now(getattr(time, name)))
    time.asctime, time.strftime = of_now(time.asctime, 0), of_now(time.strftime, 1)


def moved_classes(shift: datetime.timedelta) -> tuple[type, type]:
    """A `date` and a `datetime` whose today and now are moved."""
    real_now = datetime.datetime.now

    class OfKind(type):  # what C code makes is of the real classes and must still count
        def __instancecheck__(cls, instance):
            here = cls.__module__ == "datetime"  # a program's own subclass keeps its own answer
            return isinstance(instance, cls.__base__) if here else super().__instancecheck__(instance)

    class date(datetime.date, metaclass=OfKind):
        @classmethod
        def today(cls):
            now = real_now() + shift
            return cls(now.year, now.month, now.day)

        def __repr__(self):
            return f"datetime.{super().__repr__()}"

    class datetime_(datetime.datetime, metaclass=OfKind):
        @classmethod
        def now(cls, tz=None):
            now = real_now(tz) + shift
            return cls.combine(now.date(), now.timetz())

        @classmethod
        def today(cls):
            return cls.now()

        @classmethod
        def utcnow(cls):
            return cls.now(datetime.UTC).replace(tzinfo=None)

        def date(self):
            return date(self.year, self.month, self.day)

        def __repr__(self):
            return f"datetime.{super().__repr__()}"

    for kind, name in ((date, "date"), (datetime_, "datetime")):
        kind.__name__, kind.__qualname__, kind.__module__ = name, name, "datetime"
    return date, datetime_


def move_imports(noon: datetime.datetime, real_classes: tuple[type, type]) -> None:
    """Packages are imported under the real classes, as compiled ones refuse any other, and moved after."""
    waiting = {"QuantLib": lambda module: move_quantlib(module, noon), "pandas": move_pandas}
    real_import = builtins.__import__

    def import_and_move(name, *arguments, **named):
        root = name.partition(".")[0]
        if root in sys.stdlib_module_names:
            return real_import(name, *arguments, **named)
        before = datetime.date, datetime.datetime
        datetime.date, datetime.datetime = real_classes
        try:
            module = real_import(name, *arguments, **named)
        finally:
            datetime.date, datetime.datetime = before
        if root in waiting and not getattr(sys.modules[root].__spec__, "_initializing", False):
            waiting.pop(root)(sys.modules[root])
        return module

    builtins.__import__ = import_and_move


def move_quantlib(module, noon: datetime.datetime) -> None:
    there = module.Date(noon.day, noon.month, noon.year)
    module.Date.todaysDate = staticmethod(lambda: module.Date(there.serialNumber()))
    module.Settings.instance().evaluationDate = there


def move_pandas(module) -> None:
    def now(tz=None):
        return module.Timestamp(datetime.datetime.now(), tz=tz)

    module.Timestamp.now = module.Timestamp.today = staticmethod(now)
