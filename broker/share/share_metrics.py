"""Meters and gauges of share groups on the leaders' side, by Kafka's names.

Source: org.apache.kafka.server.share.metrics (ShareGroupMetrics, SharePartitionMetrics),
ShareSessionCache, DelayedShareFetch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from highwater.base.metrics import Family, Sample, labels
from highwater.broker.share.sessions import ShareSessions

if TYPE_CHECKING:
    from highwater.broker.share.share_partition import Acknowledgement, SharePartition
    from highwater.kafka.types import TopicPartition

_GROUPS = "kafka_server_sharegroupmetrics_"
_PARTITIONS = "kafka_server_sharepartitionmetrics_"
_SESSIONS = "kafka_server_sharesessioncache_"
_KINDS: Final = ("Gap", "Accept", "Release", "Reject", "Renew")
_LOADS_REMEMBERED = 50


class ShareMeters:
    """Counters of one broker."""

    def __init__(self) -> None:
        self._acknowledged = [0] * len(_KINDS)
        """Records, by the type of their acknowledgement."""
        self.lock_timeouts = 0
        self.expired = 0
        """Fetches answered at their time-out."""
        self._loads_ms: deque[int] = deque(maxlen=_LOADS_REMEMBERED)

    def loaded(self, ms: int) -> None:
        self._loads_ms.append(ms)

    def acknowledged(self, acks: Iterable[Acknowledgement]) -> None:
        for ack in acks:
            for first, last, kind in ack.parts():
                self._acknowledged[kind] += last - first + 1

    def families(
        self,
        sessions: ShareSessions,
        led: Iterable[tuple[str, TopicPartition, SharePartition | None]],
    ) -> Iterable[Family]:
        """`led` names the group and the partition of each share-partition."""
        acks = [
            Sample("", labels(acktype=kind), self._acknowledged[n])
            for n, kind in enumerate(_KINDS)
            if n
        ]
        name = _GROUPS + "recordacknowledgementspersec"
        yield Family(name, "counter", "Records acknowledged, by type", acks)
        longest = max(self._loads_ms, default=0)
        help_ = "The longest of the latest loads of share-partitions"
        yield Family(_GROUPS + "partitionloadtimems", "gauge", help_, [Sample("", (), longest)])
        for suffix, kind, value, text in (
            ("sharesessionscount", "gauge", len(sessions), "Share sessions"),
            ("sharepartitionscount", "gauge", sessions.partitions(), "Partitions in them"),
            ("sharesessionevictionspersec", "counter", sessions.evictions,
             "Sessions that ended with their connections"),
        ):  # fmt: skip
            yield Family(_SESSIONS + suffix, kind, text, [Sample("", (), value)])
        yield Family(
            "kafka_server_delayedsharefetchmetrics_expirespersec", "counter",
            "Share fetches answered at their time-out", [Sample("", (), self.expired)],
        )  # fmt: skip
        yield Family(
            _PARTITIONS + "acquisitionlocktimeoutpersec", "counter",
            "Ends of locks whose records were not acknowledged",
            [Sample("", (), self.lock_timeouts)],
        )  # fmt: skip
        found = [
            (labels(group=group, topic=tp.topic, partition=str(tp.partition)), machine)
            for group, tp, machine in led
            if machine is not None
        ]
        records = [Sample("", names, machine.in_flight_count) for names, machine in found]
        batches = [Sample("", names, machine.in_flight_batches) for names, machine in found]
        yield Family(_PARTITIONS + "inflightmessagecount", "gauge", "Records in flight", records)
        yield Family(_PARTITIONS + "inflightbatchcount", "gauge", "Batches in flight", batches)
