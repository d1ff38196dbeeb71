"""What the protocol must know of topics: ids, numbers of partitions, racks; and their hash.

Source: CoordinatorMetadataImage, Utils.computeTopicHash, Utils.computeGroupHash of Kafka's group
coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, Protocol

from highwater.broker.coordinator.group.consumer.xxh3 import xxh3_64

_MAGIC = b"\0"
"""The version of the hash: a change of its making would be another one."""
_INT = Struct("<i")
_LONGS = Struct("<qq")
_LONG = Struct("<q")


class Topic(NamedTuple):
    topic_id: bytes
    partitions: int


class Topics(Protocol):
    """The topics of the cluster, as this broker knows them now."""

    @property
    def version(self) -> int:
        """Grows with each change."""

    def names(self) -> Iterable[str]: ...

    def topic(self, name: str) -> Topic | None:
        """None for a topic that does not exist, or has no id."""

    def name_of(self, topic_id: bytes) -> str | None: ...

    def racks(self, name: str) -> tuple[tuple[str, ...], ...]:
        """For each partition, the racks of its replicas, sorted."""


def known(names: Iterable[str], topics: Topics) -> dict[str, Topic]:
    """Those of the topics that exist, in the order of their names."""
    found = ((name, topics.topic(name)) for name in sorted(names))
    return {name: topic for name, topic in found if topic is not None}


def group_hash(subscribed: dict[str, Topic], topics: Topics) -> int:
    """The hash of these topics' metadata, as a signed number of 64 bits; 0 without topics."""
    if not subscribed:
        return 0
    hashes = (
        _topic_hash(name, topic, topics.racks(name)) for name, topic in sorted(subscribed.items())
    )
    return _signed(xxh3_64(b"".join(map(_LONG.pack, hashes))))


@lru_cache(maxsize=1024)
def _topic_hash(name: str, topic: Topic, racks: tuple[tuple[str, ...], ...]) -> int:
    high = int.from_bytes(topic.topic_id[:8], "big", signed=True)
    low = int.from_bytes(topic.topic_id[8:], "big", signed=True)
    parts = [_MAGIC, _LONGS.pack(high, low), _string(name), _INT.pack(topic.partitions)]
    for number, racks_of_one in enumerate(racks):
        parts.append(_INT.pack(number))
        for rack in racks_of_one:
            units = len(rack.encode("utf-16-le", "surrogatepass")) // 2
            parts += (_INT.pack(units), _string(rack))
    return _signed(xxh3_64(b"".join(parts)))


def _string(text: str) -> bytes:
    """A string as hash4j's streams take it: its UTF-16 units, and then their number."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units + _INT.pack(len(units) // 2)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
