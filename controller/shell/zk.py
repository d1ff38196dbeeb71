"""ZooKeeper for the machine: pipelined reads, guarded writes, and patience while it is away.

Each multi begins with a Check of /controller_epoch at the version with which this controller was
elected, so a controller that has been replaced writes nothing more, whatever it believes.  Groups
of writes are packed into few multis; if a multi fails, its groups are written one by one to find
the one that fails.

The outcome of a write whose connection was lost is unknown, so the write is repeated: if the state
znode was written, its version has moved on, and the procedure reads it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from highwater.controller.rules.effects import Children, Get, GroupResult, ReadOp
from highwater.kafka import znodes
from highwater.world.api import (
    BadVersion,
    Check,
    ConnectionLoss,
    Create,
    NoNode,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    Watcher,
    ZkError,
    ZkOp,
)

if TYPE_CHECKING:
    from highwater.kafka.types import ZkVersion
    from highwater.world.api import ZooKeeper

S = TypeVar("S")
T = TypeVar("T")

IN_FLIGHT = 64
MULTI_OPS = 128
MULTI_BYTES = 256 * 1024
_RETRY_S = 0.05


class ControllerMoved(Exception):
    """Raised when /controller_epoch is no longer what this controller set it to."""


class Session:
    """One ZooKeeper session, and whether it can be used at the moment."""

    def __init__(self, zk: ZooKeeper) -> None:
        self.zk = zk
        self._state = SessionState.CONNECTED
        self._changed = trio.Event()
        zk.on_session.append(self._on_session)

    def close(self) -> None:
        """Stops listening; the session itself belongs to its owner."""
        if self._on_session in self.zk.on_session:
            self.zk.on_session.remove(self._on_session)

    def _on_session(self, state: SessionState) -> None:
        self._state = state
        self._changed.set()
        self._changed = trio.Event()

    async def usable(self) -> None:
        """Waits until ZooKeeper may be used again; raises SessionExpired."""
        while True:
            if self.zk.expired or self._state is SessionState.EXPIRED:
                raise SessionExpired
            if self._state is SessionState.CONNECTED:
                return
            await self._changed.wait()

    async def gone(self, patience_ms: int) -> str:
        """Waits until the session has expired, or must have, as far as this side can know.

        The server counts from the last message that it received; this side counts from when it
        noticed the silence, which is later.  After that another controller may be at work.
        """
        while True:
            if self.zk.expired or self._state is SessionState.EXPIRED:
                return "the ZooKeeper session has expired"
            changed = self._changed
            if self._state is SessionState.CONNECTED:
                await changed.wait()
                continue
            with trio.move_on_after(patience_ms / 1000) as waiting:
                await changed.wait()
            if waiting.cancelled_caught:
                return f"ZooKeeper was away for {patience_ms} ms"

    async def insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks until there is an answer; raises SessionExpired."""
        while True:
            await self.usable()
            try:
                return await ask()
            except ConnectionLoss:
                await trio.sleep(_RETRY_S)


class Lease:
    """The time until which no other session can own /controller, whatever happens.

    ZooKeeper ends a session when it has received nothing from it for the session time-out.  So an
    answer proves that the session lives for that long after the question was sent.  After that
    (this process was stopped, or ZooKeeper is away) nothing is sent to brokers: they refuse a
    former controller's requests by its epoch, but only once they know the next controller's.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._until = trio.current_time()
        self._renewed = trio.Event()

    async def keep(self) -> None:
        """Renews the lease; raises ControllerMoved if /controller is not this session's."""
        zk = self._session.zk
        timeout_s = zk.session_timeout_ms / 1000
        while True:
            asked_at, stat = await self._session.insist(self._ask)
            if stat is None or stat.ephemeral_owner != zk.session_id:
                raise ControllerMoved("/controller is not this broker's any more")
            self._until = asked_at + timeout_s
            self._renewed.set()
            self._renewed = trio.Event()
            await trio.sleep(timeout_s / 4)

    async def hold(self) -> None:
        """Returns at once while the lease holds, else waits until it holds again."""
        while trio.current_time() >= self._until:
            await self._renewed.wait()

    async def _ask(self) -> tuple[float, Stat | None]:
        asked_at = trio.current_time()
        return asked_at, await self._session.zk.exists(znodes.CONTROLLER)


