"""What code_tests.py runs in the sandbox: this file is the program there, and nobody imports it.

A process is told on stdin which part it plays, and tells its results on stdout behind a random word:

    program  a candidate: makes the calls it is asked for and tells their values. No test is in its process.
    tests    tests without the candidate: names they do not define stand for the candidate's. A call of one is
             answered with the value of an earlier run of the candidate, or noted as one still to be made;
             the assert around it is then passed over, so that one pass notes as many calls as it can.
    both     a test beside the candidate, in one process: for what cannot travel between two

Values travel as JSON: built-in and numeric types by value, any other object as a reference to it, whose
methods are calls like any other. Whether such an object equals something is never asked of it: a candidate's
object would say yes.
"""

import ast
import base64
import builtins
import collections
import datetime
import decimal
import fractions
import itertools
import json
import lzma
import numbers
import os
import sys
import types

MOST_CALLS, MOST_ITEMS = 10_000, 100_000  # of one pass through a test; of one iterator
LONGEST = 1000  # characters of a reason
BY_TEXT = {  # types that travel as a text, and how it is read
    "Decimal": decimal.Decimal,
    "Fraction": fractions.Fraction,
    "complex": complex,
    "date": datetime.date.fromisoformat,
    "datetime": datetime.datetime.fromisoformat,
    "time": datetime.time.fromisoformat,
    "bytes": bytes.fromhex,
}
BY_ITEMS = {kind.__name__: kind for kind in (list, tuple, set, frozenset, collections.deque)}


