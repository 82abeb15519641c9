"""What code_tests.py runs in the sandbox: this file is the program there, with those that it imports from
here put into it, and nobody imports it.

A process is told on stdin which part it plays, and tells its results on stdout behind a random word:

    program  a candidate: makes the calls it is asked for and tells their values. No test is in its process.
    tests    tests without the candidate: names they do not define stand for the candidate's. A call of one is
             answered with the value of an earlier run of the candidate, or noted as one still to be made;
             the assert around it is then passed over, so that one pass notes as many calls as it can.
    both     a test beside the candidate, in one process: for what cannot travel between two

Whether an object of the candidate equals something is never asked of it: it would say yes. Nor is it told
which operator its value is wanted for, and a value that it told once is its value (Talk.keep).
"""

import ast
import base64
import collections
import contextlib
import fractions
import itertools
import json
import lzma
import os
import sys
import types

from cotkit.verify.code_calls import namespace, play_program
from cotkit.verify.code_values import (
    BY_ITEMS,
    BY_PAIRS,
    BY_PARTS,
    BY_TEXT,
    MOST_ITEMS,
    OPERATORS,
    REFERENCES,
    TOLD,
    CannotTravel,
    decode,
    encode,
    importable,
    nothing,
)

MOST_CALLS = 10_000  # of one pass through a test
LONGEST = 1000  # characters of a reason
FIRM = (int, float, complex, str, bytes, fractions.Fraction)  # no call changes one
VALUES = {bool, int, float, str, type(None), *BY_TEXT, *BY_PARTS, *BY_ITEMS, *BY_PAIRS} - {collections.deque}
CHANGE_NOTHING = {"bare", "members", "names", "whose", "type", "callable", "isinstance", "issubclass"}
CHANGE_NOTHING |= {"has attribute", "bool", "hash", "len", "str", "repr", "format", "dir"}


def tell(word, said):
    """Long texts go through the sandbox, which keeps 64 KiB, compressed; the length shows if any is lost."""
    packed = base64.b85encode(lzma.compress(json.dumps(said).encode())).decode()
    return f"\n{word}{len(packed)}:{packed}\n"


class Ask(BaseException):
    """A call whose value is not known yet."""


class Unsettled(BaseException):
    """Only the program itself could say whether this holds."""


