"""The tests of a problem whose answer is a program: what they may be, and how asserts are made ready to run.

A test that could not fail is refused: no assert in it, none that is ever called, or nothing in it of the
program. What is sent to code_probe.py has each assert counted where it holds; there `__Ask__` is raised for a
value of the candidate's that is not known yet, and the statement that waits for it is passed over.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import itertools
import json
import symtable
from collections.abc import Iterator
from typing import Any, NamedTuple

from cotkit.verify.code_blocks import bound
from cotkit.verify.sandbox.job import MOST_TEXT

SHOWN = 200  # characters of a test or of what a program said, in a reason
ASKED = {("isinstance", 2), ("issubclass", 2), ("type", 1), ("hasattr", 2), ("callable", 1)}  # of an object
NOT_EXPECTED = {"AssertionError", "Exception", "BaseException"}  # would catch a failed assert too


class Case(NamedTuple):
    """The program reads `input` from stdin and must print `output`."""

    input: str
    output: str


class Asserts(NamedTuple):
    """A test program: its asserts must hold, at least one. `free`: the names it expects of the candidate."""

    source: str
    free: tuple[str, ...]
    beside: bool = False  # it cannot run without the candidate in its process

    def ready(self) -> dict[str, Any]:
        """What code_probe.py needs of it."""
        tree = parsed(self.source)
        touched = may_hold(tree, set(self.free))
        source = ast.unparse(
            ast.fix_missing_locations(Instrument(touched, touched | binds(tree)).visit(tree))
        )
        return {"source": source, "free": self.free, "touched": sorted(touched)}


def read_tests(tests: Any) -> list[Case | Asserts]:
    """The tests of a problem: a list of {"input", "output"}, a list of assert statements, a program, or such
    a list (or {"inputs": [...], "outputs": [...]}) as JSON text.

    In a list each item is a test of its own, and items without an assert (imports, data) go before all of
    them. Raises ValueError for anything else, and for a program that could not fail.
    """
    if isinstance(tests, str) and tests.lstrip()[:1] in ("[", "{"):
        with contextlib.suppress(ValueError, RecursionError):  # a program may begin so
            tests = json.loads(tests)
    if isinstance(tests, dict) and {"inputs", "outputs"} <= set(tests):
        pairs = itertools.zip_longest(tests["inputs"], tests["outputs"])
        tests = [{"input": given, "output": wanted} for given, wanted in pairs]
    if isinstance(tests, str) and tests.strip():
        return [of_program(tests)]
    if isinstance(tests, list) and tests and all(isinstance(test, str) for test in tests):
        before = "\n".join(test for test in tests if not asserts(parsed(test)))
        found = [of_program(item, before) for item in tests if asserts(parsed(item))]
        if found:
            return found
        raise ValueError("none of the tests has an assert")
    if isinstance(tests, list) and tests and all(isinstance(test, dict) for test in tests):
        cases = [Case(test.get("input"), test.get("output")) for test in tests]
        if all(isinstance(text, str) for case in cases for text in case):
            for number, case in enumerate(cases, 1):
                if max(map(len, case)) > MOST_TEXT:
                    raise ValueError(f"test {number} has more than {MOST_TEXT:,} characters")
            return cases
    raise ValueError(
        'the tests must be a list of {"input": text, "output": text}, a list of assert statements, or the '
        "text of a test program"
    )


def parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"the test {short(source)!r} is not Python: {error}") from None


def asserts(node: ast.AST) -> list[ast.Assert]:
    return [part for part in ast.walk(node) if isinstance(part, ast.Assert)]


def of_program(source: str, before: str = "") -> Asserts:
    """One test program, refused where it could not fail."""
    shown, tree = short(source), parsed(source)
    if not (found := asserts(tree)):
        raise ValueError(f"the test program {shown!r} has no assert, so nothing could fail")
    if any(isinstance(one.test, ast.Tuple) and one.test.elts for one in found):
        raise ValueError(f"{shown!r} asserts a tuple, which always holds: write assert x == y, 'message'")
    if not any(isinstance(part, (ast.Call, ast.Assert)) for part in at_top(tree)):
        raise ValueError(f"the test program {shown!r} only defines things: it must call its tests")
    source = f"{before}\n{source}" if before else source
    if len(source) > MOST_TEXT // 2:
        raise ValueError(f"the test program {shown!r} has more than {MOST_TEXT // 2:,} characters")
    called = [part.func for part in ast.walk(tree) if isinstance(part, ast.Call)]
    named = {part.id for part in called if isinstance(part, ast.Name)}
    free = free_names(source) or named & set(dir(builtins))  # a task may ask for a function named `sum`
    if not free:
        raise ValueError(f"the test program {shown!r} uses nothing of the program it should test")
    return Asserts(source, tuple(sorted(free)), must_share(parsed(source), free))


def at_top(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a program that run when it does, without the bodies of functions."""
    for part in ast.iter_child_nodes(node):
        if not isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield part
            yield from at_top(part)


