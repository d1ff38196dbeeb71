"""Slow links: latency, jitter and bandwidth of a direction, under Toxiproxy's names.

Theory of operation.  A pipe hands its pieces to a `Lane`.  While nothing slows its direction, the
lane sends them at once.  Else it queues each with the time at which it is due, so that latency
delays all requests in flight together and not one after the other; bandwidth spreads the bytes
over slices of a tenth of a second.  A lane never reorders.  Its queue is bounded, so a slow link
pushes back on the sender, as a full TCP window does.  When a slowness ends, the pieces that it held
up go on: no connection stays slow in a cluster that was mended.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import trio

QUEUED = 64
"""Pieces (of at most 64 KiB each) that a lane keeps."""
SLICE_S = 0.1


@dataclass(slots=True, eq=False)
class Slowness:
    """The slowness that one fault puts on directions."""

    latency_s: float = 0.0
    jitter_s: float = 0.0
    """The most by which a random amount lengthens or shortens the latency."""
    bytes_per_s: float = 0.0
    """0: no limit."""
    rng: random.Random = field(default_factory=random.Random)
    slowed: int = 0
    """The number of pieces that it has delayed."""
    over: trio.Event = field(default_factory=trio.Event)

    def delay_s(self) -> float:
        return max(0.0, self.latency_s + self.rng.uniform(-self.jitter_s, self.jitter_s))


class Lane:
    """The sending half of a pipe; `send` writes a piece to the stream."""

    def __init__(
        self,
        slowness: Callable[[], Sequence[Slowness]],
        send: Callable[[bytes], Awaitable[None]],
    ) -> None:
        self._slowness = slowness
        self._send = send
        self._queue, self._due = trio.open_memory_channel[tuple[float, Sequence[Slowness], bytes]](
            QUEUED
        )
        self._waiting = 0
        self._empty = trio.Event()

    async def pass_on(self, piece: bytes) -> None:
        """Sends at once, or queues; waits while the queue is full."""
        slowness = self._slowness()
        if not slowness and not self._waiting:
            await self._send(piece)
            return
        delay = sum(one.delay_s() for one in slowness)
        for one in slowness:
            one.slowed += 1
        if not self._waiting:
            self._empty = trio.Event()
        self._waiting += 1
        await self._queue.send((trio.current_time() + delay, list(slowness), piece))

    async def run(self) -> None:
        """Sends what was queued, until it is cancelled."""
        async for due, slowness, piece in self._due:
            await _until(due, slowness)
            await self._paced(piece)
            self._waiting -= 1
            if not self._waiting:
                self._empty.set()

    async def _paced(self, piece: bytes) -> None:
        rest = memoryview(piece)
        while rest:
            limits = [one for one in self._slowness() if one.bytes_per_s]
            rate = min((one.bytes_per_s for one in limits), default=0.0)
            slice_ = rest[: max(1, int(rate * SLICE_S))] if rate else rest
            if rate:
                await _until(trio.current_time() + len(slice_) / rate, limits)
            await self._send(bytes(slice_))
            rest = rest[len(slice_) :]

    async def drained(self) -> None:
        """Waits until the queue is empty: a pipe that ends still delivers its last pieces."""
        if self._waiting:
            await self._empty.wait()


async def _until(due: float, slowness: Sequence[Slowness]) -> None:
    """Returns at this time, or earlier if all these slownesses are over."""
    with trio.move_on_at(due):
        for one in slowness:
            await one.over.wait()