class Talk:
    """The calls of one test in their order, answered from those of the candidate's last run."""

    def __init__(self, calls, results):
        self.calls, self.held, self.noted, self.stopping = [], 0, "", None
        self.certain = self.changed = False  # of the assert that is looked at
        self.ended = []  # the StopIterations that calls raised and no handler has seen
        self.known, self.seen, self.objects = {}, collections.Counter(), {}
        self.kept, self.changes, self.types = {}, 0, set()
        self.doubt = ""  # why a test that holds would rest on the program's word
        for call, result in zip(calls, json.loads(results), strict=True):
            key = json.dumps(call)
            self.seen[key] += 1
            self.known[key, self.seen[key]] = result
        self.seen.clear()

    def stop(self, why):
        """Ends the test for good: one that catches everything would take it for an error of the program."""
        self.stopping = self.stopping or why
        raise why

    def answer(self, *call):
        if len(self.calls) >= MOST_CALLS:
            self.stop(Unsettled(f"the test makes more than {MOST_CALLS:,} calls"))
        key = json.dumps(call)
        self.seen[key] += 1
        self.calls.append(list(call))
        return self.known.get((key, self.seen[key]))

    def names(self, wanted):
        """What stands for the program's names; one that it does not define is none here either."""
        names = {}
        for name in wanted:
            result = self.answer("name", name)
            if result is None:
                names[name] = self.reference("name", name)
            elif not isinstance(result[0], dict):
                names[name] = decode(result[0], self.reference)
        return names

    def ask(self, kind, *args, **named):
        given = [*args, *named.values()]
        try:
            sent = [encode(item, travel) for item in given]
        except CannotTravel as why:
            if isinstance(args[0], Remote) and place_of(args[0])[0] == "name":
                self.stop(why)
            self.stop(Unsettled("the program gave an object, to which the test hands something of its own"))
        self.changes += kind not in CHANGE_NOTHING
        result = self.answer(kind, sent[: len(args)], dict(zip(named, sent[len(args) :], strict=True)))
        if result is None:
            return Pending()
        try:
            said, after = result
            renewed = [one if old == new else decode(new, self.reference) for one, old, new in
                       zip(given, sent, after, strict=True)]  # fmt: skip
            if isinstance(said, dict):
                value = raised(said)
            elif isinstance(said, list) and said[0] == "argument":
                value = given[said[1]]
            else:
                value = decode(said, self.reference)
        except Exception:  # noqa: BLE001 - no program that plays its part tells such a thing
            value, renewed, said = unreadable(), given, {}
        for one, new in zip(given, renewed, strict=True):
            if one is not new:
                self.changed = True
                if not write_back(one, new) and one != new:
                    self.stop(Unsettled("the program changed what cannot be changed from outside"))
        if not isinstance(said, dict):
            return value
        if isinstance(value, StopIteration) and kind != "next":
            self.ended.append(value)
        raise value

    def keep(self, what, value, firm):
        """Ends the test where the program has told something else of the same object before: large for `>`
        and small for `<`. What is not `firm`, as a list, another call may have changed since.
        """
        told = json.dumps(encode(value, travel))
        before, firmly, changes = self.kept.get(what, (told, firm, self.changes))
        if told != before and (firmly or changes == self.changes):
            self.stop(Unsettled("the program tells of one object now this, now that"))
        self.kept[what] = told, firm, self.changes

    def reference(self, kind, key):
        if kind not in REFERENCES or not isinstance(key, (int, str)):
            raise ValueError("no such object")
        return self.objects.setdefault((kind, key), Remote(self, kind, key))

    def note(self, text):
        """What is asserted next, for the reason."""
        self.noted, self.certain, self.changed = f"not so: {text}", False, False

    def same(self, given, expected, text, shared):
        """given == expected. `shared`: both are computed from the same names, and the program may change what
        they hold; the expected value comes first then, for a program that empties what it is computed from.
        """
        equal = given == expected
        if not equal and shared and self.changed and not isinstance(given, (*BY_ITEMS, *BY_PAIRS)):
            self.stop(Unsettled("the program changes what the expected value is computed from"))
        if not equal:
            self.noted = f"{text} gave {shown(given)}"
        return equal

    def hold(self):
        self.held += 1

    def see(self):
        """Called by every handler of the test: the error that it handles was no silent end of a loop."""
        error = sys.exc_info()[1]
        while error is not None:
            self.ended = [other for other in self.ended if other is not error]
            error = error.__context__


class Remote:
    """An object of the program, or one of its names."""

    __slots__ = ("_cotkit_place_", "_cotkit_talk_")  # no name that a program's object could have

    def __init__(self, talk, kind, key):
        object.__setattr__(self, "_cotkit_talk_", talk)
        object.__setattr__(self, "_cotkit_place_", (kind, key))

    def __getattribute__(self, name):
        if name in ("__doc__", "__module__"):
            return ask(self, "attribute", name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name):
        # a library that finds __array_interface__ takes the program's word for where in memory numbers stand
        if name.startswith("__") and name not in ("__name__", "__qualname__", "__dict__", "__annotations__"):
            raise AttributeError(name)
        return ask(self, "attribute", name)

    def __eq__(self, other):
        mine, theirs, sure, (kind, _) = self, other, True, place_of(self)
        if isinstance(other, Remote):
            if place_of(other) == place_of(self):
                return True
            kinds = {kind, place_of(other)[0]}
            if "name" in kinds and named_alike(self, other):
                return True
            if kinds == {"object"}:
                return False
            theirs, sure, _ = bare_of(other)
        if kind != "object":
            mine, surely, _ = bare_of(self)
            sure = sure and surely
        if not isinstance(mine, Remote):
            equal = mine == theirs
        elif plain(theirs):
            equal = False
        elif isinstance(theirs, (type, types.FunctionType, types.BuiltinFunctionType)):
            return is_that(self, theirs)
        else:
            unsettled(self, why="only the program could say whether its objects are equal")
        talk_of(self).certain |= sure and not equal and theirs is not None and plain(theirs)
        return equal

    def __hash__(self):
        if place_of(self)[0] == "equal":
            known(ask(self, "hash"))  # raises where it has none
            unsettled(self, why="only the program could say whether its objects are equal")
        return hash(place_of(self))

    def __iter__(self):
        return self._through(known(ask(self, "items")))

    def __reversed__(self):
        return self._through(known(ask(self, "reversed")))

    def _through(self, items):
        items = list(items)
        if len(items) < MOST_ITEMS:
            return iter(items)
        return itertools.chain(items, (unsettled(self, why="it has too many items") for _ in [0]))

    def __contains__(self, thing):
        if (items := steady(self, "members", firm=False)) is None:
            unsettled(self, why="only the program could say what is in its objects")
        return thing in items

    def __bool__(self):
        return known(ask(self, "bool")) is True

    def __instancecheck__(self, thing):
        return is_a("isinstance", thing, self)

    def __subclasscheck__(self, thing):
        return is_a("issubclass", thing, self)

    def __exit__(self, kind, error, trace):
        """It never keeps an error from the test: one of an assert would be lost."""
        if kind is None:
            ask(self, "exit")
        elif getattr(error, "of_program", False):
            unsettled(self, why="only the program could say whether its object keeps an error to itself")


