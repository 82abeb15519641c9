"""How values travel between the process of a program and that of its tests: a part of code_probe.py.

As JSON: those of built-in and numeric types by value, any other object as a reference to it, whose methods
are calls like any other.
"""

import collections
import datetime
import decimal
import fractions
import re
import sys
import types

MOST_ITEMS = 100_000  # of one iterator
BY_TEXT = {  # types that travel as a text: how it is written and read
    decimal.Decimal: (str, decimal.Decimal),
    complex: (str, complex),
    datetime.date: (datetime.date.isoformat, datetime.date.fromisoformat),
    datetime.datetime: (datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    datetime.time: (datetime.time.isoformat, datetime.time.fromisoformat),
    bytes: (bytes.hex, bytes.fromhex),
    bytearray: (bytearray.hex, bytearray.fromhex),
}
BY_PARTS = {  # types that travel as what they are made of
    range: lambda value: (value.start, value.stop, value.step),
    slice: lambda value: (value.start, value.stop, value.step),
    fractions.Fraction: lambda value: (value.numerator, value.denominator),
    datetime.timedelta: lambda value: (value.days, value.seconds, value.microseconds),
}
BY_ITEMS = (list, tuple, set, frozenset, collections.deque)
BY_PAIRS = (dict, collections.OrderedDict, collections.Counter)
FACTORIES = {kind.__name__: kind for kind in (int, float, str, bool, list, dict, set, tuple)}
KINDS = {kind.__name__: kind for kind in (*BY_TEXT, *BY_PARTS, *BY_ITEMS, *BY_PAIRS)}
NUMPY = re.compile(r"[<>|=]([biuSU]\d+|f[248]|c8|c16)")  # the dtypes that travel
WIDE = 10_000  # bits of an int from which it travels in hexadecimal, which takes linear time
BOTH_WAYS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul", "and", "or", "xor")
BOTH_WAYS += ("lshift", "rshift")
OPERATORS = (*BOTH_WAYS, *(f"r{name}" for name in BOTH_WAYS), "lt", "le", "gt", "ge", "abs", "neg", "pos")
OPERATORS += ("invert", "float", "int", "complex", "index", "round", "trunc", "floor", "ceil")
REFERENCES = ("name", "object", "equal")  # "equal": of a class that says itself what its objects equal
TOLD = set()  # "text" once the program has told one to the test that runs


def encode(value, other):
    """`value` as JSON; `other(value)` encodes what does not travel by value."""
    kind = type(value)
    if value is None or kind in (bool, str, float):
        return value
    if kind is int:
        return value if value.bit_length() < WIDE else ["int", hex(value)]
    if kind in BY_TEXT:
        return [kind.__name__, BY_TEXT[kind][0](value)]
    if kind in BY_PARTS:
        return [kind.__name__, [encode(part, other) for part in BY_PARTS[kind](value)]]
    if kind in BY_PAIRS:
        return [kind.__name__, pairs(value, other)]
    if kind is collections.defaultdict and value.default_factory in FACTORIES.values():
        return ["defaultdict", [value.default_factory.__name__, pairs(value, other)]]
    if kind in BY_ITEMS and getattr(value, "maxlen", None) is None:
        return [kind.__name__, [encode(item, other) for item in value]]
    if kind.__module__ == "numpy" and NUMPY.fullmatch(getattr(getattr(value, "dtype", 0), "str", "")):
        shape = list(value.shape) if kind.__name__ == "ndarray" else None
        if shape is not None or not isinstance(value, type):
            return ["numpy", [value.dtype.str, shape, encode(value.tolist(), other)]]
    return other(value)


def pairs(value, other):
    return [[encode(key, other), encode(item, other)] for key, item in value.items()]


def decode(data, reference):
    """What `encode` wrote; `reference(kind, data)` gives the objects that did not travel."""
    if isinstance(data, str):
        TOLD.add("text")
    if not isinstance(data, list):
        return data
    kind, inside = data
    if kind == "int":
        return int(inside, 16)
    if kind == "defaultdict":
        items = [[decode(part, reference) for part in pair] for pair in inside[1]]
        return collections.defaultdict(FACTORIES[inside[0]], items)
    if kind == "numpy":
        return of_numpy(*inside)
    if kind not in KINDS:
        return reference(kind, inside)
    if KINDS[kind] in BY_TEXT:
        TOLD.add("text")
        return BY_TEXT[KINDS[kind]][1](inside)
    if KINDS[kind] in BY_PAIRS:
        return KINDS[kind]({decode(key, reference): decode(item, reference) for key, item in inside})
    if KINDS[kind] in BY_PARTS and kind != "slice":
        return KINDS[kind](*(decode(part, nothing) for part in inside))
    items = (decode(item, reference) for item in inside)
    return slice(*items) if kind == "slice" else KINDS[kind](items)


def of_numpy(dtype, shape, inside):
    """No object is ever looked at by numpy: one may say where in memory its numbers stand."""
    import numpy

    if not NUMPY.fullmatch(dtype):
        raise ValueError("an array of something else than numbers and texts")
    value = decode(inside, nothing)
    if shape is None:
        return numpy.dtype(dtype).type(value)
    return numpy.array(value, dtype=dtype).reshape(shape)


def nothing(kind, key):
    raise ValueError("an object where a value must stand")


def importable(value):
    """The module and the name of a function or class that both processes have."""
    hidden = next((name for name, kind in vars(types).items() if kind is value), None)  # GeneratorType
    module, name = ("types", hidden) if hidden else (value.__module__, value.__name__)
    there = sys.modules.get(module) if module != "__main__" else None
    return [module, name] if getattr(there, name, None) is value else None


class CannotTravel(BaseException):
    """The test hands the program something that exists in its own process only."""
