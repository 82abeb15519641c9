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
import sys
import types

MOST_CALLS, MOST_ITEMS = 10_000, 100_000  # of one pass through a test; of one iterator
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
NOT_EXPECTED = ("AssertionError", "Exception", "BaseException")  # would catch a failed assert too


# --- values


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


# --- the part of the program

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
        return names[key] if key in names else getattr(builtins, key)

    for kind, *given in asked["calls"]:
        try:
            if kind == "name":
                there = given[0] in names or hasattr(builtins, given[0])
                value = reference("name", given[0]) if there else None
                results.append([encode(value, lambda value: ["name", given[0]]) if there else ["missing", 0]])
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


# --- the part of the tests


class Ask(BaseException):
    """A call whose value is not known yet."""


class CannotTravel(BaseException):
    """The test hands the program something that exists in its own process only."""


class Unsettled(BaseException):
    """Only the program itself could say whether this holds."""


class Talk:
    """The calls of one test in their order, answered from those of the candidate's last run."""

    def __init__(self, calls, results):
        self.calls, self.held, self.given = [], 0, ""
        self.known, self.seen = {}, collections.Counter()
        for call, result in zip(calls, results, strict=False):
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
        return decode(result[0], self.reference) if result else Remote(self, "name", name)

    def ask(self, kind, *args, **named):
        sent = [encode(item, travel) for item in args]
        result = self.answer(kind, sent, {name: encode(item, travel) for name, item in named.items()})
        if result is None:
            raise Ask
        if isinstance(result, dict):
            raise raised(result)
        for item, before, after in zip(args, sent, result[1], strict=True):
            if before != after:
                write_back(item, decode(after, self.reference))
        return decode(result[0], self.reference)

    def reference(self, kind, key):
        return Missing(self, kind, key) if kind == "missing" else Remote(self, kind, key)

    def same(self, left, right, text, first):
        """left == right; what the program gave is kept for the reason."""
        self.given = f"{text} gave {(left if first else right)!r}"
        return left == right

    def hold(self):
        self.held += 1


class Remote:
    """An object of the program, or one of its names."""

    def __init__(self, talk, kind, key):
        self.__dict__.update(_talk=talk, _kind=kind, _key=key)

    def __eq__(self, other):
        if isinstance(other, Remote):
            if (self._kind, self._key) == (other._kind, other._key):
                return True
        elif encode(other, lambda value: Remote) is not Remote:
            return False  # a plain value is no object of the program's
        raise Unsettled("only the program could say whether its objects are equal")

    def __hash__(self):
        return hash((self._kind, self._key))

    def __order__(self, other):
        raise Unsettled("only the program could compare its objects")

    __lt__ = __le__ = __gt__ = __ge__ = __order__
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __matmul__ = __order__
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __and__ = __or__ = __xor__ = __order__
    __abs__ = __neg__ = __float__ = __int__ = __index__ = __round__ = lambda self, *_: self.__order__(None)

    def __call__(self, *args, **named):
        return self._talk.ask("call", self, *args, **named)

    def __getattr__(self, name):
        return self._talk.ask("attribute", self, name)

    def __setattr__(self, name, value):
        self._talk.ask("set attribute", self, name, value)

    def __getitem__(self, key):
        return self._talk.ask("item", self, key)

    def __setitem__(self, key, value):
        self._talk.ask("set item", self, key, value)

    def __iter__(self):
        return iter(self._talk.ask("items", self))

    def __next__(self):
        return self._talk.ask("next", self)

    def __len__(self):
        return self._talk.ask("len", self)

    def __bool__(self):
        return self._talk.ask("bool", self) is True

    def __str__(self):
        return self._talk.ask("str", self)

    def __repr__(self):
        return self._talk.ask("repr", self)

    def __instancecheck__(self, thing):
        return self._talk.ask("isinstance", thing, self) is True


class Missing(Remote):
    """A name that the program does not define."""

    def __call__(self, *args, **named):
        error = NameError(f"name {self._key!r} is not defined")
        error.of_program = True
        raise error


def travel(value):
    if isinstance(value, Remote):
        return [value._kind, value._key]
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