def short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def free_names(source: str) -> set[str]:
    """The global names a program uses and does not bind."""
    top = symtable.symtable(source, "<test>", "exec")
    tables, uses, binds = [top], set(), set(dir(builtins)) | {"__name__", "__file__", "__doc__"}
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for name in table.get_symbols():
            if table is top or name.is_global():
                uses |= {name.get_name()} if name.is_referenced() else set()
                binds |= {name.get_name()} if bound(name) else set()
    return uses - binds


# What only one process for both can do, by the module that does it ("" = Python itself). The second table
# counts where it is given something of the program's.
SHARES = {
    "": {"open"},
    "asyncio": None,
    "builtins": {"open"},
    "contextlib": {"redirect_stdout", "redirect_stderr"},
    "logging": None,
    "os": {"chdir", "getenv", "listdir", "makedirs", "mkdir", "putenv", "remove", "rmdir", "stat", "unlink"},
    "os.environ": None,
    "os.path": {"exists", "getsize", "isdir", "isfile"},
    "pathlib": None,
    "shutil": None,
    "sys": {"setrecursionlimit", "settrace", "setprofile"},
    "tempfile": None,
    "unittest": None,
    "warnings": None,
}
SHARES_WHAT_IT_IS_GIVEN = {
    "": {"eval", "exec", "compile"},
    "cloudpickle": None,
    "dataclasses": {"asdict", "astuple", "fields", "is_dataclass", "replace"},
    "dill": None,
    "inspect": None,
    "marshal": None,
    "pickle": None,
    "sympy": {"S", "expand", "factor", "lambdify", "nsimplify", "parse_expr", "simplify", "sympify"},
    "typing": {"get_type_hints"},
    "weakref": None,
}


def must_share(tree: ast.Module, free: set[str]) -> bool:
    """True for what needs the candidate's process: coroutines, files, its classes to inherit or to catch, a
    function of the test's own that an object made of its class is given, a text of its that is run.
    """
    modules, held = imported(tree), may_hold(tree, free)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if listed(node.func, modules, free, SHARES):
                return True
            if used(node) & held and listed(node.func, modules, free, SHARES_WHAT_IT_IS_GIVEN):
                return True
        match node:
            case ast.Call(func=ast.Attribute(attr="write_text" | "write_bytes")):
                return True
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()) if isinstance(
                node.value, (ast.Name, ast.Attribute)
            ) and dotted(node.value, modules):
                return True  # of a module: `builtins.input = ...`, `os.environ["A"] = ...`
            case ast.Await() | ast.AsyncFunctionDef():
                return True
            case ast.Import() | ast.ImportFrom() if "asyncio" in ast.unparse(node):
                return True
            case ast.MatchClass(cls=shared) if used(shared) & free:
                return True
        shared = [node.type] if isinstance(node, ast.ExceptHandler) else getattr(node, "bases", [])
        if any(isinstance(p, ast.Name) and p.id in free for s in shared if s for p in ast.walk(s)):
            return True
    return hands_over(tree, free)


