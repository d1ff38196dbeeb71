"""The common part of the pipeline's benchmarks: a load process, and a broker's numbers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from highwater.bench.figures.sides import BenchFailed
from highwater.bench.loads.many_producers import Outcome, Pressure


@dataclass(slots=True)
class Running:
    """A load process; `end` stops it and gives its outcome."""

    process: trio.Process
    _said: bytes = b""

    async def line(self) -> bytes:
        assert self.process.stdout is not None
        while b"\n" not in self._said:
            more = await self.process.stdout.receive_some()
            if not more:
                raise BenchFailed("the load ended early")
            self._said += more
        line, _, self._said = self._said.partition(b"\n")
        return line

    async def end(self, within_s: float = 0) -> Outcome:
        """Ends the process, unless it ends first; gives its outcome."""
        assert self.process.stdin is not None
        line = b""
        with trio.move_on_after(within_s):
            line = await self.line()
        if not line:
            await self.process.stdin.aclose()
            line = await self.line()
        return Outcome(**json.loads(line))


@asynccontextmanager
async def pressing(pressure: Pressure) -> AsyncIterator[Running]:
    """A connected load process; it is killed at the end if it still runs."""
    process = await trio.lowlevel.open_process(
        pressure.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        running = Running(process)
        with trio.fail_after(120):
            await running.line()
        yield running
    finally:
        process.kill()
        await process.wait()


async def numbers(port: int) -> Mapping[str, float]:
    """A broker's page of metrics, series by series."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        data = b"".join([part async for part in stream])
    lines = data.partition(b"\r\n\r\n")[2].decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}
