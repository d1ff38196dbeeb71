"""This broker's copy of the cluster's metadata: live brokers, and each partition's leader, ISR and
replicas.

The controller is the only source: it sends UpdateMetadata to every broker, incrementally, so this
copy lags a little, as it does on every broker.  Nothing is decided here; a leader learns that it
leads from LeaderAndIsr, never from the cache.

Metadata requests are frequent and their answers large, so answers are kept as bytes, on two levels.
Each topic's part (for one version and listener) is dropped when UpdateMetadata names that topic, or
when the set of live brokers changes, because that changes which leaders count as available.  A
whole answer is dropped at any change.  So a change of one partition among thousands costs one
topic's encoding and a join of bytes, but never a copy of the whole state.

A broker that goes is named in answers for two seconds more, as Kafka's brokers name a dead broker
until its session ends.  Here suspicion moves its leaders at once, so a client would learn from one
answer that its partition has moved and that its broker is gone.  librdkafka would then give the
partition to the new leader, take it back with the old one, and find it again a second later.

The cache learns of a leader's death when the fetcher's connection breaks, some ten milliseconds
before the controller names another leader.  A client sees it at the same moment, and asks at once.
If the answer named the old leader, the client would try that one again, and ask next after a
back-off (librdkafka: up to a second).  So such a leader is *in doubt* for half a second at most,
and Metadata waits for the news.  A broker is doubted only once in ten seconds, because the
connection to a broker that stays may break repeatedly; but a broker that was gone and is back may
be doubted at once.  Metadata waits in the same way between LeaderAndIsr, by which this broker may
cease to lead, and UpdateMetadata.

A broker that has just started knows nothing until the controller's first UpdateMetadata.  Metadata
waits for that too, five seconds at most: librdkafka thinks that a topic is deleted if it is not
named.  If an answer names no broker, librdkafka drops all that it had and can ask none, so an
answer names this broker if the controller has named none.

Source: kafka.server.metadata.ZkMetadataCache.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping

from highwater.broker.metadata.metadata_encoding import (
    NOT_ASKED,
    Encoded,
    EncodedTopics,
    encode_answer,
)
from highwater.broker.metadata.metadata_update import STEP, MetadataUpdate
from highwater.broker.metadata.partition_metadata import PartitionMetadata
from highwater.kafka.features import NO_EPOCH, TOPIC_IDS, Levels
from highwater.kafka.topic_ids import NO_ID
from highwater.kafka.types import NO_BROKER, BrokerId, BrokerInfo, Endpoint, TopicPartition

_MAX_ANSWERS = 256
_NOTHING: Mapping[int, PartitionMetadata] = {}
_NOBODY: Mapping[int, tuple[int, int]] = {}
LATEST = 1 << 31
GONE_NAMED_MS = 2000
DOUBT_MS = 500
DOUBT_AGAIN_MS = 10_000
FIRST_NEWS_MS = 5000
FIRST_NEWS = ""
"""The key, which no topic has, for requests that wait for the first UpdateMetadata."""


class MetadataCache:
    """One broker's copy of the cluster's metadata."""

    def __init__(self, broker_id: BrokerId, cluster_id: str | None = None) -> None:
        self.broker_id = broker_id
        self.cluster_id = cluster_id
        self.controller_id: BrokerId = NO_BROKER
        self.generation = 0
        """Grows with each change."""
        self.local: BrokerInfo | None = None
        """This broker, for answers given before the controller has named any."""
        self.told = False
        """Whether an UpdateMetadata was completely applied."""
        self._brokers: dict[BrokerId, BrokerInfo] = {}
        self._topics: dict[str, dict[int, PartitionMetadata]] = {}
        self._ids: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}
        """The names of topics by their ids."""
        self._gone_ids: list[bytes] = []
        self.features: Levels = ()
        """The features in use, as the controller last named them."""
        self.features_epoch = NO_EPOCH
        self.has_ids = False
        """Whether topic ids are in use; if not, topics have none, even if some are known."""
        self._partitions = 0
        self._gone: dict[BrokerId, tuple[BrokerInfo, int]] = {}
        """The brokers that are named a little longer, and until when."""
        self._doubts: dict[int, int] = {}
        """By broker, since when it has been in doubt."""
        self._expected: dict[str, dict[int, tuple[int, int]]] = {}
        """By topic and partition, the leader epoch that is expected, and since when."""
        self._encoded: dict[tuple[int, str], EncodedTopics] = {}
        self._answers: dict[tuple[object, ...], Encoded] = {}

    # ---- reading

    def brokers(self) -> Mapping[BrokerId, BrokerInfo]:
        """The live brokers; their `epoch` is unknown here."""
        return self._brokers

    def named(self) -> Iterable[BrokerInfo]:
        """The brokers that an answer names (see the module's docstring)."""
        if not self._brokers:
            return () if self.local is None else (self.local,)
        return (*self._brokers.values(), *(info for info, _ in self._gone.values()))

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self._brokers

    def topics(self) -> Iterable[str]:
        return self._topics

    def topic_id(self, topic: str) -> bytes:
        """The topic's id; NO_ID if the topic is not known, or while ids are not in use."""
        return self._ids.get(topic, NO_ID) if self.has_ids else NO_ID

    def topic_of(self, topic_id: bytes) -> str | None:
        """The name of the topic that has this id now."""
        return self._names.get(topic_id) if self.has_ids else None

    def has_topic(self, topic: str) -> bool:
        return topic in self._topics

    def partitions_of(self, topic: str) -> Mapping[int, PartitionMetadata]:
        """The topic's partitions by their ids; empty if the topic is not known."""
        return self._topics.get(topic, _NOTHING)

    def partition(self, tp: TopicPartition) -> PartitionMetadata | None:
        return self._topics.get(tp.topic, _NOTHING).get(tp.partition)

    def leader_of(self, tp: TopicPartition) -> BrokerId:
        """The partition's leader; NO_BROKER without one, or if the partition is not known."""
        found = self.partition(tp)
        return NO_BROKER if found is None else found.leader

    def endpoint_of(self, broker_id: int, listener: str) -> Endpoint | None:
        """The address of a live broker's listener; None without one."""
        broker = self._brokers.get(BrokerId(broker_id))
        return None if broker is None else broker.endpoint(listener)

    def all_partitions(self) -> Iterator[tuple[TopicPartition, PartitionMetadata]]:
        for topic, partitions in self._topics.items():
            for index, state in partitions.items():
                yield TopicPartition(topic, index), state

    def __len__(self) -> int:
        """The number of known partitions."""
        return self._partitions

    # ---- doubt

    def doubt(self, broker_id: int, now_ms: int) -> None:
        """Notes that the connection to a broker broke: news of its leaders will follow."""
        since = self._doubts.get(broker_id)
        if since is None or now_ms - since >= DOUBT_AGAIN_MS:
            self._doubts[broker_id] = now_ms

    def expect(self, tp: TopicPartition, leader_epoch: int, now_ms: int) -> None:
        """Notes that LeaderAndIsr has named a leader: UpdateMetadata will follow at once."""
        known = self.partition(tp)
        if known is not None and known.leader_epoch < leader_epoch:
            self._expected.setdefault(tp.topic, {})[tp.partition] = leader_epoch, now_ms

    def doubted(self, topics: Iterable[str] | None, now_ms: int) -> list[str]:
        """Those of these topics (None: of all topics) that have a leader in doubt which still
        counts as live, or a leader that is known to have changed.
        """
        brokers = {
            b for b, since in self._doubts.items() if now_ms - since < DOUBT_MS and self.is_alive(b)
        }
        if not brokers and not self._expected:
            return []
        return [
            topic
            for topic in (self._topics if topics is None else topics)
            if self._is_expected(topic, now_ms)
            or any(state.leader in brokers for state in self.partitions_of(topic).values())
        ]

    def _is_expected(self, topic: str, now_ms: int) -> bool:
        waited_for = self._expected.get(topic, _NOBODY)
        return any(now_ms - since < DOUBT_MS for _, since in waited_for.values())

    def _has_come(self, topic: str, index: int, leader_epoch: int) -> None:
        waited_for = self._expected[topic]
        if index in waited_for and leader_epoch >= waited_for[index][0]:
            del waited_for[index]
            if not waited_for:
                del self._expected[topic]

    # ---- the controller's updates

    def apply(
        self, update: MetadataUpdate, now_ms: int | None
    ) -> Generator[None, None, list[TopicPartition]]:
        """Applies an UpdateMetadata whose epochs were checked; returns the partitions it deleted.

        It pauses after STEP partitions or one topic: to apply the state of the whole cluster takes
        as long as many requests, which are served meanwhile.  Brokers that the update leaves out
        are named until `now_ms` + GONE_NAMED_MS (None: not any more).
        """
        self.generation += 1
        self._answers.clear()
        self.controller_id = update.controller_id
        brokers = update.brokers
        if brokers != self._brokers:
            returned = brokers.keys() - self._brokers.keys()
            for broker_id in returned & self._doubts.keys():
                del self._doubts[broker_id]  # its next death is a new one
            if now_ms is not None:
                until = now_ms + GONE_NAMED_MS
                gone = {b: (info, until) for b, info in self._brokers.items() if b not in brokers}
                self._gone = {b: g for b, g in self._gone.items() if b not in brokers} | gone
            self._brokers = dict(sorted(brokers.items()))
            self._encoded.clear()
        self.features_epoch = update.features_epoch
        if update.features != self.features:
            self.features = update.features
            self.has_ids = TOPIC_IDS in dict(update.features)
            self._encoded.clear()
        deleted: dict[TopicPartition, None] = {}
        applied = 0
        for topic, changes in update.topics.items():
            if applied + len(changes) > STEP and applied:
                yield
                applied = 0
            applied += len(changes)
            topic_id = update.topic_ids.get(topic)
            if topic_id is not None or any(changes.values()):
                self._set_id(topic, topic_id)
            self._apply_topic(topic, changes, deleted)
        if update.all_topics is not None:
            for topic in [t for t in self._topics if t not in update.all_topics]:
                # deleted while this broker had no session, so that nobody waited for the broker
                self._apply_topic(topic, dict.fromkeys(self._topics[topic]), deleted)
        self.told = True
        return list(deleted)

    def take_gone_ids(self) -> list[bytes]:
        """The ids of topics that were deleted since the last call."""
        taken, self._gone_ids = self._gone_ids, []
        return taken

    def _set_id(self, topic: str, topic_id: bytes | None) -> None:
        before = self._ids.get(topic)
        if before == topic_id:
            return
        if before is not None:
            if topic_id is not None or topic not in self._topics:
                self._gone_ids.append(before)
            del self._ids[topic]
            if self._names.get(before) == topic:
                del self._names[before]
        if topic_id is not None:
            self._ids[topic] = topic_id
            self._names[topic_id] = topic

    def _apply_topic(
        self,
        topic: str,
        changes: Mapping[int, PartitionMetadata | None],
        deleted: dict[TopicPartition, None],
    ) -> None:
        """Applies a topic in one step: clients think that partitions not in an answer are gone."""
        partitions = self._topics.setdefault(topic, {})
        before = len(partitions)
        for index, state in changes.items():
            tp = TopicPartition(topic, index)
            if topic in self._expected:
                self._has_come(topic, index, LATEST if state is None else state.leader_epoch)
            if state is None:
                partitions.pop(index, None)
                deleted[tp] = None
            else:
                deleted.pop(tp, None)
                partitions[index] = state
        self._partitions += len(partitions) - before
        if not partitions:
            del self._topics[topic]
            self._set_id(topic, None)
        for encoded in self._encoded.values():
            encoded.forget(topic)
        self._answers.clear()

    # ---- answers

    def answer(
        self,
        version: int,
        listener: str,
        topics: tuple[str, ...] | None,
        *,
        topic_operations: int = NOT_ASKED,
        cluster_operations: int = NOT_ASKED,
        now_ms: int = 0,
    ) -> Encoded:
        """The body of a Metadata answer, and its errors; for all topics if `topics` is None.

        Unknown names get their error in the answer; a caller that wants the topics to exist creates
        them first.
        """
        if self._gone and any(until <= now_ms for _, until in self._gone.values()):
            self._gone = {b: g for b, g in self._gone.items() if g[1] > now_ms}
            self._answers.clear()
        key = (version, listener, topics, topic_operations, cluster_operations)
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= _MAX_ANSWERS:
                self._answers.clear()
            answer = encode_answer(
                version,
                self.named(),
                listener,
                self.cluster_id,
                self.controller_id,
                self._topic_parts(version, listener, topics, topic_operations),
                cluster_operations,
            )
            self._answers[key] = answer
        return answer

    def _topic_parts(
        self, version: int, listener: str, topics: tuple[str, ...] | None, operations: int
    ) -> list[Encoded]:
        encoded = self._encoded.get((version, listener))
        if encoded is None:
            encoded = EncodedTopics(version, listener, self.topic_id)
            self._encoded[version, listener] = encoded
        asked: Iterable[str] = self._topics if topics is None else topics
        return [
            encoded.part(topic, self._topics.get(topic), self._brokers, operations)
            for topic in asked
        ]
