"""Mutants by rule: one small change of one expression or statement.

| rule | change |
|---|---|
| negate | the condition of an `if`, a `while`, a conditional expression or a comprehension |
| drop | a call, an augmented assignment, an assignment to an item, or a `raise` is left out |
| bound | `<` and `<=`, `>` and `>=` for each other; a number that is added, taken off or compared |
| swap | two neighbouring arguments of a call |
| stale | an assignment to an attribute is left out; `max` and `min` for each other |

The standard library's `ast` names the places, and the text between them is replaced: cosmic-ray and
mutmut judge a mutant by a test command in the whole tree, which has no place for seeds that are
chosen by line, and libcst would only keep comments, which a replaced span keeps as well.

What no client, disk or znode can tell is left out: logging, metrics, assertions (the mutants run
without them), descriptions, types, and what runs only while a module is imported.  An `__init__`
keeps its assignments, because an attribute that is not there at all is found by any run.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROOMS = (
    "broker/replica", "broker/log", "broker/coordinator", "broker/metadata", "controller",
)  # fmt: skip
RULES = ("negate", "drop", "bound", "swap", "stale")

_OTHER_BOUND = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
}
_OTHER_END = {"max": "min", "min": "max"}
_LOGGERS = {"log", "logger", "logging"}
_LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
_MEASURED = re.compile(r"\b_?(metrics?|meters?|stats|gauges?|histograms?|sensors?)\b")
_SYMMETRIC = {"max", "min", "isinstance", "issubclass", "getattr", "setattr", "hasattr"}
_MADE_IN = ("__init__", "__post_init__")
_DESCRIBES = re.compile(r"__(repr|str|format)__|_?describe\w*")
_MEASURES = re.compile(r"metrics|topic_stats")


@dataclass(frozen=True)
class Made:
    """One mutant that was made by rule."""

    file: str
    line: int
    column: int
    statement: int
    """The first line of the statement that it is in, which is what a seed reaches."""
    rule: str
    function: str
    around: str
    """A hash of the function's text: a row is of no use when that has changed."""
    nth: int
    """Among those of one rule in equal lines of one function, at the same column."""
    start: int
    end: int
    """Its bytes in the file."""
    text: str
    """What stands there instead."""
    source: str
    """The line as it is."""

    @cached_property
    def id(self) -> str:
        """It stays the same when lines are added above it."""
        parts = (self.file, self.function, self.source, self.rule, str(self.column), str(self.nth))
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]
        return f"{self.file}:{self.function}:{self.rule}:{digest}"

    @property
    def room(self) -> str:
        return next(room for room in ROOMS if self.file.startswith(f"{room}/"))

    def applied(self, data: bytes) -> bytes:
        return data[: self.start] + self.text.encode() + data[self.end :]


def files() -> list[str]:
    """The sources that mutants are made of."""
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("[!_]*.py"))]
    return [str(path.relative_to(ROOT)) for path in paths if not _MEASURES.search(path.stem)]


def everything() -> list[Made]:
    return [made for file in files() for made in make(file, (ROOT / file).read_bytes())]


def make(file: str, data: bytes) -> list[Made]:
    """The mutants of one file, in the order of their places."""
    return _Maker(file, data).made