def place_of(remote):
    return object.__getattribute__(remote, "_cotkit_place_")


def talk_of(remote):
    return object.__getattribute__(remote, "_cotkit_talk_")


def ask(remote, kind, *args, **named):
    return talk_of(remote).ask(kind, remote, *args, **named)


def known(value):
    """For what Python must have at once."""
    if isinstance(value, Pending):
        raise Ask
    return value


def steady(remote, kind, firm=True):
    """What a program is asked of an object and does not compute."""
    value = known(ask(remote, kind))
    talk_of(remote).keep((kind, place_of(remote)), value, firm)
    return value


def bare_of(remote):
    """Its plain value, or itself; if == of it should be == of that; the operators that are its own."""
    match known(ask(remote, "bare")):
        case [value, bool(sure), [*own]]:
            talk_of(remote).keep(("bare", place_of(remote)), value, isinstance(value, FIRM))
            return value, sure, [name for name in own if type(name) is str]
    raise unreadable()


def named_alike(one, other):
    """Where at least one is a name, and both are the same object. The program is not asked about the name: it
    tells all that its object has, and one that has many could be meant to have any.
    """
    if place_of(one)[0] == "name":
        one, other = other, one
    names = steady(one, "names", firm=False)
    names = [name for name in names if type(name) is str] if type(names) is list else []
    if place_of(other)[1] not in names:
        return False
    if place_of(one)[0] != "name" and len(names) > 1:
        unsettled(one, why="only the program could say which of its names an object has")
    return True


def is_that(remote, kind):
    """Whether it is this type or function: the program is asked what it is, not if it is that."""
    if not (here := importable(kind)):
        unsettled(remote, why="only the program could say whether its object is one of the test")
    told = steady(remote, "whose")
    if type(told) is not list or [type(part) for part in told] != [str, str] or told != here:
        return False
    if place_of(remote) in talk_of(remote).types and kind in VALUES:
        doubted(remote)
    return True


def doubted(remote):
    talk_of(remote).doubt = "only the program says that its object is a plain value, and it gave none"


class Pending:
    """A value that is not known yet; it may be kept, and whoever looks at it waits."""


def forward(kind):
    def special(self, *args, **named):
        value = ask(self, kind, *args, **named)
        return known(value) if kind in AT_ONCE else value

    return special


def compute(special):
    def operator(self, *others):
        mine, _, own = bare_of(self)
        if isinstance(mine, Remote) or special in own:
            unsettled(self, why="only the program could compute with its objects")
        return getattr(type(mine), special, lambda *_: NotImplemented)(mine, *others)

    return operator


def unsettled(remote, *others, why="only the program could do that with its objects"):
    talk_of(remote).stop(Unsettled(why))


def wait(self, *others, **named):
    raise Ask


AT_ONCE = ("len", "str", "repr", "format", "dir")
FORWARDED = {name: name for name in ("call", "next", "copy", "deepcopy", "enter", *AT_ONCE)}
FORWARDED |= {"setattr": "set attribute", "delattr": "delete attribute", "getitem": "item"}
FORWARDED |= {"setitem": "set item", "delitem": "delete item"}
REFUSED = ("bytes", "fspath", "reduce_ex")
OTHERS = ("eq", "hash", "bool", "iter", "reversed", "contains", "instancecheck", "subclasscheck", "exit")
for special, kind in FORWARDED.items():
    setattr(Remote, f"__{special}__", forward(kind))
for special in OPERATORS:
    setattr(Remote, f"__{special}__", compute(f"__{special}__"))
for special in REFUSED:
    setattr(Remote, f"__{special}__", unsettled)
for special in (*FORWARDED, "getattr", *OPERATORS, *REFUSED, *OTHERS):
    setattr(Pending, f"__{special}__", wait)


def plain(value):
    try:
        encode(value, travel)
    except CannotTravel:
        return False
    return not isinstance(value, (Remote, type)) and not callable(value)