def encode(value, other):
    """`value` as JSON, subclasses as their built-in type; `other(value)` encodes what cannot travel."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Rational):
        return ["Fraction", f"{int(value.numerator)}/{int(value.denominator)}"]
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, (decimal.Decimal, complex)):
        return ["Decimal" if isinstance(value, decimal.Decimal) else "complex", str(value)]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if type(value) in (datetime.date, datetime.datetime, datetime.time):
        return [type(value).__name__, value.isoformat()]
    if isinstance(value, range):
        return ["range", [value.start, value.stop, value.step]]
    if type(value).__module__ == "program":
        return other(value)  # it may have methods of its own; `bare` is asked for its value
    if isinstance(value, dict):
        return ["dict", [[encode(key, other), encode(item, other)] for key, item in value.items()]]
    for name, kind in BY_ITEMS.items():
        if isinstance(value, kind):
            return [name, [encode(item, other) for item in value]]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        inside = encode(value.tolist(), other)
        return ["ndarray", inside] if isinstance(inside, list) and inside[0] == "list" else inside
    return other(value)


def decode(data, reference):
    """What `encode` wrote; `reference(kind, data)` gives the objects that did not travel."""
    if not isinstance(data, list):
        return data
    kind, inside = data
    if kind in BY_TEXT:
        return BY_TEXT[kind](inside)
    if kind in BY_ITEMS:
        return BY_ITEMS[kind](decode(item, reference) for item in inside)
    if kind == "dict":
        return {decode(key, reference): decode(item, reference) for key, item in inside}
    if kind == "range":
        return range(*inside)
    if kind == "ndarray":
        import numpy

        return numpy.array(decode(inside, reference))
    return reference(kind, inside)


def tell(word, said):
    """Long texts go through the sandbox, which keeps 64 KiB, compressed; the length shows if any is lost."""
    packed = base64.b85encode(lzma.compress(json.dumps(said).encode())).decode()
    return f"\n{word}{len(packed)}:{packed}\n"


def bare(value):
    """An object of a class derived from list, dict or the like as such a one; any other as it is."""
    kinds = (kind for kind in (dict, *BY_ITEMS.values()) if isinstance(value, kind))
    return next(kinds, lambda value: value)(value)


CALLS = {
    "call": lambda function, *args, **named: function(*args, **named),
    "method": lambda thing, name, /, *args, **named: getattr(thing, name)(*args, **named),
    "attribute": getattr,
    "set attribute": setattr,
    "item": lambda thing, key: thing[key],
    "set item": lambda thing, key, value: thing.__setitem__(key, value),
    "items": lambda thing: list(itertools.islice(iter(thing), MOST_ITEMS)),
    "next": next,
    "len": len,
    "bool": bool,
    "str": str,
    "repr": repr,
    "isinstance": isinstance,
    "bare": bare,
}


def play_program(asked):
    names, objects, results = namespace(asked["code"]), [], []

    def refer(value):
        known = (number for number, one in enumerate(objects) if one is value)
        number = next(known, len(objects))
        objects[number:] = objects[number:] or [value]
        return ["object", number]

    def reference(kind, key):
        if kind == "object":
            return objects[key]
        if key in names:
            return names[key]
        if hasattr(builtins, key):
            return getattr(builtins, key)
        raise NameError(f"name {key!r} is not defined")

    def look_up(name):
        try:
            return encode(reference("name", name), travel)
        except (NameError, CannotTravel):  # what is missing is told when it is called
            return ["name", name]

    for kind, *given in asked["calls"]:
        try:
            if kind == "name":
                results.append([look_up(given[0])])
                continue
            args = [decode(item, reference) for item in given[0]]
            named = {name: decode(item, reference) for name, item in given[1].items()}
            value = encode(CALLS[kind](*args, **named), refer)
            results.append([value, [encode(item, refer) for item in args]])
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - what the test sees, as if it had called it
            results.append({"error": type(error).__name__, "args": [str(item) for item in error.args]})
    return results


def namespace(code):
    module = sys.modules["program"] = types.ModuleType("program")
    exec(compile(code, "<program>", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


class Ask(BaseException):
    """A call whose value is not known yet."""


class CannotTravel(BaseException):
    """The test hands the program something that exists in its own process only."""


class Unsettled(BaseException):
    """Only the program itself could say whether this holds."""


class Talk:
    """The calls of one test in their order, answered from those of the candidate's last run."""

    def __init__(self, calls, results):
        self.calls, self.held, self.noted = [], 0, ""
        self.known, self.seen, self.objects = {}, collections.Counter(), {}
        for call, result in zip(calls, json.loads(results), strict=True):
            key = json.dumps(call)
            self.seen[key] += 1
            self.known[key, self.seen[key]] = result
        self.seen.clear()

    def answer(self, *call):
        if len(self.calls) >= MOST_CALLS:
            raise Unsettled(f"the test makes more than {MOST_CALLS:,} calls")
        key = json.dumps(call)
        self.seen[key] += 1
        self.calls.append(list(call))
        return self.known.get((key, self.seen[key]))

    def name(self, name):
        result = self.answer("name", name)
        return decode(result[0], self.reference) if result else self.reference("name", name)

    def ask(self, kind, *args, **named):
        sent = [encode(item, travel) for item in args]
        result = self.answer(kind, sent, {name: encode(item, travel) for name, item in named.items()})
        if result is None:
            return Pending()
        if isinstance(result, dict):
            raise raised(result)
        for item, before, after in zip(args, sent, result[1], strict=True):
            if before != after:
                write_back(item, decode(after, self.reference))
        return decode(result[0], self.reference)

    def reference(self, kind, key):
        return self.objects.setdefault((kind, key), Remote(self, kind, key))

    def note(self, text):
        """What is asserted next, for the reason."""
        self.noted = f"not so: {text}"

    def same(self, expected, given, text):
        """given == expected, which comes first: a program may change what it is computed from."""
        self.noted = f"{text} gave {given!r}"
        return given == expected

    def hold(self):
        self.held += 1


class Remote:
    """An object of the program, or one of its names."""

    def __init__(self, talk, kind, key):
        self.__dict__.update(_talk=talk, _kind=kind, _key=key)

    def __eq__(self, other):
        if isinstance(other, Remote) and (self._kind, self._key) == (other._kind, other._key):
            return True
        mine, theirs = self._bare(), other._bare() if isinstance(other, Remote) else other
        if not isinstance(mine, Remote):
            return mine == theirs
        if plain(theirs):
            return False
        raise Unsettled("only the program could say whether its objects are equal")

    def _bare(self):
        return self._talk.ask("bare", self)

    def __hash__(self):
        return hash((self._kind, self._key))

    def __iter__(self):
        return iter(self._talk.ask("items", self))

    def __bool__(self):
        return self._talk.ask("bool", self) is True

    def __instancecheck__(self, thing):
        return self._talk.ask("isinstance", thing, self) is True


class Pending:
    """A value that is not known yet; it may be kept, and whoever looks at it waits."""


def forward(kind):
    return lambda self, *args, **named: self._talk.ask(kind, self, *args, **named)


def unsettled(self, *others):
    raise Unsettled("only the program could compute with its objects")


def wait(self, *others, **named):
    raise Ask


