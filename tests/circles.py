"""The circles of imports in a tree: `python -m tests.circles [FOLDER]`.

Two kinds: among the files and folders of one folder (*rooms*), and among single files.  A circle
counts as run-time where it stands without the imports under `if TYPE_CHECKING`; the others only
name types.  Each circle is a strongly connected part of the graph, by Tarjan's algorithm.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOMS = ("broker", "controller", "highwater", "spark")
Graph = dict[str, set[str]]


def modules(root: Path) -> dict[str, Path]:
    """The product's modules, by the names that they are imported by."""
    found = {}
    for top in ROOMS:
        for path in sorted((root / top).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if any((root / Path(*parts[:n])).is_symlink() for n in range(1, len(parts))):
                continue  # highwater/broker is broker/
            if top != "highwater" and (root / "highwater" / top).exists():
                parts = ("highwater", *parts)
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports(tree: ast.AST, types: bool) -> Iterator[str]:
    """The names that a module imports, with or without those for type checking alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and not types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from imports(node, types)


def graph(files: Mapping[str, Path], types: bool) -> Graph:
    edges: Graph = {name: set() for name in files}
    for name, path in files.items():
        for wanted in imports(ast.parse(path.read_text()), types):
            target = wanted if wanted in files else wanted.rpartition(".")[0]
            if target in files and target != name:
                edges[name].add(target)
    return edges


def among_siblings(edges: Graph) -> Graph:
    """The same imports, between the two neighbours under which their ends part."""
    rooms: Graph = {}
    for source, targets in edges.items():
        for target in targets:
            a, b = source.split("."), target.split(".")
            same = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
            if same is not None:
                rooms.setdefault(".".join(a[: same + 1]), set()).add(".".join(b[: same + 1]))
    return rooms


def circles(edges: Graph) -> list[list[str]]:
    """The strongly connected parts of more than one node."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(edges.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            part = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    files = modules(root)
    if not files:
        raise SystemExit(f"no Python files in {', '.join(ROOMS)} under {root.resolve()}")
    sys.setrecursionlimit(10_000)
    for title, types in (("at run time", False), ("types included", True)):
        edges = graph(files, types)
        for what, found in (
            ("rooms", circles(among_siblings(edges))),
            ("files", circles(edges)),
        ):
            print(f"{title}, among {what}: {len(found)}")
            for circle in found:
                print(f"    {', '.join(circle)}")


if __name__ == "__main__":
    main()