def imported(tree: ast.Module) -> dict[str, str]:
    """The names that imports bind, and the dotted names of what they stand for."""
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                first = name.name.partition(".")[0]
                modules[name.asname or first] = name.name if name.asname else first
        elif isinstance(node, ast.ImportFrom):
            modules |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
    return modules


def dotted(node: ast.AST, modules: dict[str, str]) -> str:
    """The dotted name of what `a.b.c` stands for where `a` is imported, else ""."""
    if isinstance(node, ast.Attribute):
        return (start := dotted(node.value, modules)) and f"{start}.{node.attr}"
    return modules.get(node.id, "") if isinstance(node, ast.Name) else ""


def listed(
    function: ast.expr, modules: dict[str, str], free: set[str], table: dict[str, set[str] | None]
) -> bool:
    if isinstance(function, ast.Name) and function.id not in modules:
        return function.id in table[""] and function.id not in free
    path, _, name = dotted(function, modules).rpartition(".")
    while path:
        if path in table and (table[path] is None or name in table[path]):
            return True
        path = path.rpartition(".")[0]
    return False


def hands_over(tree: ast.Module, free: set[str]) -> bool:
    """True where an object made of a class of the program, by its name's capital, is given something of the
    test's own: that the object is no plain value is then the test's doing.
    """
    made, own = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            own.add(node.name)
        if isinstance(node, ast.Assign) and makes(node.value, free):
            made |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    other = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and not makes(node.value, free)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    own = may_hold(tree, own)

    def is_made(node: ast.AST) -> bool:
        return makes(node, free) or (isinstance(node, ast.Name) and node.id in made - other)

    def of_the_test(node: ast.AST) -> bool:
        return bool(used(node) & own) or any(isinstance(part, ast.Lambda) for part in ast.walk(node))

    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=thing)) if is_made(thing):
                if any(map(of_the_test, [*node.args, *(given.value for given in node.keywords)])):
                    return True
            case ast.Assign(targets=[ast.Attribute(value=thing)]) if is_made(thing):
                if of_the_test(node.value):
                    return True
    return False


def makes(node: ast.AST, free: set[str]) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in free and name[:1].isupper()
    return False


class Instrument(ast.NodeTransformer):
    """Counts the asserts that hold, and passes over what waits for a value."""

    def __init__(self, touched: set[str], bound: set[str]):
        self.touched, self.bound = touched, bound

    def visit_Assert(self, node: ast.Assert) -> ast.stmt | list[ast.stmt]:
        note = call("__note__", ast.Constant(ast.unparse(node.test)))
        match node.test:
            case ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp() | ast.ListComp() as each]) if (
                can_be_a_function(each)
            ):
                return self.loops(node, each)
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                node.test = self.same(left, right)
        self.generic_visit(node)
        return passed_over(ast.Expr(note), node, ast.Expr(call("__hold__")))

    def same(self, left: ast.expr, right: ast.expr) -> ast.Call:
        """left == right, the side that holds nothing of the program's first: it may be computed from what the
        program changes.
        """
        turned = used(right) & self.touched and not used(left) & self.touched
        given, expected = (right, left) if turned else (left, right)
        in_order = used(left) & self.touched and used(right) & self.touched
        sides = [ast.keyword("given", given), ast.keyword("expected", expected)]
        shared = ast.Constant(bool(used(left) & used(right)) and not in_order)
        compared = call("__same__")
        compared.keywords = [
            *(sides if in_order else sides[::-1]),
            ast.keyword("text", ast.Constant(ast.unparse(given))),
            ast.keyword("shared", shared),
        ]
        return compared

    def loops(self, node: ast.Assert, each: ast.GeneratorExp | ast.ListComp) -> list[ast.stmt]:
        """`assert all(a for b in c)` as a loop of asserts: each of its calls is then asked for at once.

        A function round it keeps its names its own, as they are in `all(...)`.
        """
        inner: ast.stmt = ast.Assert(each.elt, node.msg)
        for part in reversed(each.generators):
            for condition in reversed(part.ifs):
                inner = ast.If(condition, [inner], [])
            inner = ast.For(part.target, part.iter, [inner], [])
        function = ast.parse("def __each__(): pass").body[0]
        function.body = [self.visit(inner)]
        return [function, passed_over(ast.Expr(call("__each__")))]

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        self.generic_visit(node)
        return node if isinstance(node.value, ast.Constant) else passed_over(node)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(value=thing, attr=name) if not name.startswith("__"):
                method = call("__method__", thing, ast.Constant(name), *node.args)
                method.keywords = node.keywords
                return method
            case ast.Name(id=name) if name not in self.bound and (name, len(node.args)) in ASKED:
                node.func = ast.Name(f"__{name}__", ast.Load())
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load) and node.attr.startswith("__") and node.attr.endswith("__"):
            return call("__special__", node.value, ast.Constant(node.attr))
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        self.generic_visit(node)
        node.body.insert(0, ast.Expr(call("__see__")))
        return node

    def visit_Try(self, node: ast.Try) -> ast.Try:
        """`try: f(-1); assert False` with `except ValueError:` tests by not coming to its assert."""
        ends = [part[-1] for part in (node.body, node.orelse) if part]
        self.generic_visit(node)
        if any(isinstance(end, ast.Assert) and isinstance(end.test, ast.Constant) for end in ends):
            for handler in node.handlers:
                if handler.type is not None and not used(handler.type) & NOT_EXPECTED:
                    handler.body.insert(0, ast.Expr(call("__hold__")))
        return node