def travel(value):
    if isinstance(value, Remote):
        return list(place_of(value))
    if isinstance(value, Pending):
        raise Ask
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)) and importable(value):
        return ["global", importable(value)]
    raise CannotTravel(f"the test passes the program an object of its own, {type(value).__name__}")


def raised(said):
    """The error of a call as one of its class or, where the test's process has none such, of a base of it."""
    args, error = [decode(one, nothing) for one in said["args"]], None
    for module, name in said["kinds"]:
        kind = getattr(sys.modules.get(module), name, None) if module != "__main__" else None
        if error is None and isinstance(kind, type) and issubclass(kind, (Exception, SystemExit)):
            try:
                error = kind(*args)
            except Exception:  # noqa: BLE001 - it takes other arguments than it keeps
                error = kind.__new__(kind)
                error.args = tuple(args)
    error = error or RuntimeError(*args)
    error.of_program = ": ".join([said["error"], *map(str, args)])
    return error


def unreadable():
    error = ValueError("what the program told cannot be read")
    error.of_program = str(error)
    return error


def write_back(one, new):
    """Makes `one` what the program made of it; False for what cannot be changed so."""
    if type(one) is not type(new):
        return False
    if isinstance(one, (list, bytearray)):
        one[:] = new
    elif isinstance(one, tuple) and len(one) == len(new):
        return all(write_back(mine, its) or mine == its for mine, its in zip(one, new, strict=True))
    elif isinstance(one, (*BY_PAIRS, set, collections.deque)):
        one.clear()
        (one.extend if isinstance(one, collections.deque) else one.update)(new)
    elif type(one).__name__ == "ndarray" and one.shape == new.shape:
        one[...] = new
    else:
        return False
    return True


def shown(value):
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - of the program's making
        return "an object that cannot be shown"


# what the asserts call in place of Python's own (code_asserts.py): the program answers for its objects


def method(thing, name, /, *args, **named):
    if isinstance(thing, Remote):
        return ask(thing, "method", name, *args, **named)
    return getattr(thing, name)(*args, **named)


def type_of(thing):
    if isinstance(known(thing), Remote):
        kind = steady(thing, "type", firm=False)
        if not isinstance(kind, Remote) or place_of(kind)[0] != "name":
            unsettled(thing, why="only the program could say of which type its objects are")
        talk_of(thing).types.add(place_of(kind))
        return kind
    return type(thing)


def special(thing, name):
    if name == "__class__":
        return type_of(thing)
    if isinstance(known(thing), Remote) and not hasattr(Remote, name):
        return ask(thing, "attribute", name)
    return getattr(thing, name)


def is_a(what, thing, kinds):
    thing, kinds = known(thing), known(kinds)
    if isinstance(kinds, tuple):
        return any(is_a(what, thing, kind) for kind in kinds)
    remote = next((one for one in (kinds, thing) if isinstance(one, Remote)), None)
    if remote is None:
        return (isinstance if what == "isinstance" else issubclass)(thing, kinds)
    try:
        sent = [encode(one, travel) for one in (thing, kinds)]
    except CannotTravel:  # a class of the test has no object of the program, nor the other way round
        return False
    answer = known(talk_of(remote).ask(what, thing, kinds)) is True
    talk_of(remote).keep((what, json.dumps(sent)), answer, True)
    of_its_own = what == "issubclass" and isinstance(thing, Remote) and place_of(thing)[0] == "name"
    if answer and not isinstance(kinds, Remote) and kinds in VALUES and not of_its_own:
        doubted(remote)
    return answer


def has(thing, name):
    return known(ask(thing, "has attribute", name)) if isinstance(thing, Remote) else hasattr(thing, name)


def can_be_called(thing):
    return steady(thing, "callable") is True if isinstance(known(thing), Remote) else callable(thing)


HELPERS = {"__Ask__": Ask, "__method__": method, "__special__": special, "__type__": type_of}
HELPERS |= {"__isinstance__": lambda thing, kinds: is_a("isinstance", thing, kinds)}
HELPERS |= {"__issubclass__": lambda thing, kinds: is_a("issubclass", thing, kinds)}
HELPERS |= {"__hasattr__": has, "__callable__": can_be_called, "__name__": "__main__"}


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


