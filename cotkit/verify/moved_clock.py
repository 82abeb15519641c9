"""A program that sees another date, without root and without a library.

`on_day(code, "2031-11-09")` is a program that sets its own clock to noon of that day and then runs `code` as
`__main__`. The clock runs on from there, so that timers work. `move_clock` below is copied into that program
as text: it needs nothing but the standard library.

Moved: `datetime`, `time`, `pandas.Timestamp` and QuantLib's evaluation date. Not moved: what asks the
operating system in C, such as numpy's `datetime64("today")` or a file's time stamp; `asks_for_today` finds
the usual ones in the source.
"""

from __future__ import annotations

import ast
import datetime
import inspect


def on_day(code: str, day: str) -> str:
    """`code` as a program whose today is `day` (YYYY-MM-DD)."""
    datetime.date.fromisoformat(day)
    run = f'exec(compile({code!r}, "<program>", "exec"), fresh_main().__dict__)'
    return "\n".join(map(inspect.getsource, (move_clock, fresh_main))) + f"\nmove_clock({day!r})\n{run}\n"


def fresh_main():
    import sys
    import types

    sys.modules["__main__"] = types.ModuleType("__main__")
    return sys.modules["__main__"]


def move_clock(day):
    import builtins
    import datetime
    import sys
    import time

    real_time, real_ns, real_now = time.time, time.time_ns, datetime.datetime.now
    noon = datetime.datetime.fromisoformat(f"{day} 12:00:00")
    shift = round(noon.timestamp() - real_time())
    moved = datetime.timedelta(seconds=shift)

    class OfKind(type):  # what C code makes is of the real classes and must still count
        def __instancecheck__(cls, instance):
            here = cls.__module__ == "datetime"  # a program's own subclass keeps its own answer
            return isinstance(instance, cls.__base__) if here else super().__instancecheck__(instance)

    class date(datetime.date, metaclass=OfKind):
        @classmethod
        def today(cls):
            now = real_now() + moved
            return cls(now.year, now.month, now.day)

        def __repr__(self):
            return f"datetime.{super().__repr__()}"

    class datetime_(datetime.datetime, metaclass=OfKind):
        @classmethod
        def now(cls, tz=None):
            now = real_now(tz) + moved
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

    def from_now(function):
        return lambda seconds=None: function(time.time() if seconds is None else seconds)

    def of_now(function, where):
        return lambda *given: function(*given) if len(given) > where else function(*given, time.localtime())

    time.time = lambda: real_time() + shift
    time.time_ns = lambda: real_ns() + shift * 10**9
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, from_now(getattr(time, name)))
    time.asctime, time.strftime = of_now(time.asctime, 0), of_now(time.strftime, 1)

    def move_quantlib(module):
        there = module.Date(noon.day, noon.month, noon.year)
        module.Date.todaysDate = staticmethod(lambda: module.Date(there.serialNumber()))
        module.Settings.instance().evaluationDate = there

    def move_pandas(module):
        def now(tz=None):
            return module.Timestamp(datetime_.now(), tz=tz)

        module.Timestamp.now = module.Timestamp.today = staticmethod(now)

    waiting = {"QuantLib": move_quantlib, "pandas": move_pandas}
    real_import, real_classes = builtins.__import__, (datetime.date, datetime.datetime)
    datetime.date, datetime.datetime = date, datetime_

    def import_and_move(name, *arguments, **named):
        root = name.partition(".")[0]
        if root in sys.stdlib_module_names:
            return real_import(name, *arguments, **named)
        before = datetime.date, datetime.datetime
        datetime.date, datetime.datetime = real_classes  # compiled packages refuse any other
        try:
            module = real_import(name, *arguments, **named)
        finally:
            datetime.date, datetime.datetime = before
        if root in waiting and not getattr(sys.modules[root].__spec__, "_initializing", False):
            waiting.pop(root)(sys.modules[root])
        return module

    builtins.__import__ = import_and_move


def asks_for_today(code: str) -> list[str]:
    """Where a source asks for the present day, as "line 12: ql.Date.todaysDate()"; [] if it is no Python."""
    try:
        calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call) and _asks(node)]
        return [f"line {call.lineno}: {ast.unparse(call)[:60]}" for call in sorted(calls, key=_line)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _line(call: ast.Call) -> int:
    return call.lineno


def _asks(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", None) or getattr(call.func, "id", None)
    first = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    if name in ("todaysDate", "utcnow"):
        return True
    if name in ("today", "now"):
        return isinstance(call.func, ast.Attribute)
    if name in ("localtime", "gmtime", "ctime"):
        return not call.args
    return name in ("datetime64", "Timestamp", "to_datetime") and first in ("today", "now")
