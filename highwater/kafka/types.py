"""The vocabulary: each kind of id, epoch and offset is a type of its own.

They are `NewType`s, so they cost nothing at run time, and mypy tells a leader epoch from a
controller epoch.  Plain `int` is used on the hot path's inner loops only.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

BrokerId = NewType("BrokerId", int)
"""broker.id; -1 means "none"."""
LeaderEpoch = NewType("LeaderEpoch", int)
"""Bumped by the controller at each change of leader or ISR that it makes; -1 means "unknown"."""
ControllerEpoch = NewType("ControllerEpoch", int)
"""Bumped by each controller at its election (/controller_epoch); starts at 1."""
BrokerEpoch = NewType("BrokerEpoch", int)
"""The czxid of /brokers/ids/N (KIP-380); -1 means "unknown"."""
ZkVersion = NewType("ZkVersion", int)
"""A znode's data version; of a partition's state znode it is the partition epoch.  -1 means "any".
"""
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)

NO_BROKER = BrokerId(-1)
NO_LEADER = BrokerId(-1)
LEADER_DURING_DELETE = BrokerId(-2)
"""The leader -2 in a LeaderAndIsr: the topic is being deleted (Kafka's
LeaderAndIsr.LeaderDuringDelete).
"""
EPOCH_DURING_DELETE = LeaderEpoch(-2)
UNKNOWN_EPOCH = LeaderEpoch(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = ProducerEpoch(-1)
NO_SEQUENCE = -1
ANY_VERSION = ZkVersion(-1)


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as Kafka prints it, `topic-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Endpoint(NamedTuple):
    """The address of a broker's listener."""

    listener: str
    security_protocol: str
    host: str
    port: int


class BrokerInfo(NamedTuple):
    """A live broker as its registration (/brokers/ids/N) describes it."""

    id: BrokerId
    epoch: BrokerEpoch
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: tuple[tuple[str, int], ...] = ()
    """Names and levels of what it announces (`features`)."""

    def level(self, feature: str) -> int:
        """The level of that feature, 0 if the broker does not announce it."""
        return next((level for name, level in self.features if name == feature), 0)

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of the listener with that name, or None where the broker has none."""
        return next((e for e in self.endpoints if e.listener == listener), None)
