"""A witness that uses the brokers' own answers, for clusters without a ZooKeeper in reach.

Theory of operation.  One task for each broker keeps a connection past every proxy.  It requests
Metadata twenty times a second, and DescribeQuorum (KIP-595) five times.  A broker that is cut off
or stands still goes on to answer with outdated knowledge.  So of two answers with the same leader
epoch, that of the *reporter* counts: the broker that has the most of the quorum's log, as the
quorum's leader says; or the controller itself, where ZooKeeper elects it.  An older leader epoch
never counts.  So this witness could not see an epoch fall: it leaves `controller_epochs` empty, and
R10 has nothing to check.

No answer says when a state was written.  A line of the log has the time of the last answer before
it, which may be too early and is never too late: so C13 may excuse too much, but never accuses
wrongly.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import trio

from highwater.cluster.faults.witness import PartitionState, Witness, WitnessError
from highwater.kafka.client.connection import ClientConnection
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire import messages
from highwater.kafka.wire.codec import BadMessage
from highwater.kafka.wire.header import APIS
from highwater.world.real.network import RealNetwork

POLL_S = 0.05
QUORUM_S = 0.2
OPEN_S = 10.0
"""The timeout for a new connection, which is slow where it needs TLS and a login; a dead broker
refuses it at once."""
ANSWER_S = 5.0
FRESH_S = 1.5
"""How long an answer of DescribeQuorum decides which broker is the reporter."""
START_S = 10.0
METADATA_VERSION = 7
_DESCRIBE_QUORUM = next(key for key, (name, _) in APIS.items() if name == "DescribeQuorum")
_QUORUM_TOPIC = "__cluster_metadata"


class AdminWitness(Witness):
    """`addresses`: each broker's own, past every proxy."""

    def __init__(self, addresses: Mapping[int, tuple[str, int]], log: Any = None) -> None:
        super().__init__(log)
        self._addresses = dict(addresses)
        self._topics: set[str] | None = set()
        """The topics to ask for; None: all."""
        self._reporter: int | None = None
        self._reporter_s = 0.0
        self._answered_s: dict[int, float] = {}
        self._confirmed_ns: dict[TopicPartition, int] = {}
        self._first = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)

    def start(self) -> None:
        self._thread.start()
        if not self._first.wait(START_S):
            self.close()
            told = ", ".join(f"{host}:{port}" for host, port in self._addresses.values())
            raise WitnessError(f"no broker answers the witness: {told}")

    def close(self) -> None:
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()

    def watch_topic(self, topic: str) -> None:
        if self._topics is not None:
            self._topics = self._topics | {topic}  # another thread reads it

    def watch_all_topics(self) -> None:
        self._topics = None

    # --- what its thread does

    def _run(self) -> None:
        trio.run(self._watch)

    async def _watch(self) -> None:
        async with trio.open_nursery() as nursery:
            for number, address in self._addresses.items():
                nursery.start_soon(self._keep_asking, number, address)
            while not self._ending.is_set():
                await trio.sleep(POLL_S)
            nursery.cancel_scope.cancel()

    async def _keep_asking(self, number: int, address: tuple[str, int]) -> None:
        while True:
            connection = None
            try:
                connection = await ClientConnection.open(
                    RealNetwork(), *address, "highwater-witness", timeout_s=OPEN_S
                )
                await self._ask(number, connection)
            except (OSError, BadMessage, trio.BrokenResourceError):
                await trio.sleep(2 * POLL_S)  # the broker is down, or stands still
            finally:
                if connection is not None:
                    connection.close()

    async def _ask(self, number: int, connection: ClientConnection) -> None:
        known = await connection.call(messages.ApiVersionsRequest(), 0, ANSWER_S)
        has_quorum = any(api.api_key == _DESCRIBE_QUORUM for api in known.api_keys)
        quorum_s = 0.0
        while True:
            if has_quorum and trio.current_time() - quorum_s > QUORUM_S:
                quorum_s = trio.current_time()
                self.take_quorum(await connection.call(_quorum_request(), 0, ANSWER_S))
            topics = self._topics
            answer = await connection.call(_metadata_request(topics), METADATA_VERSION, ANSWER_S)
            self.take_metadata(number, answer, has_quorum, everything=topics is None)
            self._first.set()
            await trio.sleep(POLL_S)

    # --- what it makes of the answers

    def take_quorum(self, answer: Any) -> None:
        """Takes the quorum's leader from an answer, and the broker that has the most of its log."""
        found = [p for topic in answer.topics for p in topic.partitions]
        if answer.error_code or not found or found[0].error_code or found[0].leader_id < 0:
            return
        quorum = found[0]
        with self._lock:
            if quorum.leader_epoch < self.controller_epoch:
                return  # it comes from a leader that has been replaced and does not know it
            ends = {
                r.replica_id: (r.log_end_offset, r.replica_id == quorum.leader_id)
                for r in [*quorum.current_voters, *quorum.observers]
                if r.replica_id in self._addresses
            }
            if ends:
                self._reporter = max(sorted(ends), key=lambda n: ends[n])
                self._reporter_s = time.monotonic()
            moves = quorum.leader_epoch - self.controller_epoch if self.controller_epoch else 0
            self._controller(quorum.leader_id, quorum.leader_epoch, moves)

    def _controller(self, controller: int, epoch: int, moves: int) -> None:
        if (controller, epoch) == (self.controller, self.controller_epoch):
            return
        self.seen["controller_moves"] += moves
        self.controller, self.controller_epoch = controller, epoch
        self._write("controller", controller=controller, epoch=epoch)

    def take_metadata(
        self, number: int, answer: Any, has_quorum: bool, *, everything: bool = False
    ) -> None:
        """Takes the leaders and ISRs from the answer of broker `number`."""
        with self._lock:
            self._answered_s[number] = time.monotonic()
            if not has_quorum and answer.controller_id == number:
                # with ZooKeeper the controller is the broker that names itself; no answer has its
                # epoch, so its moves are counted
                moved = self.controller not in (None, number)
                self._controller(number, self.controller_epoch + moved, int(moved))
                self._reporter, self._reporter_s = number, time.monotonic()
            reports = self._reports(number)
            if reports:
                brokers = frozenset(b.node_id for b in answer.brokers)
                if brokers != self.brokers:
                    self.brokers = brokers
                    self._write("broker", brokers=sorted(brokers))
            for topic in answer.topics:
                for partition in topic.partitions if not topic.error_code else ():
                    self._take(topic.name, partition, reports)
            if reports:
                self._forget(answer, everything)

    def _reports(self, number: int) -> bool:
        """Whether this broker's answers count: it is the reporter, or no reporter answers."""
        now = time.monotonic()
        if self._reporter is None or now - self._reporter_s > FRESH_S:
            return True
        silent = now - self._answered_s.get(self._reporter, 0.0) > FRESH_S
        return number == self._reporter or silent

    def _take(self, topic: str, partition: Any, reports: bool) -> None:
        tp = TopicPartition(topic, partition.partition_index)
        epoch = partition.leader_epoch
        isr = tuple(partition.isr_nodes)
        old = self.partitions.get(tp)
        new = PartitionState(partition.leader_id, epoch, isr, self.controller_epoch)
        if old is not None:
            if epoch < old.leader_epoch or (epoch == old.leader_epoch and not reports):
                return
            same = (old.leader, old.leader_epoch, old.isr) == (new.leader, epoch, isr)
            if same:
                self._confirmed_ns[tp] = time.monotonic_ns()
                return
        self.replicas[tp] = tuple(partition.replica_nodes)
        before = self._confirmed_ns.get(tp, time.monotonic_ns())
        self._confirmed_ns[tp] = time.monotonic_ns()
        self._note(tp, new, written_ns=before)

    def _forget(self, answer: Any, everything: bool) -> None:
        """Forgets deleted topics."""
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        gone = {t.name for t in answer.topics if t.error_code == unknown}
        if everything:
            gone = {tp.topic for tp in self.replicas} - {t.name for t in answer.topics} | gone
        for tp in [tp for tp in self.replicas if tp.topic in gone]:
            for known in (self.replicas, self.partitions, self._confirmed_ns):
                known.pop(tp, None)


def _metadata_request(topics: set[str] | None) -> Any:
    named = None
    if topics is not None:
        named = [messages.MetadataRequest.MetadataRequestTopic(name=t) for t in sorted(topics)]
    return messages.MetadataRequest(
        topics=named,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def _quorum_request() -> Any:
    topic = messages.DescribeQuorumRequest.TopicData
    partition = topic.PartitionData(partition_index=0)
    return messages.DescribeQuorumRequest(
        topics=[topic(topic_name=_QUORUM_TOPIC, partitions=[partition])]
    )