class _Maker:
    def __init__(self, file: str, data: bytes) -> None:
        self._file = file
        self._data = data
        self._starts = [0]
        for line in data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._lines = data.decode().splitlines()
        self._seen: Counter[tuple[str, str, str, int]] = Counter()
        self._function = ""
        self._around = ""
        self._statement = 0
        self.made: list[Made] = []
        for name, function in _functions(ast.parse(data)):
            if not _DESCRIBES.fullmatch(function.name):
                self._walk_function(name, function)
        self.made.sort(key=lambda made: (made.start, made.end, made.rule))

    def _walk_function(self, name: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._function = name
        text = self._data[self._at(node.lineno, 0) : self._end(node)]
        self._around = hashlib.sha256(text).hexdigest()[:12]
        for statement in node.body:
            self._walk(statement)

    def _walk(self, node: ast.AST) -> None:
        """The mutants of a node, and those inside of it."""
        if isinstance(node, ast.stmt):
            if _is_silent(node):
                return
            self._statement = node.lineno
            self._whole_statement(node)
        elif isinstance(node, ast.Call):
            if _is_logging(node) or _is_measuring(node):
                return
            self._arguments(node)
        elif isinstance(node, ast.Compare):
            self._bounds(node)
        elif isinstance(node, ast.BinOp):
            self._number(node)
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            self._negated(node.test)
        elif isinstance(node, ast.comprehension):
            for test in node.ifs:
                self._negated(test)
        for child in _inside(node):
            outer = self._statement
            self._walk(child)
            self._statement = outer

    # -- the rules ------------------------------------------------------------------------------

    def _negated(self, test: ast.expr) -> None:
        if isinstance(test, ast.Constant):
            return
        start, end = self._span(test)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._text(test.operand)
            self._add("negate", test, start, end, f"bool(({inner}))")
        else:
            self._add("negate", test, start, end, f"(not ({self._text(test)}))")

    def _whole_statement(self, node: ast.stmt) -> None:
        rule = self._left_out(node)
        if rule is not None:
            start, end = self._span(node)
            self._add(rule, node, start, end, "pass")

    def _left_out(self, node: ast.stmt) -> str | None:
        if isinstance(node, ast.Raise | ast.AugAssign):
            return "drop"
        if isinstance(node, ast.Expr):
            value = node.value.value if isinstance(node.value, ast.Await) else node.value
            in_init = self._function.endswith("__init__") and "super()" in ast.unparse(value)
            return "drop" if isinstance(value, ast.Call) and not in_init else None
        if isinstance(node, ast.Assign) and not self._function.endswith(_MADE_IN):
            kinds = {type(target) for target in node.targets}
            if kinds == {ast.Attribute}:
                return "stale"
            if kinds == {ast.Subscript}:
                return "drop"
        return None

    def _bounds(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, op, right in zip(operands, node.ops, operands[1:], strict=False):
            if type(op) in _OTHER_BOUND:
                old, new = _OTHER_BOUND[type(op)]
                start = self._data.index(old.encode(), self._end(left))
                self._add("bound", left, start, start + len(old), new)
            elif isinstance(op, ast.Eq | ast.NotEq) and (number := _number(right)) is not None:
                self._shifted(right, number)

    def _number(self, node: ast.BinOp) -> None:
        number = _number(node.right)
        if isinstance(node.op, ast.Add | ast.Sub) and number is not None:
            self._shifted(node.right, number)

    def _shifted(self, node: ast.expr, number: int) -> None:
        self._add("bound", node, *self._span(node), str(number - 1 if number == 1 else number + 1))

    def _arguments(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in _OTHER_END:
            start, end = self._span(node.func)
            self._add("stale", node, start, end, _OTHER_END[name])
        if name in _SYMMETRIC or name.endswith(("Error", "Exception")):
            return
        for one, other in zip(node.args, node.args[1:], strict=False):
            if isinstance(one, ast.Starred) or isinstance(other, ast.Starred):
                break
            if ast.dump(one) == ast.dump(other):
                continue
            start, end = self._span(one)[0], self._span(other)[1]
            between = self._data[self._span(one)[1] : self._span(other)[0]].decode()
            self._add("swap", one, start, end, self._text(other) + between + self._text(one))

    # -- places ---------------------------------------------------------------------------------

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.end_lineno, node.end_col_offset)

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        return self._at(node.lineno, node.col_offset), self._end(node)

    def _text(self, node: ast.expr) -> str:
        start, end = self._span(node)
        return self._data[start:end].decode()

    def _add(self, rule: str, node: ast.expr | ast.stmt, start: int, end: int, text: str) -> None:
        line = self._data.count(b"\n", 0, start) + 1
        column = start - self._at(line, 0)
        source = self._lines[line - 1].strip()
        key = (self._function, source, rule, column)
        self.made.append(
            Made(
                self._file,
                line,
                column,
                self._statement,
                rule,
                self._function,
                self._around,
                self._seen[key],
                start,
                end,
                text,
                source,
            )
        )
        self._seen[key] += 1


def _functions(
    node: ast.AST, outside: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Functions and methods with their names; those inside of a function belong to it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield outside + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{outside}{child.name}.")


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """The children that run: no types, no defaults, no decorators."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from node.body
    elif isinstance(node, ast.AnnAssign):
        yield from (node.value,) if node.value is not None else ()
    elif isinstance(node, ast.Raise):
        return  # the text of an error
    else:
        yield from ast.iter_child_nodes(node)


def _is_silent(node: ast.stmt) -> bool:
    """Whether nothing outside of the process can tell what it does."""
    if isinstance(node, ast.Assert | ast.ClassDef):
        return True
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return True
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return _DESCRIBES.fullmatch(node.name) is not None
    if isinstance(node, ast.Expr):
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Constant):
            return True
        return isinstance(value, ast.Call) and (_is_logging(value) or _is_measuring(value))
    if isinstance(node, ast.AugAssign | ast.Assign):
        target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
        return _MEASURED.search(ast.unparse(target)) is not None
    return False


def _is_logging(node: ast.Call) -> bool:
    func = node.func
    if not isinstance(func, ast.Attribute) or func.attr not in _LEVELS:
        return False
    return isinstance(func.value, ast.Name) and func.value.id in _LOGGERS


def _is_measuring(node: ast.Call) -> bool:
    return _MEASURED.search(ast.unparse(node.func) + "(") is not None


def _number(node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    return None