FORWARDED = {"call": "call", "getattr": "attribute", "setattr": "set attribute", "getitem": "item"}
FORWARDED |= {"setitem": "set item", "next": "next", "len": "len", "str": "str", "repr": "repr"}
OPERATORS = ("lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
OPERATORS += ("radd", "rsub", "rmul", "rtruediv", "and", "or", "xor", "abs", "neg", "float", "int", "round")
for special, kind in FORWARDED.items():
    setattr(Remote, f"__{special}__", forward(kind))
for special in OPERATORS:
    setattr(Remote, f"__{special}__", unsettled)
for special in (*FORWARDED, *OPERATORS, "eq", "hash", "bool", "iter", "contains", "instancecheck"):
    setattr(Pending, f"__{special}__", wait)


def plain(value):
    try:
        encode(value, travel)
    except CannotTravel:
        return False
    return not isinstance(value, Remote)


def travel(value):
    if isinstance(value, Remote):
        return [value._kind, value._key]
    if isinstance(value, Pending):
        raise Ask
    raise CannotTravel(f"the test passes the program an object of its own, {type(value).__name__}")


def raised(result):
    kind, args = getattr(builtins, result["error"], None), result["args"]
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind, args = RuntimeError, [": ".join([result["error"], *args])]
    try:
        error = kind(*args)
    except TypeError:
        error = RuntimeError(": ".join([result["error"], *args]))
    error.of_program = True
    return error


def write_back(item, after):
    """A list or the like that the program changed in place."""
    if isinstance(item, list):
        item[:] = after
    elif isinstance(item, (dict, set, collections.deque)):
        item.clear()
        (item.extend if isinstance(item, collections.deque) else item.update)(after)


def of_the_test(error, tree, touched):
    """True when the expression that failed holds nothing of the program's: the test is broken."""
    if getattr(error, "of_program", False):
        return False
    places, trace = [], error.__traceback__
    while trace is not None:
        if (code := trace.tb_frame.f_code).co_filename == "<test>":
            places.append(next(itertools.islice(code.co_positions(), trace.tb_lasti // 2, None)))
        trace = trace.tb_next
    if not places:
        return True
    line, end_line, column, end_column = places[-1]
    inside = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name)
        and (line, column) <= (node.lineno, node.col_offset) <= (end_line, end_column)
    }
    return not inside & set(touched)


def play_test(test, names, talk):
    """[outcome, reason]: held, failed, undecided, or beside for a test that must run beside the program."""
    names |= {"__same__": talk.same, "__note__": talk.note, "__hold__": talk.hold}
    names |= {"__Ask__": Ask, "__method__": method, "__name__": "__main__"}
    try:
        exec(compile(test["source"], "<test>", "exec", dont_inherit=True), names)
    except (Ask, Unsettled) as stop:
        return ["undecided", str(stop)]
    except CannotTravel as stop:
        return ["beside", str(stop)]
    except (SystemExit, KeyboardInterrupt):
        return ["undecided", "the test stopped before its end"]
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - of the program, of the test, or of both
        if isinstance(error, AssertionError) and not getattr(error, "of_program", False):
            return ["failed", talk.noted]
        said = f"{type(error).__name__}: {error}"
        if of_the_test(error, ast.parse(test["source"]), test["touched"]):
            return ["undecided", f"the test itself failed: {said}"]
        return ["failed", said]
    return ["held", ""] if talk.held else ["undecided", "the test asserted nothing"]


def method(thing, name, /, *args, **named):
    if isinstance(thing, Remote):
        return thing._talk.ask("method", thing, name, *args, **named)
    return getattr(thing, name)(*args, **named)


def play_tests(asked):
    told = []
    for test in asked["tests"]:
        try:
            talk = Talk(test["calls"], test["results"])
            names = {name: talk.name(name) for name in test["free"]}
        except Exception:  # noqa: BLE001 - no program that plays its part tells such a thing
            told.append(["failed", "what the program told cannot be read", test["calls"]])
            continue
        outcome, reason = play_test(test, names, talk)
        told.append([outcome, reason[:LONGEST], talk.calls])
    return told


def play_both(asked):
    return play_test(asked["test"], namespace(asked["code"]), Talk([], "[]"))


sys.set_int_max_str_digits(200_000)
end = os._exit
asked = json.load(sys.stdin)
channel = open(1, "w", encoding="ascii", closefd=False)  # noqa: SIM115 - for as long as the process lives
told = {"program": play_program, "tests": play_tests, "both": play_both}[asked["part"]](asked)
channel.write(tell(asked["word"], told))
channel.flush()
end(0)