def can_be_a_function(each: ast.GeneratorExp | ast.ListComp) -> bool:
    """False where it awaits, binds a name outside, or loops over what has the name of one of its targets."""
    targets = {name for part in each.generators for name in used(part.target)}
    return not targets & used(each.generators[0].iter) and not any(
        isinstance(part, (ast.Await, ast.NamedExpr)) or getattr(part, "is_async", False)
        for part in ast.walk(each)
    )


def call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def used(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def passed_over(*body: ast.stmt) -> ast.Try:
    handler = ast.ExceptHandler(ast.Name("__Ask__", ast.Load()), None, [ast.Pass()])
    return ast.Try(list(body), [handler], [], [])


def binds(tree: ast.AST) -> set[str]:
    """The names that are bound anywhere in a program."""
    found = set(imported(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
    return found


def may_hold(tree: ast.Module, names: set[str]) -> set[str]:
    """The names that may hold what the program gave: its own, and those bound from them."""
    found, before, modules = set(names), set(), set(imported(tree))
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {id(node.func) for node in calls}
    passed_on = {  # functions that somebody else calls
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in called
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            found |= {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}
    while before != found:
        before = set(found)
        for node in ast.walk(tree):
            targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
            source = getattr(node, "value", None) or getattr(node, "iter", None)
            if isinstance(node, ast.withitem):
                targets, source = [node.optional_vars], node.context_expr
            if isinstance(source, ast.AST) and used(source) & found:
                found |= {name for target in targets if target is not None for name in used(target)}
            if isinstance(node, ast.ClassDef) and used(node) & found:
                found.add(node.name)
        given = set()  # names of functions that are called with something of the program's
        for node in calls:
            if any(used(part) & found for part in [*node.args, *(item.value for item in node.keywords)]):
                given |= {getattr(node.func, "id", None), getattr(node.func, "attr", None)}
                if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
                    found |= {node.func.value.id} - modules  # `values.append(f(2))`
        for node in functions:
            if node.name in given | passed_on or node.decorator_list or used(node.args) & found:
                found |= {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}
            ends = [
                part for part in ast.walk(node) if isinstance(part, (ast.Return, ast.Yield, ast.YieldFrom))
            ]
            if any(part.value is not None and used(part.value) & found for part in ends):
                found.add(node.name)
    return found
