"""Traffic of a broker by topic: records, bytes, requests and failures (BrokerTopicMetrics).

A request is counted once for each partition that it names, as in Kafka.  Every counter is kept by
topic alone; the series of all topics together is their sum, made at the scrape.  A topic that has
left the broker takes its series with it and leaves its numbers in that sum.  Kafka has some
counters for all topics only: replication traffic, and reasons for refused batches.

Source: kafka.server.BrokerTopicStats.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from highwater.base.metrics import Family, Sample, labels
from highwater.kafka.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection

PREFIX = "kafka_server_brokertopicmetrics_"
BY_TOPIC = (
    ("messages_in", "messagesinpersec", "Records appended by clients"),
    ("bytes_in", "bytesinpersec", "Bytes appended by clients"),
    ("bytes_out", "bytesoutpersec", "Bytes given to consumers"),
    ("bytes_rejected", "bytesrejectedpersec", "Bytes of batches above max.message.bytes"),
    ("total_produce", "totalproducerequestspersec", "Produce requests, once for each partition"),
    ("failed_produce", "failedproducerequestspersec", "Produce requests that failed unexpectedly"),
    ("total_fetch", "totalfetchrequestspersec", "Fetch requests, once for each partition"),
    ("failed_fetch", "failedfetchrequestspersec", "Fetch requests that failed unexpectedly"),
    ("produce_conversions", "producemessageconversionspersec", "Records converted for the log"),
    ("fetch_conversions", "fetchmessageconversionspersec", "Records converted for a consumer"),
    ("total_share_fetch", "totalsharefetchrequestspersec", "Share fetches, once for each topic"),
    ("failed_share_fetch", "failedsharefetchrequestspersec", "Of those, with an error"),
    (
        "total_share_acks", "totalshareacknowledgementrequestspersec",
        "Acknowledgements of share groups, once for each partition",
    ),
    ("failed_share_acks", "failedshareacknowledgementrequestspersec", "Of those, with an error"),
)  # fmt: skip
FOR_ALL = (
    ("replication_bytes_in", "replicationbytesinpersec", "Bytes fetched from leaders"),
    ("replication_bytes_out", "replicationbytesoutpersec", "Bytes given to followers"),
    ("reassignment_bytes_in", "reassignmentbytesinpersec", "Of those, by an adding replica"),
    ("reassignment_bytes_out", "reassignmentbytesoutpersec", "Of those, to an adding replica"),
    ("invalid_crc", "invalidmessagecrcrecordspersec", "Batches that did not match their CRC"),
    ("invalid_magic", "invalidmagicnumberrecordspersec", "Batches of an old message format"),
    ("invalid_sequence", "invalidoffsetorsequencerecordspersec", "Batches out of sequence"),
    ("no_key", "nokeycompactedtopicrecordspersec", "Records without a key for a compacted topic"),
)
_EXPECTED = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    )
)
"""Not failures: the client is late, or sent something invalid."""


class TopicStats:
    """One topic's counters."""

    __slots__ = tuple(name for name, _, _ in BY_TOPIC)

    messages_in: int
    bytes_in: int
    bytes_out: int
    bytes_rejected: int
    total_produce: int
    failed_produce: int
    total_fetch: int
    failed_fetch: int
    produce_conversions: int
    fetch_conversions: int
    total_share_fetch: int
    failed_share_fetch: int
    total_share_acks: int
    failed_share_acks: int

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)


class BrokerTopicStats(dict[str, TopicStats]):
    """Counters by topic, made at a topic's first use: look up hosted topics only."""

    def __init__(self) -> None:
        super().__init__()
        self._gone = TopicStats()
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.reassignment_bytes_in = 0
        self.reassignment_bytes_out = 0
        self.invalid_crc = 0
        self.invalid_magic = 0
        self.invalid_sequence = 0
        self.no_key = 0
        self.expired_consumers = 0
        self.expired_followers = 0
        """Fetches answered at their time-out, with whatever there was."""

    def __missing__(self, topic: str) -> TopicStats:
        found = self[topic] = TopicStats()
        return found

    def produce_asked(self, topic: str) -> None:
        """Counts a client's batch for a partition of a hosted topic, whatever becomes of it."""
        self[topic].total_produce += 1

    def produced(self, topic: str, messages: int, size: int) -> None:
        """Counts a client's batch that was appended."""
        stats = self[topic]
        stats.messages_in += messages
        stats.bytes_in += size

    def produce_failed(self, topic: str, error: ApiError, size: int) -> None:
        """Counts a client's batch that a partition of a hosted topic refused."""
        code = error.code
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            self[topic].bytes_rejected += size
        elif code is ErrorCode.CORRUPT_MESSAGE:
            self.invalid_crc += 1
        elif code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
            self.invalid_magic += 1
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self.invalid_sequence += 1
        if code not in _EXPECTED:
            self[topic].failed_produce += 1

    def fetched(
        self, topic: str, error: int, size: int, to_follower: bool, adding: bool = False
    ) -> None:
        """Counts one partition of a hosted topic that was read for an answer; with `adding`,
        for a replica that a reassignment adds."""
        stats = self[topic]
        stats.total_fetch += 1
        if size:
            if to_follower:
                self.replication_bytes_out += size
                self.reassignment_bytes_out += size * adding
            else:
                stats.bytes_out += size
        elif error and error not in _EXPECTED:
            stats.failed_fetch += 1

    def share_acknowledged(self, topic: str, *, failed: bool) -> None:
        """Counts a partition's acknowledgements, when they come and again if they fail."""
        stats = self[topic]
        stats.failed_share_acks += failed
        stats.total_share_acks += not failed

    def expired(self, follower: bool) -> None:
        """Counts a fetch that was answered at its time-out."""
        if follower:
            self.expired_followers += 1
        else:
            self.expired_consumers += 1

    def forget_all_but(self, hosted: Collection[str]) -> None:
        """Drops the series of each topic of which this broker no longer has a replica."""
        for topic in [topic for topic in self if topic not in hosted]:
            stats, gone = self.pop(topic), self._gone
            for name in TopicStats.__slots__:
                setattr(gone, name, getattr(gone, name) + getattr(stats, name))

    def families(self) -> Iterable[Family]:
        for name, suffix, help_ in BY_TOPIC:
            values = [(topic, getattr(stats, name)) for topic, stats in sorted(self.items())]
            total = getattr(self._gone, name) + sum(value for _, value in values)
            samples = [Sample("", (), total)]
            samples += [Sample("", labels(topic=topic), value) for topic, value in values]
            yield Family(PREFIX + suffix, "counter", help_, samples)
        for name, suffix, help_ in FOR_ALL:
            samples = [Sample("", (), getattr(self, name))]
            yield Family(PREFIX + suffix, "counter", help_, samples)
