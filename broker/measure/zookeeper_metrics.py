"""Kafka's numbers of a ZooKeeper session: how often it was lost, and how long requests take."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from highwater.world.api import SessionState, Stat, Watcher, ZkOp, ZooKeeper

if TYPE_CHECKING:
    from highwater.base.metrics import Registry, TimeHistogram

_LISTENER = "kafka_server_sessionexpirelistener_zookeeper"
_LATENCY = "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms"
_NEVER = ("authfailures", "readonlyconnects", "saslauthentications")
"""No session here asks for any of these; dashboards expect to see zero."""

T = TypeVar("T")


class ZooKeeperMetrics:
    """`measured` takes each session when it has been opened."""

    def __init__(self, metrics: Registry, perf_ns: Callable[[], int]) -> None:
        self._perf_ns = perf_ns
        self._latency = metrics.histogram(_LATENCY, "From a request to ZooKeeper to its answer")
        text = "Changes of the ZooKeeper session, by Kafka's names of the states"
        self._counts = {
            SessionState.CONNECTED: metrics.counter(f"{_LISTENER}syncconnectspersec", text),
            SessionState.SUSPENDED: metrics.counter(f"{_LISTENER}disconnectspersec", text),
            SessionState.EXPIRED: metrics.counter(f"{_LISTENER}expirespersec", text),
        }
        for name in _NEVER:
            metrics.counter(f"{_LISTENER}{name}persec", text)

    def measured(self, session: ZooKeeper) -> ZooKeeper:
        self._counts[SessionState.CONNECTED].add()
        session.on_session.append(lambda state: self._counts[state].add())
        return _Measured(session, self._latency, self._perf_ns)


class _Measured:
    """A session that measures the time of each answered request."""

    def __init__(
        self, session: ZooKeeper, latency: TimeHistogram, perf_ns: Callable[[], int]
    ) -> None:
        self._session = session
        self._latency = latency
        self._perf_ns = perf_ns
        self.on_session = session.on_session

    @property
    def session_id(self) -> int:
        return self._session.session_id

    @session_id.setter
    def session_id(self, value: int) -> None:
        self._session.session_id = value

    @property
    def session_timeout_ms(self) -> int:
        return self._session.session_timeout_ms

    @session_timeout_ms.setter
    def session_timeout_ms(self, value: int) -> None:
        self._session.session_timeout_ms = value

    @property
    def expired(self) -> bool:
        return self._session.expired

    @expired.setter
    def expired(self, value: bool) -> None:
        self._session.expired = value

    async def _timed(self, request: Awaitable[T]) -> T:
        began = self._perf_ns()
        answer = await request
        self._latency.record(self._perf_ns() - began)
        return answer

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, Stat]:
        session = self._session
        return await self._timed(
            session.create(path, data, ephemeral=ephemeral, sequential=sequential)
        )

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        return await self._timed(self._session.get(path, watch))

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        return await self._timed(self._session.exists(path, watch))

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        return await self._timed(self._session.children(path, watch))

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        return await self._timed(self._session.set(path, data, version))

    async def delete(self, path: str, version: int = -1) -> None:
        await self._timed(self._session.delete(path, version))

    async def multi(self, ops: Sequence[ZkOp]) -> list[Stat | str | None]:
        return await self._timed(self._session.multi(ops))

    async def close(self) -> None:
        await self._session.close()