def play_test(test, code, names, talk):
    """[outcome, reason]: held, failed, wrong (whatever the program's own process would say), undecided, or
    beside for a test that must run beside the program.
    """
    names |= HELPERS | {"__note__": talk.note, "__same__": talk.same, "__hold__": talk.hold}
    names["__see__"] = talk.see
    outcome, reason = "held", ""
    try:
        exec(code, names)
    except MemoryError:
        raise
    except (Ask, Unsettled, CannotTravel) as stop:
        outcome, reason = "undecided", str(stop)
    except BaseException as error:  # noqa: BLE001 - of the program, of the test, or of both
        outcome, reason = of_failure(error, test, talk)
    if talk.stopping:
        return ["beside" if isinstance(talk.stopping, CannotTravel) else "undecided", str(talk.stopping)]
    if talk.ended and outcome == "held":
        handled = "StopIteration" in test["source"]
        return ["undecided" if handled else "wrong", "StopIteration: it ended a loop of the test"]
    if outcome == "held" and talk.doubt:
        return ["undecided", talk.doubt]
    if outcome == "held" and not talk.held:
        return ["undecided", "the test asserted nothing"]
    return [outcome, reason]


def of_failure(error, test, talk):
    by_program = getattr(error, "of_program", None)
    if isinstance(error, AssertionError) and not by_program:
        return "wrong" if talk.certain else "failed", talk.noted
    if isinstance(error, (SystemExit, KeyboardInterrupt)) and not by_program:
        return "undecided", "the test stopped before its end"
    try:
        said = by_program or f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 - it shows an object of the program
        said = type(error).__name__
    if of_the_test(error, ast.parse(test["source"]), test["touched"]):
        return "undecided", f"the test itself failed: {said}"
    return "failed", said


def texts(source):
    """Those that stand in a test."""
    values = [part.value for part in ast.walk(ast.parse(source)) if isinstance(part, ast.Constant)]
    return {value for value in values if isinstance(value, str)}


guarded = {"code": None, "texts": set(), "talk": None}


def watch(event, args):
    """Keeps the process of the tests from running what the program may have written."""
    if guarded["talk"] is None or not TOLD or event not in ("exec", "pickle.find_class"):
        return
    if event == "exec" and harmless(args[0], sys._getframe(1)):
        return
    guarded["talk"].stop(Unsettled("the test would run a text that the program may have written"))


def harmless(code, frame):
    """The test itself, an import, a named tuple, a dataclass, or a text that stands in the test."""
    if code is guarded["code"] or code.co_filename.startswith(("/", "<frozen ")):
        return True
    if frame.f_globals.get("__name__") in ("collections", "dataclasses"):
        return True
    while frame is not None and frame.f_code.co_filename != "<test>":
        if frame.f_code.co_name == "parse_expr":  # of sympy
            return frame.f_locals.get("s") in guarded["texts"]
        frame = frame.f_back
    return any(code == one for text in guarded["texts"] for one in compiled(text, code.co_filename))


def compiled(text, filename):
    for mode, source in (("eval", text.strip(" \t")), ("exec", text)):
        with contextlib.suppress(SyntaxError, ValueError):
            yield compile(source, filename, mode, dont_inherit=True)


def play_tests(asked):
    told = []
    sys.addaudithook(watch)
    for test in asked["tests"]:
        code, names = compile(test["source"], "<test>", "exec", dont_inherit=True), {}
        guarded.update(code=code, texts=texts(test["source"]), talk=None)
        TOLD.clear()
        try:
            talk = Talk(test["calls"], test["results"])
            names = talk.names(test["free"])
        except Exception:  # noqa: BLE001 - no program that plays its part tells such a thing
            told.append(["wrong", "what the program told cannot be read", test["calls"]])
            continue
        guarded["talk"] = talk
        outcome, reason = play_test(test, code, names, talk)
        told.append([outcome, reason[:LONGEST], talk.calls])
    guarded["talk"] = None
    return told


def play_both(asked):
    code = compile(asked["test"]["source"], "<test>", "exec", dont_inherit=True)
    play, talk = play_test, Talk([], "[]")  # before the program can replace them
    outcome, reason = play(asked["test"], code, namespace(asked["code"]), talk)
    return [outcome, reason[:LONGEST]]


sys.set_int_max_str_digits(200_000)
end = os._exit
asked = json.load(sys.stdin)
channel = open(1, "w", encoding="ascii", closefd=False)  # noqa: SIM115 - for as long as the process lives
told = {"program": play_program, "tests": play_tests, "both": play_both}[asked["part"]](asked)
channel.write(tell(asked["word"], told))
channel.flush()
end(0)
