"""Which branches of the pure machines were taken.

An import hook rewrites the machines' modules: at the start of each arm (a function, the sides of an
`if` and of a conditional expression, a loop's body, a handler of an exception, a case) a byte of a
table is set.  That costs some 30 ns an arm, needs no tracer, and cannot change what the module
does.  The hook must stand before these modules are imported: `install` belongs at the start of a
process, as the initializer of the pool of workers is.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

MACHINES = (
    "highwater.controller.rules",
    "highwater.broker.coordinator.group.group",
    "highwater.broker.coordinator.group.offsets",
    "highwater.broker.coordinator.group.rebalance",
    "highwater.broker.coordinator.transaction.steps",
    "highwater.broker.coordinator.transaction.transaction",
    "highwater.broker.replica.fetch_sessions",
    "highwater.broker.replica.fetch_state",
    "highwater.broker.replica.isr",
    "highwater.broker.replica.partition",
    "highwater.broker.log.epochs",
    "highwater.broker.log.producers",
    "highwater.broker.log.retention",
    "highwater.broker.log.timestamps",
    "highwater.kafka.wire.fetch_session_handler",
)
"""The modules, and packages as a whole, that are marked."""

_TABLE = "__reached__"
_ROOT = Path(__file__).resolve().parents[2]
_LONGEST = 60
_tables: dict[str, tuple[bytearray, list[str]]] = {}


def _is_machine(name: str) -> bool:
    return name in MACHINES or name.rpartition(".")[0] in MACHINES


class _Marker(ast.NodeTransformer):
    """Puts a mark at the start of each arm, and names the arms in order."""

    def __init__(self, file: str) -> None:
        self.arms: list[str] = []
        self._file = file
        self._depth = 0

    def _arm(self, line: int, what: str) -> int:
        short = what if len(what) <= _LONGEST else what[: _LONGEST - 3] + "..."
        self.arms.append(f"{self._file}:{line} {short}")
        return len(self.arms) - 1

    def _mark(self, body: list[ast.stmt], line: int, what: str) -> list[ast.stmt]:
        number = self._arm(line, what)
        mark = ast.parse(f"{_TABLE}[{number}] = 1").body[0]
        at = body[0] if body else None
        for node in ast.walk(mark):
            if at is not None and "lineno" in node._attributes:
                ast.copy_location(node, at)
        return [mark, *body]

    def _function(self, node: Any) -> Any:
        self._depth += 1
        line, name = node.lineno, node.name
        node = self.generic_visit(node)
        self._depth -= 1
        first = 1 if ast.get_docstring(node, clean=False) is not None else 0
        head, body = node.body[:first], node.body[first:]
        node.body = [*head, *self._mark(body or [ast.Pass()], line, f"def {name}")]
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def visit_If(self, node: ast.If) -> ast.If:
        line, test = node.lineno, ast.unparse(node.test)
        elif_ = len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
        self.generic_visit(node)
        if self._depth:
            node.body = self._mark(node.body, line, f"if {test}")
            if not elif_:
                node.orelse = self._mark(node.orelse or [], line, f"not: if {test}")
        return node

    def _loop(self, node: Any) -> Any:
        line = node.lineno
        test = node.test if isinstance(node, ast.While) else node.iter
        what = f"{'while' if isinstance(node, ast.While) else 'for in'} {ast.unparse(test)}"
        self.generic_visit(node)
        if self._depth:
            node.body = self._mark(node.body, line, what)
        return node

    visit_For = visit_AsyncFor = visit_While = _loop

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        line = node.lineno
        what = f"except {ast.unparse(node.type) if node.type else ''}".strip()
        self.generic_visit(node)
        if self._depth:
            node.body = self._mark(node.body, line, what)
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.match_case:
        line, what = node.pattern.lineno, f"case {ast.unparse(node.pattern)}"
        self.generic_visit(node)
        if self._depth:
            node.body = self._mark(node.body, line, what)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        line, test = node.lineno, ast.unparse(node.test)
        self.generic_visit(node)
        if self._depth:
            node.body = self._either(node.body, line, f"{test} ?")
            node.orelse = self._either(node.orelse, line, f"not: {test} ?")
        return node

    def _either(self, value: ast.expr, line: int, what: str) -> ast.expr:
        """`mark or value`, where the mark, which sets an item, returns None."""
        call = ast.parse(f"{_TABLE}.__setitem__({self._arm(line, what)}, 1)", mode="eval").body
        return ast.copy_location(ast.BoolOp(ast.Or(), [call, value]), value)


def marked(source: str, module: str) -> tuple[ast.Module, list[str]]:
    """The module's tree with marks, and its arms."""
    marker = _Marker(module.removeprefix("highwater.").replace(".", "/") + ".py")
    tree = marker.visit(ast.parse(source))
    return ast.fix_missing_locations(tree), marker.arms


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        """Compiles the module afresh: imports without the hook would use a cached file, too."""
        source = self.get_data(self.path).decode()
        tree, arms = marked(source, fullname)
        _tables[fullname] = (bytearray(len(arms)), arms)
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        code = self.get_code(module.__name__)
        module.__dict__[_TABLE] = _tables[module.__name__][0]
        exec(code, module.__dict__)


class _Finder(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not _is_machine(name):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Marks the machines that this process imports from now on."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def forget() -> None:
    """Clears the marks."""
    for table, _ in _tables.values():
        table[:] = bytes(len(table))


def taken() -> list[str]:
    """The arms taken since `forget`, in the order of the source."""
    return [
        arm for table, arms in _tables.values() for arm, seen in zip(arms, table, strict=True)
        if seen
    ]  # fmt: skip


def all_arms() -> list[str]:
    """All arms of the marked modules."""
    return [arm for module, file in _files() for arm in marked(file.read_text(), module)[1]]


def _files() -> Iterator[tuple[str, Path]]:
    for machine in MACHINES:
        place = _ROOT.joinpath(*machine.split(".")[1:])
        if not place.is_dir():
            yield machine, place.with_suffix(".py")
            continue
        for file in sorted(place.glob("[!_]*.py")):
            yield f"{machine}.{file.stem}", file
