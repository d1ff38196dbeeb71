"""The same requests to our ZooKeeper and to Java's: answers, Stats, zxids and watches are equal.

Both are fresh, so that even their zxids agree.  Times, session ids and passwords are left out.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from highwater.cluster.ports import free_ports
from highwater.zookeeper.sockets import Server
from tests.integration.robustness.rig import JavasZooKeeper
from tests.integration.zookeeper.script import Run, script

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
TICK_MS = 500


@contextmanager
def embedded() -> Iterator[tuple[str, int]]:
    """Our server on a loop in a thread of its own."""
    port, over, ready = free_ports(1)[0], trio.Event(), threading.Event()
    token: list[trio.lowlevel.TrioToken] = []

    async def main() -> None:
        token.append(trio.lowlevel.current_trio_token())
        async with trio.open_nursery() as nursery:
            await nursery.start(Server(TICK_MS).serve, port)
            ready.set()
            await over.wait()
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    assert ready.wait(30)
    try:
        yield "127.0.0.1", port
    finally:
        token[0].run_sync_soon(over.set)
        thread.join()


def compared(folder: Path, seed: int, count: int, expiries: int) -> tuple[Counter[object], int]:
    """The codes of the answers, and how many events sessions were told."""
    java = JavasZooKeeper(folder)
    try:
        with embedded() as ours, ThreadPoolExecutor(2) as pool:
            runs = Run(ours), Run(("127.0.0.1", java.port))
            codes: Counter[object] = Counter()
            told = 0
            for number, step in enumerate(script(seed, count, expiries)):
                at_once = pool.map if step.does == "expire" else map
                mine, theirs = at_once(lambda run: run.take(step), runs)  # noqa: B023
                assert mine == theirs, f"seed {seed}, step {number}: {step}: {mine} {theirs}"
                code = mine.answer[0] if isinstance(mine.answer, tuple) else mine.answer
                codes[code if step.does == "ask" else step.does] += 1
                told += sum(map(len, mine.told))
            for run in runs:
                run.end()
        return codes, told
    finally:
        java.end()


@pytest.mark.parametrize("seed", range(3))
def test_both_answer_alike(seed: int, tmp_path: Path) -> None:
    codes, told = compared(tmp_path, seed, 1500, 2)
    assert codes[0] > 300, "most are done"
    assert len(codes) >= 8, "and each error is met"
    assert told > 50