class GuardedZk:
    """Reads and writes of one term of the controller."""

    def __init__(self, session: Session, epoch_zk_version: ZkVersion, watcher: Watcher) -> None:
        self._session = session
        self._guard = Check(znodes.CONTROLLER_EPOCH, epoch_zk_version)
        self._watcher = watcher

    async def read(self, ops: Sequence[ReadOp]) -> list[Any]:
        return await in_parallel(ops, self._read)

    async def write(self, groups: Sequence[Sequence[ZkOp]]) -> list[GroupResult]:
        """Writes the groups.  Raises ControllerMoved; nothing of the failed multi was then done."""
        packs = list(_pack(groups))
        found = await in_parallel(packs, self._multi)
        alone: list[int] = []
        results: list[GroupResult] = []
        for pack, result in zip(packs, found, strict=True):
            if isinstance(result, ZkError) and len(pack) > 1:
                alone += range(len(results), len(results) + len(pack))
                results += [result] * len(pack)
            elif isinstance(result, ZkError):
                results.append(result)
            else:
                results += _by_group(pack, result)
        again = await in_parallel([[groups[i]] for i in alone], self._multi)
        for i, result in zip(alone, again, strict=True):
            results[i] = result
        return results

    async def _read(self, op: ReadOp) -> Any:
        zk = self._session.zk
        watcher = self._watcher if op.watch else None
        try:
            match op:
                case Get(path):
                    return await self._session.insist(lambda: zk.get(path, watcher))
                case Children(path):
                    return await self._session.insist(lambda: zk.children(path, watcher))
                case _:
                    return await self._session.insist(lambda: zk.exists(op.path, watcher))
        except NoNode:
            return None

    async def _multi(self, groups: Sequence[Sequence[ZkOp]]) -> GroupResult:
        ops: list[ZkOp] = [self._guard]
        for group in groups:
            ops += group
        try:
            return (await self._session.insist(lambda: self._session.zk.multi(ops)))[1:]
        except SessionExpired:
            raise
        except (BadVersion, NoNode) as e:
            if e.path == self._guard.path:
                raise ControllerMoved(
                    f"{self._guard.path} is no longer at version {self._guard.version}"
                ) from None
            return e
        except ZkError as e:
            return e


def _pack(groups: Sequence[Sequence[ZkOp]]) -> Iterator[list[Sequence[ZkOp]]]:
    pack: list[Sequence[ZkOp]] = []
    ops = size = 0
    for group in groups:
        weight = sum(_weight(op) for op in group)
        if pack and (ops + len(group) > MULTI_OPS or size + weight > MULTI_BYTES):
            yield pack
            pack, ops, size = [], 0, 0
        pack.append(group)
        ops += len(group)
        size += weight
    if pack:
        yield pack


def _weight(op: ZkOp) -> int:
    data = len(op.data) if isinstance(op, Create | SetData) else 0
    return len(op.path) + data + 64


def _by_group(pack: list[Sequence[ZkOp]], result: Sequence[Any]) -> Iterator[GroupResult]:
    position = 0
    for group in pack:
        yield result[position : position + len(group)]
        position += len(group)


async def in_parallel(items: Sequence[S], ask: Callable[[S], Awaitable[T]]) -> list[T]:
    """Asks for a bounded number at once; returns answers in order; an exception ends all."""
    if len(items) == 1:
        return [await ask(items[0])]
    results: list[Any] = [None] * len(items)
    waiting = iter(enumerate(items))
    failure: list[BaseException] = []

    async def work(nursery: trio.Nursery) -> None:
        for i, item in waiting:
            try:
                results[i] = await ask(item)
            except (ZkError, ControllerMoved) as e:
                failure.append(e)
                nursery.cancel_scope.cancel()
                return

    async with trio.open_nursery() as nursery:
        for _ in range(min(IN_FLIGHT, len(items))):
            nursery.start_soon(work, nursery)
    if failure:
        raise failure[0]
    return results
