"""The bytes of Metadata answers, v0 to v13, written by hand.

The schema's fields by version: v1 rack, controller id, is_internal; v2 cluster id; v3 throttle
time; v5 offline replicas; v7 leader epoch; v8 authorized operations of topics, and v8 to v10 of the
cluster; v9 compact forms and tagged fields; v10 topic ids; v13 an error of the whole.

Errors of a partition: LEADER_NOT_AVAILABLE if its leader is not alive; LISTENER_NOT_FOUND (before
v6 LEADER_NOT_AVAILABLE) if the leader has no listener of the name on which the request came in; and
only in v0, REPLICA_NOT_AVAILABLE if a replica is down, which v0 then leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import pack
from typing import TYPE_CHECKING, NamedTuple

from highwater.kafka.errors import ErrorCode
from highwater.kafka.topic_ids import NO_ID
from highwater.kafka.topic_names import INTERNAL_TOPICS, is_valid_name
from highwater.kafka.types import BrokerId, BrokerInfo
from highwater.kafka.wire.varint import uvarint

if TYPE_CHECKING:
    from highwater.broker.metadata.partition_metadata import PartitionMetadata

FLEXIBLE = 9
NOT_ASKED = -(1 << 31)
"""Stands for the operations allowed to a client (AclOperation codes as bits) if not requested."""


class Encoded(NamedTuple):
    """Bytes of an answer, and the names of the errors in them."""

    data: bytes
    errors: tuple[str, ...] = ()


class EncodedTopics:
    """The parts of answers that each describe one topic, for one version and one listener."""

    __slots__ = ("_id_of", "_listener", "_parts", "_version")

    def __init__(self, version: int, listener: str, id_of: Callable[[str], bytes]) -> None:
        self._version = version
        self._listener = listener
        self._id_of = id_of
        self._parts: dict[str, Encoded] = {}

    def forget(self, topic: str) -> None:
        self._parts.pop(topic, None)

    def part(
        self,
        topic: str,
        partitions: Mapping[int, PartitionMetadata] | None,
        brokers: Mapping[BrokerId, BrokerInfo],
        operations: int = NOT_ASKED,
    ) -> Encoded:
        """One topic's part; `partitions` is None if the topic is not known."""
        if partitions is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not is_valid_name(topic):
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
            part = encode_topic(self._version, topic, code, ())
        else:
            found = self._parts.get(topic)
            if found is None:
                found = self._encode(topic, partitions, brokers)
                self._parts[topic] = found
            part = found
        return with_operations(self._version, part, operations)

    def _encode(
        self,
        topic: str,
        partitions: Mapping[int, PartitionMetadata],
        brokers: Mapping[BrokerId, BrokerInfo],
    ) -> Encoded:
        reachable = {
            i: any(e.listener == self._listener for e in b.endpoints) for i, b in brokers.items()
        }
        encoded = [
            _partition(self._version, index, state, reachable)
            for index, state in sorted(partitions.items())
        ]
        return encode_topic(self._version, topic, ErrorCode.NONE, encoded, self._id_of(topic))


def with_operations(version: int, topic: Encoded, operations: int = NOT_ASKED) -> Encoded:
    """Ends a topic's part with the operations, as bits, that the client may do on it."""
    if version < 8:
        return topic
    end = pack(">i", operations) + (b"\0" if version >= FLEXIBLE else b"")
    return Encoded(topic.data + end, topic.errors)


def encode_topic(
    version: int,
    topic: str | None,
    code: ErrorCode,
    partitions: Sequence[Encoded],
    topic_id: bytes = NO_ID,
) -> Encoded:
    """A topic's part, without its authorized operations."""
    parts = [pack(">h", code), string(version, topic)]
    if version >= 10:
        parts.append(topic_id)
    if version >= 1:
        parts.append(b"\1" if topic in INTERNAL_TOPICS else b"\0")
    parts.append(count(version, len(partitions)))
    parts.extend(partition.data for partition in partitions)
    return Encoded(b"".join(parts), (*_names(code), *_errors(partitions)))


def _names(code: ErrorCode) -> tuple[str, ...]:
    return (code.name,) if code else ()


def _errors(parts: Iterable[Encoded]) -> Iterator[str]:
    return (name for part in parts for name in part.errors)


def encode_answer(
    version: int,
    brokers: Iterable[BrokerInfo],
    listener: str,
    cluster_id: str | None,
    controller_id: int,
    topics: Sequence[Encoded],
    cluster_operations: int = NOT_ASKED,
) -> Encoded:
    """The body of an answer; brokers without that listener are left out."""
    nodes = [
        _node(version, b, e.host, e.port)
        for b in brokers
        for e in b.endpoints
        if e.listener == listener
    ]
    parts = [pack(">i", 0)] if version >= 3 else []
    parts.append(count(version, len(nodes)))
    parts.extend(nodes)
    if version >= 2:
        parts.append(string(version, cluster_id))
    if version >= 1:
        parts.append(pack(">i", controller_id))
    parts.append(count(version, len(topics)))
    parts.extend(topic.data for topic in topics)
    if 8 <= version <= 10:
        parts.append(pack(">i", cluster_operations))
    if version >= 13:
        parts.append(b"\0\0")
    if version >= FLEXIBLE:
        parts.append(b"\0")
    return Encoded(b"".join(parts), tuple(_errors(topics)))


def _node(version: int, broker: BrokerInfo, host: str, port: int) -> bytes:
    parts = [pack(">i", broker.id), string(version, host), pack(">i", port)]
    if version >= 1:
        parts.append(string(version, broker.rack))
    if version >= FLEXIBLE:
        parts.append(b"\0")
    return b"".join(parts)


def _partition(
    version: int, index: int, state: PartitionMetadata, reachable: Mapping[BrokerId, bool]
) -> Encoded:
    code, leader = ErrorCode.NONE, state.leader
    replicas, isr = state.replicas, state.isr
    if version == 0:
        replicas = tuple(r for r in replicas if reachable.get(r))
        isr = tuple(r for r in isr if reachable.get(r))
    found = reachable.get(leader)
    if not found:
        code = ErrorCode.LEADER_NOT_AVAILABLE
        if found is False and version >= 6:
            code = ErrorCode.LISTENER_NOT_FOUND
        leader = BrokerId(-1)
    elif len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
        code = ErrorCode.REPLICA_NOT_AVAILABLE
    head = pack(">hii", code, index, leader)
    if version >= 7:
        head += pack(">i", state.leader_epoch)
    body = head + _ids(version, replicas) + _ids(version, isr)
    if version >= 5:
        body += _ids(version, state.offline)
    return Encoded(body + b"\0" if version >= FLEXIBLE else body, _names(code))


def _ids(version: int, ids: Sequence[int]) -> bytes:
    return count(version, len(ids)) + pack(f">{len(ids)}i", *ids)


def count(version: int, n: int) -> bytes:
    """The length of an array."""
    return uvarint(n + 1) if version >= FLEXIBLE else pack(">i", n)


def string(version: int, text: str | None) -> bytes:
    if text is None:
        return b"\0" if version >= FLEXIBLE else b"\xff\xff"
    data = text.encode()
    if version >= FLEXIBLE:
        return uvarint(len(data) + 1) + data
    return pack(">h", len(data)) + data


def unknown_topic_id(version: int, topic_id: bytes) -> Encoded:
    """The answer (from v12 on) to an unknown topic id: null name, the id, no partitions."""
    return with_operations(
        version, encode_topic(version, None, ErrorCode.UNKNOWN_TOPIC_ID, (), topic_id)
    )
