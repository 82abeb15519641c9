"""The part of a candidate in code_probe.py: it makes the calls it is asked for and tells their values."""

import builtins
import collections.abc
import copy
import fractions
import importlib
import itertools
import numbers
import sys
import types

from cotkit.verify.code_values import (
    BY_ITEMS,
    BY_PAIRS,
    MOST_ITEMS,
    OPERATORS,
    REFERENCES,
    CannotTravel,
    decode,
    encode,
    importable,
)

OF_PYTHON = ("builtins", "collections", "collections.abc", "fractions")  # their == is that of the plain value


def bare(value):
    """An object of a class derived from a built-in type, or made to stand for one, as one of that; any other
    as it is.
    """
    for kind in (*BY_PAIRS[:1], *BY_ITEMS, bytes, memoryview):
        if isinstance(value, kind):
            return (bytes if kind is memoryview else kind)(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, collections.abc.Set):  # the views of a dict
        return set(value)
    if isinstance(value, collections.abc.Mapping):
        return dict(value.items())
    if isinstance(value, (collections.UserList, collections.UserString)):
        return bare(value.data)
    numeric = (numbers.Integral, int), (numbers.Rational, fractions.Fraction), (numbers.Real, float)
    return next((kind(value) for abstract, kind in numeric if isinstance(value, abstract)), value)


def plainly(thing):
    """`thing` as a plain value; whether its == should be that of the value; which operators are not.

    All at once: a program that was told which operator is meant could choose a value for it.
    """
    value, kinds = bare(thing), type(thing).__mro__
    place = next(kind.__module__ for kind in kinds if "__eq__" in vars(kind))
    own = []
    for special in (f"__{name}__" for name in OPERATORS):
        kind = next((kind for kind in kinds if special in vars(kind)), object)
        if kind.__module__ == "program" or (kind is object and special in vars(type(value))):
            own.append(special)
    derived = isinstance(thing, type(value))  # of a built-in type: an == of its own counts for nothing
    return [value, place in OF_PYTHON or (derived and place == "program"), own]


def whose(thing):
    """The module and name of a type or function of Python or of a library."""
    kinds = (type, types.FunctionType, types.BuiltinFunctionType)
    return importable(thing) if isinstance(thing, kinds) else None


def members(thing):
    """What `in` looks through; None = the class says itself what is in its objects."""
    kind = next((kind for kind in type(thing).__mro__ if "__contains__" in vars(kind)), object)
    plain = kind.__module__ in ("builtins", "collections", "_collections_abc")
    return items(thing) if plain else None


def items(thing):
    return list(itertools.islice(iter(thing), MOST_ITEMS))


CALLS = {
    "call": lambda function, *args, **named: function(*args, **named),
    "method": lambda thing, name, /, *args, **named: getattr(thing, name)(*args, **named),
    "attribute": getattr,
    "has attribute": hasattr,
    "set attribute": setattr,
    "delete attribute": delattr,
    "item": lambda thing, key: thing[key],
    "set item": lambda thing, key, value: thing.__setitem__(key, value),
    "delete item": lambda thing, key: thing.__delitem__(key),
    "enter": lambda thing: type(thing).__enter__(thing),
    "exit": lambda thing: type(thing).__exit__(thing, None, None, None),
    "items": items,
    "reversed": lambda thing: items(reversed(thing)),
    "members": members,
    "bare": plainly,
    "whose": whose,
    "copy": copy.copy,
    "deepcopy": lambda thing, *memo: copy.deepcopy(thing),
    "isinstance": isinstance,
    "issubclass": issubclass,
}
CALLS |= {function.__name__: function for function in (next, len, bool, str, repr, format, dir, hash, type)}
CALLS["callable"] = callable


def play_program(asked):
    names, objects, known, results = namespace(asked["code"]), [], {}, []

    def refer(value):
        if isinstance(value, (type, types.FunctionType)) and names.get(value.__name__) is value:
            return ["name", value.__name__]
        if id(value) not in known:
            known[id(value)] = len(objects)
            objects.append(value)
        by_identity = type(value).__eq__ is object.__eq__
        return ["object" if by_identity else "equal", known[id(value)]]

    def reference(kind, key):
        if kind == "global":
            return found(*key)
        if kind != "name":
            return objects[key]
        if key in names:
            return names[key]
        if hasattr(builtins, key):
            return getattr(builtins, key)
        raise NameError(f"name {key!r} is not defined")

    def look_up(name):
        try:
            return encode(reference("name", name), by_name)
        except CannotTravel:
            return ["name", name]

    def names_of(thing):
        return [name for name, value in names.items() if value is thing]

    calls = CALLS | {"names": names_of}
    for kind, *given in asked["calls"]:
        sent = [] if kind == "name" else [*given[0], *given[1].values()]
        held = []
        try:
            if kind == "name":
                said = look_up(given[0])
            else:
                held = [decode(item, reference) for item in sent]
                args, named = held[: len(given[0])], zip(given[1], held[len(given[0]) :], strict=True)
                value = calls[kind](*args, **dict(named))
                same = (n for n, item in enumerate(held) if item is value and by_value(sent[n]))
                place = next(same, None)
                said = encode(value, refer) if place is None else ["argument", place]
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what the test sees, as if it had called it
            said = of_error(error)
        after = [
            encode(one, refer) if by_value(json_) else json_ for one, json_ in zip(held, sent, strict=False)
        ]
        results.append([said, after or sent])
    return results


def by_name(value):
    raise CannotTravel


def by_value(data):
    return isinstance(data, list) and data[0] not in (*REFERENCES, "global")


def of_error(error):
    kinds = [[kind.__module__, kind.__qualname__] for kind in type(error).__mro__]
    return {"error": type(error).__name__, "kinds": kinds, "args": [encode(one, str) for one in error.args]}


def namespace(code):
    module = sys.modules["program"] = types.ModuleType("program")
    exec(compile(code, "<program>", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def found(module, name):
    return getattr(importlib.import_module(module), name)
