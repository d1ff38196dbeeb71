"""One process that runs seeds on sources of its own, and tells a line for each: `trial`.

The request is one JSON object on stdin.  An import hook compiles the files of `sources` from the
text that is given there, and marks the statements of the files of `marked`.  All other modules
come from the tree.  So no copy of the tree is made, and the product has no switch for a mutant.

A run that breaks a rule ends the process: the mutant is found.  An exception that leaves the
simulation is told as an error of the harness, which finds nothing; a broker that dies of an
exception is a broken rule (L2).
"""

from __future__ import annotations

import ast
import json
import resource
import sys
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).parents[3]
_TABLE = "__statements__"
MARGIN = 2
"""A run begins only if so many times its usual cost are left of the budget."""


class _Marker(ast.NodeTransformer):
    """Puts a mark before each statement of each function."""

    def __init__(self) -> None:
        self._depth = 0

    def generic_visit(self, node: ast.AST) -> ast.AST:
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        self._depth += inside
        super().generic_visit(node)
        if self._depth:
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list):
                    setattr(node, name, [part for each in block for part in _with_mark(each)])
        self._depth -= inside
        return node


def _with_mark(node: ast.stmt) -> list[ast.stmt]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return [node]  # a docstring stays in its place
    mark = ast.parse(f"{_TABLE}[{node.lineno}] = 1").body[0]
    for part in ast.walk(mark):
        if "lineno" in part._attributes:
            ast.copy_location(part, node)
    return [mark, node]


def with_marks(source: bytes) -> ast.Module:
    return ast.fix_missing_locations(_Marker().visit(ast.parse(source)))


def module_of(file: str) -> str:
    return "highwater." + file.removesuffix(".py").replace("/", ".")


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, source: bytes | None, table: bytearray | None) -> None:
        super().__init__(name, path)
        self._source = source
        self._table = table

    def get_code(self, fullname: str) -> CodeType:
        source = self._source if self._source is not None else self.get_data(self.path)
        tree = with_marks(source) if self._table is not None else ast.parse(source)
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        if self._table is not None:
            module.__dict__[_TABLE] = self._table
        exec(self.get_code(module.__name__), module.__dict__)


class _Finder(MetaPathFinder):
    def __init__(self, sources: dict[str, bytes], tables: dict[str, bytearray]) -> None:
        self._sources = {module_of(file): source for file, source in sources.items()}
        self._tables = {module_of(file): table for file, table in tables.items()}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._sources and name not in self._tables:
            return None
        spec = PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.origin is not None
        source, table = self._sources.get(name), self._tables.get(name)
        spec.loader = _Loader(name, spec.origin, source, table)
        return spec


def _tell(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def _one(run: dict[str, Any]) -> dict[str, Any]:
    """One run: the outcome that the simulation gives, or the error that it ends with."""
    from highwater.simulation.options import Options
    from highwater.simulation.seed_run import simulate
    from highwater.simulation.seeds import replay_command

    options = Options(**run["options"])
    started = time.process_time()
    try:
        outcome = simulate(run["seed"], options)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300], "cpu": 0.0}
    cpu = round(time.process_time() - started, 2)
    violation = outcome.violation
    if violation is None:
        return {"cpu": cpu}
    replay = replay_command(run["seed"], options).removesuffix(" --trace")
    return {"cpu": cpu, "rule": violation.rule, "what": violation.what[:300], "replay": replay}


def main() -> None:
    request = json.load(sys.stdin)
    budget = request["cpu"]
    if budget:
        resource.setrlimit(resource.RLIMIT_CPU, (int(budget), int(budget) + 1))
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    sources = {file: text.encode() for file, text in request["sources"].items()}
    tables = {
        file: bytearray((ROOT / file).read_bytes().count(b"\n") + 2) for file in request["marked"]
    }
    sys.meta_path.insert(0, _Finder(sources, tables))
    for number, run in enumerate(request["runs"]):
        used = time.process_time()
        if budget and used + MARGIN * run["cost"] > budget:
            continue
        _tell(begin=number, used=round(used, 2))
        for table in tables.values():
            table[:] = bytes(len(table))
        result = _one(run)
        lines = {f: [n for n, seen in enumerate(t) if seen] for f, t in tables.items() if any(t)}
        _tell(end=number, used=round(time.process_time(), 2), lines=lines, **result)
        if "rule" in result and budget:
            return


if __name__ == "__main__":
    main()
