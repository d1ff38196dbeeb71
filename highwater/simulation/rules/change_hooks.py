"""Notes which partitions of a broker have changed, so that the checker need not look at all of them
after every step.

A broker has many steps and perhaps hundreds of partitions, but a step changes few of them.  So the
checker listens to assignments.  A `WatchedPartitions` replaces the broker's table of partitions,
and every partition in it gets the class `WatchedPartition`, which notes an assignment to any field
that the rules look at; its ISR is replaced by one that does the same.  No code that makes a change,
in whatever module, can bypass this; and the product knows nothing of it.

`news` only says where to look.  The state is read when the step is over.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.replica.isr import Isr
from highwater.broker.replica.partition import Partition
from highwater.kafka.types import TopicPartition

News = dict[TopicPartition, None]

_LOOKED_AT = frozenset(("role", "leader_epoch", "controller_epoch", "_high_watermark"))


class WatchedIsr(Isr):
    """Notes every assignment."""

    __slots__ = ("_news", "_tp")
    _news: News
    _tp: TopicPartition

    @classmethod
    def of(cls, isr: Isr, tp: TopicPartition, news: News) -> WatchedIsr:
        watched = cls.__new__(cls)
        object.__setattr__(watched, "_news", news)
        object.__setattr__(watched, "_tp", tp)
        for name in ("members", "zk_version", "pending", "refused"):
            object.__setattr__(watched, name, getattr(isr, name))
        return watched

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
        self._news[self._tp] = None


class WatchedPartition(Partition):
    """Notes assignments to the fields that the rules look at."""

    _news: News

    @staticmethod
    def watch(partition: Partition, news: News) -> None:
        partition.__class__ = WatchedPartition
        partition.__dict__["_news"] = news
        partition.isr = partition.isr  # `__setattr__` replaces it by a `WatchedIsr`
        news[partition.tp] = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _LOOKED_AT:
            self._news[self.tp] = None
        elif name == "isr":
            self._news[self.tp] = None
            value = WatchedIsr.of(value, self.tp, self._news)
        object.__setattr__(self, name, value)


class WatchedPartitions(dict[TopicPartition, Partition]):
    """A broker's table of partitions."""

    def __init__(self, news: News) -> None:
        super().__init__()
        self._news = news

    def __setitem__(self, tp: TopicPartition, partition: Partition) -> None:
        WatchedPartition.watch(partition, self._news)
        super().__setitem__(tp, partition)