class Instrument(ast.NodeTransformer):
    """Counts the asserts that hold, and passes over what waits for a value."""

    def __init__(self, names):
        self.names = names

    def visit_Assert(self, node):
        match node.test:
            case ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp() | ast.ListComp() as each]):
                return self.visit(self.loops(node, each))
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                first = bool(used(left) & self.names) or not used(right) & self.names
                shown = ast.Constant(ast.unparse(left if first else right))
                node.test = call("__same__", left, right, shown, ast.Constant(first))
        self.generic_visit(node)
        return passed_over(node, node, ast.Expr(call("__hold__")))

    def loops(self, node, each):
        """`assert all(a for b in c)` as a loop of asserts: each of its calls is then asked for at once."""
        inner = ast.copy_location(ast.Assert(each.elt, node.msg), node)
        for part in reversed(each.generators):
            for condition in reversed(part.ifs):
                inner = ast.copy_location(ast.If(condition, [inner], []), node)
            inner = ast.copy_location(ast.For(part.target, part.iter, [inner], []), node)
        return inner

    def visit_Expr(self, node):
        self.generic_visit(node)
        return node if isinstance(node.value, ast.Constant) else passed_over(node, node)

    def visit_Call(self, node):
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(value=thing, attr=name):
                method = call("__method__", thing, ast.Constant(name), *node.args)
                method.keywords = node.keywords
                return ast.copy_location(method, node)
        return node

    def visit_Try(self, node):
        """`try: f(-1); assert False` with `except ValueError:` tests by not coming to its assert."""
        ends = [part[-1] for part in (node.body, node.orelse) if part]
        self.generic_visit(node)
        if any(isinstance(end, ast.Assert) and isinstance(end.test, ast.Constant) for end in ends):
            for handler in node.handlers:
                if handler.type is not None and not used(handler.type) & set(NOT_EXPECTED):
                    handler.body.insert(0, ast.Expr(call("__hold__")))
        return node


def call(name, *args):
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def used(node):
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def passed_over(node, *body):
    handler = ast.ExceptHandler(ast.Name("__Ask__", ast.Load()), None, [ast.Pass()])
    return ast.copy_location(ast.Try(list(body), [handler], [], []), node)


def touched(tree, names):
    """The names that may hold what the program gave: its own, and those bound from them."""
    found = set(names)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            found.add(node.arg)
    for _ in range(len(list(ast.walk(tree)))):
        before = len(found)
        for node in ast.walk(tree):
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.comprehension)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                source = getattr(node, "value", None) or getattr(node, "iter", None)
                if source is not None and used(source) & found:
                    found |= set().union(*map(used, targets))
        if len(found) == before:
            return found
    return found


def of_the_test(error, tree, names):
    """True when the expression that failed holds nothing of the program's: the test is broken."""
    if getattr(error, "of_program", False) or isinstance(error, AssertionError):
        return False
    places, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<test>":
            code = trace.tb_frame.f_code
            places.append(next(itertools.islice(code.co_positions(), trace.tb_lasti // 2, None)))
        trace = trace.tb_next
    if not places:
        return True
    line, end_line, column, end_column = places[-1]
    inside = set()
    for node in ast.walk(tree):
        at = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        if isinstance(node, ast.Name) and (line, column) <= at <= (end_line, end_column):
            inside.add(node.id)
    return not inside & touched(tree, names)


def play_test(source, free, names, talk):
    """[outcome, reason]: held, failed, undecided, or beside for a test that must run beside the program."""
    tree = ast.parse(source)
    shown = ast.parse(source)
    code = compile(ast.fix_missing_locations(Instrument(set(free)).visit(tree)), "<test>", "exec")
    names |= {"__same__": talk.same, "__hold__": talk.hold, "__Ask__": Ask, "__method__": method}
    names["__name__"] = "__main__"
    try:
        exec(code, names)
    except (Ask, Unsettled) as stop:
        return ["undecided", str(stop)]
    except CannotTravel as stop:
        return ["beside", str(stop)]
    except (SystemExit, KeyboardInterrupt):
        return ["undecided", "the test ended before its end"]
    except MemoryError:
        raise
    except AssertionError as error:
        if not getattr(error, "of_program", False):
            return ["failed", talk.given or f"not so: {failed_line(error, source)}"]
        return ["failed", f"AssertionError: {error}"]
    except Exception as error:  # noqa: BLE001 - of the program, of the test, or of both
        said = f"{type(error).__name__}: {error}"
        if of_the_test(error, shown, free):
            return ["undecided", f"the test itself failed: {said}"]
        return ["failed", said]
    return ["held", ""] if talk.held else ["undecided", "the test asserted nothing"]


def failed_line(error, source):
    lines, trace = source.splitlines(), error.__traceback__
    while trace.tb_next is not None and trace.tb_next.tb_frame.f_code.co_filename == "<test>":
        trace = trace.tb_next
    return lines[trace.tb_lineno - 1].strip() if trace.tb_lineno <= len(lines) else "an assert"


def method(thing, name, /, *args, **named):
    if isinstance(thing, Remote):
        return thing._talk.ask("method", thing, name, *args, **named)
    return getattr(thing, name)(*args, **named)


def play_tests(asked):
    told = []
    for test in asked["tests"]:
        talk = Talk(test["calls"], test["results"])
        names = {name: talk.name(name) for name in test["free"]}
        outcome = play_test(test["source"], test["free"], names, talk)
        told.append([*outcome, talk.calls])
    return told


def play_both(asked):
    return play_test(asked["source"], asked["free"], namespace(asked["code"]), Talk([], []))


if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)
asked = json.load(sys.stdin)
channel = open(1, "w", encoding="ascii", closefd=False)  # noqa: SIM115 - for as long as the process lives
told = {"program": play_program, "tests": play_tests, "both": play_both}[asked["part"]](asked)
channel.write(tell(asked["word"], told))
channel.flush()
import os  # noqa: E402

os._exit(0)
