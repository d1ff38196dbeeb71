"""No call of a client library that may wait stands on a loop: by the source, and by the guard."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import trio

from tests.guarded import WAITING, WaitsOnTheLoop, guard

ROOT = Path(__file__).parents[2]
ROOMS = ("agent", "bench", "chaos", "cli", "cluster", "doctor", "pytest_plugin", "verdict")
CLIENTS = ("Consumer", "Producer", "AdminClient", "admin_client", "new_consumer", "KafkaConsumer",
           "KafkaProducer", "KafkaAdminClient")  # fmt: skip


def _of_the_loop(function: ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """What the coroutine itself carries out: not the functions that it defines."""
    left: list[ast.AST] = [*function.body]
    while left:
        node = left.pop()
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield node
            left += ast.iter_child_nodes(node)


def _called(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def waiting_calls(source: str) -> list[str]:
    found = []
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.AsyncFunctionDef)]
    for function in functions:
        nodes = list(_of_the_loop(function))
        clients = {
            _called(target)
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            if _called(node.value.func) in CLIENTS
            for target in node.targets
        }
        for node in nodes:
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            of, name = _called(node.func.value), node.func.attr
            last = node.args[-1] if node.args else None
            no_time = isinstance(last, ast.Constant) and last.value == 0
            if of in clients and name in WAITING and not no_time:
                found.append(f"{function.name}: {of}.{name}")
    return found


def test_no_coroutine_of_the_harness_waits_for_a_client() -> None:
    found = {
        str(path.relative_to(ROOT)): calls
        for room in ROOMS
        for path in (ROOT / "highwater" / room).rglob("*.py")
        # Highwater's own client, whose calls are awaited, has these names as well
        if "highwater.kafka.client" not in (source := path.read_text())
        if (calls := waiting_calls(source))
    }
    assert not found


def test_such_a_call_is_found() -> None:
    bad = "async def watch():\n    consumer = Consumer({})\n    consumer.consume(5, {})\n"
    assert waiting_calls(bad.format({}, "0.1")) == ["watch: consumer.consume"]
    assert waiting_calls(bad.format({}, 0)) == []
    within = "async def main():\n    def work():\n        c = Consumer()\n        c.close()\n"
    assert waiting_calls(within) == []
    assert waiting_calls("async def f():\n    p = k.Producer()\n    p.flush()\n") == ["f: p.flush"]


class Library:
    def __init__(self, *settings: object) -> None: ...

    def close(self) -> str:
        return "closed"

    def poll(self, timeout: float) -> str:
        return "polled"


async def test_the_guard_refuses_on_a_loop_and_nowhere_else() -> None:
    module = ModuleType("aiokafka")
    module.Consumer = Library  # type: ignore[attr-defined]
    guard(module, {"Consumer": WAITING})
    consumer = module.Consumer()
    with pytest.raises(WaitsOnTheLoop, match=r"Consumer\.close on a loop's thread"):
        consumer.close()
    with pytest.raises(WaitsOnTheLoop):
        consumer.poll(0.1)
    assert consumer.poll(0) == "polled"
    assert await trio.to_thread.run_sync(consumer.close) == "closed"
