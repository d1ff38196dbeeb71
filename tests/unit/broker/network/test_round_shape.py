"""The shape of a round, counted: hops between tasks and system calls, whatever the time."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trio
import trio.testing

from highwater.broker.context import Context, Delayed, Reply
from highwater.broker.request.response import FileSlice, Response
from highwater.world.real.clock import RealClock
from highwater.world.real.disk import RealDisk
from highwater.world.real.network import RealConnection

from .conftest import Net, Wait, entry, serving

WRITES = 20


class Steps(trio.abc.Instrument):
    """The number of steps of each task."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.of[task.name.rpartition(".")[2] if "Sink" not in task.name else "sink"] += 1


async def test_what_a_round_completes_leaves_with_it_by_no_other_task(
    network: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a follower's fetch that moves the HW answers the waiting write."""
    # no round is long, however busy the machine is
    monkeypatch.setattr(RealClock, "perf_ns", staticmethod(count(step=1000).__next__))
    waiting: list[Wait] = []

    def handle(ctx: Context, body: memoryview) -> Reply:
        if bytes(body) == b"wait":
            waiting.append(Wait())
            return Delayed(waiting[-1])
        waiting[-1].ready = True
        ctx.services.completions.add("Fetch", ["k"])
        return Response(parts=[b"go"])

    async with serving(network, entry(handle)) as s:
        first, second = await s.connect(), await s.connect()
        steps = Steps()
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(steps)
        for number in range(1, WRITES + 1):
            await first.send(b"wait")
            while len(waiting) < number:
                await trio.sleep(0)
            assert await second.call(b"") == b"go"
            assert await first.receive() == (7, b"done")
        trio.lowlevel.remove_instrument(steps)
    assert steps.of["sink"] == 0
    assert steps.of["_handler"] == 0
    assert steps.of["write_loop"] == 0
    if type(network).__name__ == "RealNetwork":
        assert steps.of["read_loop"] <= 2 * WRITES + 2


class WaitingWrite(Wait):
    kind: ClassVar[str] = "Produce"


@pytest.mark.parametrize(("writes", "passes"), [(2, 0), (3, 1)])
async def test_many_waiting_writes_gather_for_a_pass_of_the_loop(
    network: Net, monkeypatch: pytest.MonkeyPatch, writes: int, passes: int
) -> None:
    monkeypatch.setattr(RealClock, "perf_ns", staticmethod(count(step=1000).__next__))
    waiting: list[Wait] = []

    def handle(ctx: Context, body: memoryview) -> Reply:
        if bytes(body) == b"wait":
            waiting.append(WaitingWrite())
            return Delayed(waiting[-1])
        for one in waiting:
            one.ready = True
        ctx.services.completions.add("Produce", ["k"])
        return Response(parts=[b"go"])

    async with serving(network, entry(handle)) as s:
        clients = [await s.connect() for _ in range(writes)]
        for number, client in enumerate(clients, 1):
            await client.send(b"wait")
            while len(waiting) < number:
                await trio.sleep(0)
        other = await s.connect()
        steps = Steps()
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(steps)
        assert await other.call(b"") == b"go"
        for client in clients:
            assert await client.receive() == (7, b"done")
        trio.lowlevel.remove_instrument(steps)
    assert steps.of["sink"] == passes


async def test_a_small_slice_is_sent_with_its_header_by_one_system_call(
    network: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").write_bytes(b"x" * 20_000)
    file = RealDisk().open(str(tmp_path / "log"))
    calls: list[str] = []
    send, send_file = RealConnection.send, RealConnection.send_file

    def counted(self: RealConnection, *args: Any) -> int | None:
        calls.append("send")
        return send(self, *args)

    def counted_file(self: RealConnection, *args: Any) -> int | None:
        calls.append("sendfile")
        return send_file(self, *args)

    def handle(ctx: Context, body: memoryview) -> Response:
        size = int(bytes(body))
        return Response(parts=[b"head", FileSlice(file, 5, size), b"tail"])

    async with serving(network, entry(handle)) as s:
        client = await s.connect()
        monkeypatch.setattr(RealConnection, "send", counted)
        monkeypatch.setattr(RealConnection, "send_file", counted_file)
        assert await client.call(b"200") == b"head" + b"x" * 200 + b"tail"
        assert calls == ["send"]
        calls.clear()
        assert await client.call(b"10000") == b"head" + b"x" * 10_000 + b"tail"
        assert calls == ["send", "sendfile", "send"]
