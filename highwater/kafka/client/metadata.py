"""Metadata: the brokers, the partitions' leaders, and one connection to each broker.

The cache is refreshed when it is old, when a topic is missing, and when an error said that it was
wrong.  However many callers ask, one request is in flight at a time.  A leader epoch lower than the
known one is ignored: that answer came from a broker that had not heard the news yet.

A connection is opened when first needed, by one caller for all, and replaced after it has ended.
Request versions are fixed, because every broker from 2.6 to 4.x answers them, so nothing is
negotiated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from highwater.kafka.client.connection import ClientConnection, ConnectionLost
from highwater.kafka.client.retries import code_of
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import MetadataRequest

if TYPE_CHECKING:
    from highwater.world.api import World

METADATA_VERSION = 7
_MAX_BACKOFF_S = 1.0


class Node(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None = None


class Leader(NamedTuple):
    """The leader of a partition; the node is -1 while there is none."""

    node: int
    epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


def parse_bootstrap(servers: str | Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """ "host:port,host:port" as pairs."""
    if not isinstance(servers, str):
        return list(servers)
    found = []
    for item in servers.split(","):
        host, _, port = item.strip().rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"bootstrap servers {servers!r}: {item.strip()!r} is not HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    return found


class Cluster:
    """One client's view of a cluster; producers, consumers and admins of a client share it."""

    def __init__(
        self,
        world: World,
        bootstrap: str | Sequence[tuple[str, int]],
        client_id: str = "highwater",
        *,
        request_timeout_s: float = 30.0,
        connect_timeout_s: float = 10.0,
        metadata_max_age_s: float = 300.0,
        retry_backoff_s: float = 0.1,
    ) -> None:
        self.world = world
        self.client_id = client_id
        self.request_timeout_s = request_timeout_s
        self.connect_timeout_s = connect_timeout_s
        self.retry_backoff_s = retry_backoff_s
        self.nodes: dict[int, Node] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        self.leaders: dict[TopicPartition, Leader] = {}
        self.topics: dict[str, int] = {}
        """The topics asked for, and the number of their partitions."""
        self.topic_errors: dict[str, ErrorCode] = {}
        self._bootstrap = parse_bootstrap(bootstrap)
        self._max_age_s = metadata_max_age_s
        self._refreshed_at = -float("inf")
        self._refreshing: trio.Event | None = None
        self._connections: dict[int, ClientConnection] = {}
        self._opening: dict[int, trio.Event] = {}
        self._turn = 0

    def close(self) -> None:
        """Closes every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # --- connections

    async def connection(self, node: int) -> ClientConnection:
        """The connection to a broker, opened where there is none; raises OSError."""
        while True:
            found = self._connections.get(node)
            if found is not None and not found.closed:
                return found
            opening = self._opening.get(node)
            if opening is None:
                return await self._open(node)
            await opening.wait()

    async def _open(self, node: int) -> ClientConnection:
        address = self.nodes.get(node)
        if address is None:
            raise ConnectionLost(f"broker {node} is not in the metadata")
        done = self._opening[node] = trio.Event()
        try:
            connection = await self._connect(address.host, address.port)
            self._connections[node] = connection
            return connection
        finally:
            del self._opening[node]
            done.set()

    async def _connect(self, host: str, port: int) -> ClientConnection:
        return await ClientConnection.open(
            self.world.network, host, port, self.client_id, timeout_s=self.connect_timeout_s
        )

    async def call(self, node: int, request: Any, version: int) -> Any:
        """One request to one broker; on an error closes the connection and raises OSError."""
        connection = await self.connection(node)
        try:
            return await connection.call(request, version, self.request_timeout_s)
        except TimeoutError:
            connection.close()  # requests stuck behind it would time out as well
            raise

    # --- metadata

    def leader(self, tp: TopicPartition) -> Leader | None:
        """The last known leader; None where the partition is unknown or has no leader."""
        found = self.leaders.get(tp)
        return found if found is not None and found.node >= 0 else None

    def mark_stale(self) -> None:
        """Marks the cache as wrong: the next caller refreshes it."""
        self._refreshed_at = -float("inf")

    @property
    def stale(self) -> bool:
        return trio.current_time() - self._refreshed_at >= self._max_age_s

    async def ensure(self, topics: Iterable[str]) -> None:
        """Refreshes metadata that is stale or lacks one of these topics; raises OSError."""
        missing = [topic for topic in topics if topic not in self.topics]
        for topic in missing:
            self.topics[topic] = 0
        if missing or self.stale:
            await self.refresh()

    async def refresh(self) -> None:
        """Asks the brokers in turn until one answers; raises the last one's OSError."""
        if self._refreshing is not None:
            await self._refreshing.wait()
            return
        done = self._refreshing = trio.Event()
        try:
            await self._refresh()
        finally:
            self._refreshing = None
            done.set()

    async def _refresh(self) -> None:
        error: OSError | None = None
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=t) for t in self.topics],
            allow_auto_topic_creation=False,
        )
        known = sorted(self.nodes)
        self._turn += 1
        for i in range(len(known)):
            node = known[(self._turn + i) % len(known)]
            try:
                connection = await self.connection(node)
                self._apply(await self._ask(connection, request))
                return
            except OSError as exc:
                error = exc
        for host, port in self._bootstrap:
            try:
                connection = await self._connect(host, port)
                try:
                    self._apply(await self._ask(connection, request))
                finally:
                    connection.close()
                return
            except OSError as exc:
                error = exc
        raise error or ConnectionLost("no bootstrap servers were given")

    async def _ask(self, connection: ClientConnection, request: Any) -> Any:
        timeout_s = min(self.request_timeout_s, 10.0)
        try:
            return await connection.call(request, METADATA_VERSION, timeout_s)
        except TimeoutError:
            connection.close()
            raise

    def _apply(self, answer: Any) -> None:
        self._refreshed_at = trio.current_time()
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in answer.brokers}
        for node in sorted(self.nodes.keys() | nodes.keys()):
            moved = node in nodes and self.nodes.get(node) != nodes[node]
            if moved and node in self._connections:
                self._connections.pop(node).close()
        self.nodes = nodes
        for topic in answer.topics:
            code = code_of(topic.error_code)
            if code is not ErrorCode.NONE:
                self.topic_errors[topic.name] = code
                if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._forget_topic(topic.name)
                continue
            self.topic_errors.pop(topic.name, None)
            self.topics[topic.name] = len(topic.partitions)
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                known = self.leaders.get(tp)
                if known is not None and 0 <= p.leader_epoch < known.epoch:
                    continue
                self.leaders[tp] = Leader(
                    p.leader_id, p.leader_epoch, tuple(p.replica_nodes), tuple(p.isr_nodes)
                )

    def _forget_topic(self, topic: str) -> None:
        self.topics[topic] = 0
        for tp in [tp for tp in self.leaders if tp.topic == topic]:
            del self.leaders[tp]

    async def partitions(self, topic: str, timeout_s: float = 10.0) -> int:
        """The number of partitions; waits until the topic exists, else raises ApiError."""
        with trio.move_on_after(timeout_s):
            backoff_s = self.retry_backoff_s
            while True:
                try:
                    await self.ensure([topic])
                    if self.topics.get(topic):
                        return self.topics[topic]
                    await trio.sleep(backoff_s)
                    await self.refresh()
                except OSError:
                    await trio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, _MAX_BACKOFF_S)
        code = self.topic_errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise ApiError(code, f"no metadata for topic {topic} within {timeout_s:g} s")
