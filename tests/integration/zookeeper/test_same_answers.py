"""The same requests to our ZooKeeper and to Java's: answers, Stats, zxids and watches are equal.

Both are fresh, so that even their zxids agree.  Times, session ids and passwords are left out.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from highwater.cluster.ports import free_ports
from highwater.zookeeper.sockets import Server
from tests.integration.robustness.rig import ZooKeeper
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


@pytest.mark.parametrize("seed", range(3))
def test_both_answer_alike(seed: int, tmp_path: Path) -> None:
    java = ZooKeeper(tmp_path)
    try:
        with embedded() as ours:
            runs = Run(ours), Run(("127.0.0.1", java.port))
            codes: Counter[object] = Counter()
            told = 0
            for number, step in enumerate(script(seed, 1500)):
                mine, theirs = (run.take(step) for run in runs)
                assert mine == theirs, f"step {number}: {step}"
                codes[mine[0][0] if isinstance(mine[0], tuple) else mine[0]] += 1
                told += sum(map(len, mine[1]))
            for run in runs:
                run.end()
        assert codes[0] > 300, "most are done"
        assert len(codes) >= 8, "and each error is met"
        assert told > 50
    finally:
        java.end()
