"""A client that hides nothing: one attempt a call, so that a workload knows each outcome.

It uses `kafka.client.connection`, keeps the last metadata, and turns every error into a name:
Kafka's, or "TIMEOUT" / "CONNECTION" where the outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from uuid import UUID

import trio

from highwater.kafka.client.connection import ClientConnection, Pending, RequestTimedOut
from highwater.kafka.client.produce_codec import parse_produce_response, produce_request
from highwater.kafka.client.producer import PRODUCE, PRODUCE_VERSION
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire import messages
from highwater.kafka.wire.codec import BadMessage, decode_response, encode_request
from highwater.kafka.wire.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    build_fetch,
    parse_fetch_answer,
)
from highwater.kafka.wire.header import api_name
from highwater.kafka.wire.messages import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
)
from highwater.kafka.wire.records import records_of
from highwater.simulation.rules.answers import Question
from highwater.simulation.rules.mirror import parse
from highwater.world.sim import SimWorld

if TYPE_CHECKING:
    from highwater.simulation.rules.answers import Answers
    from highwater.simulation.wire_tap import Sent as ControlRequest
    from highwater.world.api import Buffer

TIMEOUT_S = 3.0
STAMP_MS = 1_700_000_000_000
"""The time of every record that is sent by these clients."""
FETCH, FETCH_VERSION = 1, 11
LAST_WITH_NAMES, FIRST_WITH_LEADERS = 12, 16
LATEST = -1
UNKNOWN_OUTCOME = frozenset({"TIMEOUT", "CONNECTION", "REQUEST_TIMED_OUT", "UNKNOWN_SERVER_ERROR"})
"""Errors of calls that may have had an effect, or may still have one."""


async def _never_sent() -> int:
    raise Failed("CONNECTION", "it was not sent")


class Failed(Exception):
    """A call that did not succeed; `name` is Kafka's name of the error, or TIMEOUT, CONNECTION."""

    def __init__(self, name: str, detail: str = "") -> None:
        super().__init__(f"{name} {detail}".strip())
        self.name = name


class Polled(NamedTuple):
    """One fetch of one partition."""

    hw: int
    log_start: int
    next_offset: int
    records: list[tuple[int, int, bytes]]
    """(offset, leader epoch, value)"""


def _produced(answer: memoryview, tp: TopicPartition) -> int:
    """The base offset in a Produce answer; its topic has its producers' times, so a time is that
    of a batch that was there already."""
    code, offset, append_time = parse_produce_response(answer)[tp]
    check_code(code)
    if append_time not in (-1, STAMP_MS):
        raise BadMessage(f"a Produce answer has the log append time {append_time}")
    return offset


def check_code(code: int) -> None:
    """Raises Failed for the code of an error."""
    if code:
        raise Failed(ErrorCode(code).name)


class SimClient:
    """One client process.  `answers` compares what its brokers tell it."""

    timeout_s: ClassVar[float] = TIMEOUT_S

    def __init__(
        self,
        world: SimWorld,
        name: str,
        bootstrap: Sequence[tuple[str, int]],
        answers: Answers | None = None,
    ) -> None:
        self.name = name
        self._answers = answers
        self.random = world.random
        self._world = world
        self._bootstrap = list(bootstrap)
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        self._ids: dict[str, UUID | None] = {}
        self.read_by_id = 0
        """Answers of partitions whose topics were named by their ids."""
        self._connections: dict[tuple[str, int], ClientConnection] = {}
        self.controller = -1

    async def run(self, program: Callable[[], Awaitable[None]]) -> None:
        """Runs a program as this client's process; its failure is a fault of the harness."""
        process = self._world.process
        await process.run(program)
        if process.failure is not None:
            raise process.failure

    async def _connection(self, address: tuple[str, int]) -> ClientConnection:
        found = self._connections.get(address)
        if found is None or found.closed:
            found = await ClientConnection.open(
                self._world.network, *address, self.name, timeout_s=self.timeout_s
            )
            self._connections[address] = found
        return found

    async def _call(self, address: tuple[str, int], request: Any, version: int) -> Any:
        body = encode_request(request, version)
        answer = await self._call_raw(address, request.API_KEY, version, [body])
        assert answer is not None
        return decode_response(request.API_KEY, version, answer)

    async def _call_raw(
        self,
        address: tuple[str, int],
        api_key: int,
        version: int,
        body: Sequence[Buffer],
        *,
        expect: bool = True,
        keep: bool = False,
    ) -> memoryview | None:
        """The answer's body, or None where none is expected; `keep` the connection despite a
        time-out (the answer may still come, and is thrown away)."""
        began = self.now()
        try:
            connection = await self._connection(address)
            if expect:
                return await connection.call_raw(api_key, version, body, self.timeout_s)
            await connection.send_raw(api_key, version, body, self.timeout_s)
            return None
        except RequestTimedOut as error:
            if not keep and address in self._connections:
                self._connections[address].close()
            raise Failed("TIMEOUT", str(error)) from error
        except OSError as error:
            raise Failed("CONNECTION", str(error)) from error
        finally:
            if self._answers is not None and expect:
                waits = self._answers.book.lateness
                waits.called(api_key, api_name(api_key), self.name, began)

    def now(self) -> float:
        """The time in seconds; 0 if nobody compares this client's answers."""
        return self._answers.book.now() if self._answers is not None else 0.0

    async def refresh(self, topics: list[str]) -> None:
        """Gets Metadata from some broker."""
        address = self._world.random.choice(self._bootstrap)
        names = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        answer = await self._call(address, request, 12)
        # librdkafka then gives up all its brokers, and finds none again
        assert answer.brokers, f"{address} answers Metadata without a broker"
        self._brokers = {b.node_id: (b.host, b.port) for b in answer.brokers}
        self.controller = answer.controller_id
        for topic in answer.topics:
            self._ids[topic.name] = topic.topic_id
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                self._leaders[tp] = (partition.leader_id, partition.leader_epoch)

    async def _leader(self, tp: TopicPartition) -> tuple[tuple[str, int], int]:
        leader, epoch = self._leaders.get(tp, (-1, -1))
        if leader not in self._brokers:
            await self.refresh([tp.topic])
            leader, epoch = self._leaders.get(tp, (-1, -1))
        if leader not in self._brokers:
            raise Failed("LEADER_NOT_AVAILABLE")
        return self._brokers[leader], epoch

    def _question(self, address: tuple[str, int], *tps: TopicPartition) -> Question:
        """Begins a request that asks this broker for offsets of these partitions."""
        if self._answers is None:
            return Question()
        return self._answers.question(int(address[0].rpartition("-")[2]), tps)

    def known_term(self, tp: TopicPartition) -> tuple[int, int]:
        """The leader of the next request, and its epoch; -1 where metadata comes first."""
        leader, epoch = self._leaders.get(tp, (-1, -1))
        return (leader, epoch) if leader in self._brokers else (-1, -1)

    def known_leader(self, tp: TopicPartition) -> int:
        """The leader in the last metadata; -1 for none."""
        return self._leaders.get(tp, (-1, -1))[0]

    def believe(
        self, tp: TopicPartition, leader: int, host: str, port: int, epoch: int = -1
    ) -> None:
        """Sets the leader, as if metadata had named it."""
        self._brokers[leader] = (host, port)
        self._leaders[tp] = (leader, epoch)

    def forget(self, tp: TopicPartition) -> None:
        """Forgets the leader after an error, so that the next call asks again."""
        self._leaders.pop(tp, None)

    # -- data -----------------------------------------------------------------------------------

    async def produce(self, tp: TopicPartition, batch: bytes, acks: int) -> int:
        """Gives the base offset; for acks=0, -1 as soon as the batch is sent."""
        address, _ = await self._leader(tp)
        body, began = produce_request(acks, TIMEOUT_S / 2, [(tp, bytearray(batch))]), self.now()
        answer = await self._call_raw(address, PRODUCE, PRODUCE_VERSION, body, expect=acks != 0)
        if answer is None:
            return -1
        base = _produced(answer, tp)
        if acks == -1 and base >= 0 and self._answers is not None:
            self._answers.book.lateness.answered("a Produce", self.name, {tp: base}, began)
        return base

    async def begin_all(
        self, tp: TopicPartition, batches: Sequence[bytes]
    ) -> list[Callable[[], Awaitable[int]]]:
        """Sends batches (acks=all) one after the other without waiting; each function gives its
        answer.
        """
        address, _ = await self._leader(tp)
        answers: list[Callable[[], Awaitable[int]]] = []
        try:
            connection = await self._connection(address)
            for batch in batches:
                body = produce_request(-1, TIMEOUT_S / 2, [(tp, bytearray(batch))])
                pending = await connection.begin(PRODUCE, PRODUCE_VERSION, body, TIMEOUT_S)
                answers.append(partial(self._base_offset, tp, pending))
        except RequestTimedOut as error:
            if not answers:
                raise Failed("TIMEOUT", str(error)) from error
        except OSError as error:
            if not answers:
                raise Failed("CONNECTION", str(error)) from error
        return answers + [_never_sent] * (len(batches) - len(answers))

    async def _base_offset(self, tp: TopicPartition, pending: Pending) -> int:
        try:
            with trio.fail_after(TIMEOUT_S):
                body = await pending.wait()
        except trio.TooSlowError as error:
            pending.abandon()
            raise Failed("TIMEOUT") from error
        except OSError as error:
            raise Failed("CONNECTION", str(error)) from error
        return _produced(body, tp)

    async def fetch(self, tp: TopicPartition, offset: int, max_wait_ms: int = 300) -> Polled:
        address, epoch = await self._leader(tp)
        asked = FetchPartition(tp, epoch, offset, -1, -1, 1 << 16)
        request = FetchRequest(-1, max_wait_ms, 1, 1 << 20, 0, 0, -1, [asked], [], "")
        asking, question = build_fetch(request, FETCH_VERSION), self._question(address, tp)
        began = self.now()
        body = await self._call_raw(address, FETCH, FETCH_VERSION, [asking], keep=True)
        assert body is not None
        if self._answers is not None:
            self._answers.book.lateness.fetched(self.name, tp, offset, began, len(body))
        answer = parse_fetch_answer(body, FETCH_VERSION)
        check_code(answer.error)
        if not answer.partitions:
            raise Failed("THROTTLED")  # the quota for fetches is used up
        got = answer.partitions[0]
        check_code(got.error)
        question.fetched(got)
        if not got.size:
            return Polled(got.high_watermark, got.log_start_offset, offset, [])
        batches, _ = parse(bytes(got.records))
        next_offset = max([offset, *(batch.last + 1 for batch in batches)])
        epochs = {batch.base: batch.epoch for batch in batches}
        records, epoch = [], -1
        for record in records_of(got.records):
            epoch = epochs.get(record.offset, epoch)
            if record.offset >= offset:
                records.append((record.offset, epoch, record.value or b""))
        return Polled(got.high_watermark, got.log_start_offset, next_offset, records)

    async def fetch_decoded(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        version: int,
        isolation: int = 0,
        last_epoch: int = -1,
        max_wait_ms: int = 100,
    ) -> Any:
        """The partition's part of an answer of any version, as kafka-python decodes it; where v12
        would do, a topic with an id is named by it."""
        address, epoch = await self._leader(tp)
        topic_id = self._ids.get(tp.topic)
        if version >= LAST_WITH_NAMES and topic_id is not None:
            version = FIRST_WITH_LEADERS
        topic = messages.FetchRequest.FetchTopic
        partition = topic.FetchPartition(
            partition=tp.partition,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            log_start_offset=-1,
            partition_max_bytes=1 << 16,
        )
        request = messages.FetchRequest(
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=isolation,
            session_id=0,
            session_epoch=-1,
            topics=[topic(topic=tp.topic, topic_id=topic_id, partitions=[partition])],
            forgotten_topics_data=[],
            rack_id="",
        )
        question = self._question(address, tp)
        answer = await self._call(address, request, version)
        check_code(answer.error_code)
        got = answer.responses[0].partitions[0]
        check_code(got.error_code)
        self.read_by_id += version >= FIRST_WITH_LEADERS
        if got.diverging_epoch is None or got.diverging_epoch.epoch < 0:
            hw, lso = int(got.high_watermark), int(got.last_stable_offset)
            question.fetched(FetchedPartition(tp, 0, hw, lso, int(got.log_start_offset), b"", 0))
        return got

    async def list_offset_and_epoch(self, tp: TopicPartition, timestamp: int) -> tuple[int, int]:
        """Asks for an offset by timestamp; -1 is latest, -2 earliest."""
        address, epoch = await self._leader(tp)
        topic = ListOffsetsRequest.ListOffsetsTopic
        partition = topic.ListOffsetsPartition(
            partition_index=tp.partition, current_leader_epoch=epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[topic(name=tp.topic, partitions=[partition])],
        )
        question = self._question(address, tp)
        answer = await self._call(address, request, 5)
        result = answer.topics[0].partitions[0]
        check_code(result.error_code)
        (question.latest if timestamp == LATEST else question.earliest)(tp, int(result.offset))
        return int(result.offset), int(result.leader_epoch)

    async def list_offset(self, tp: TopicPartition, timestamp: int) -> int:
        return (await self.list_offset_and_epoch(tp, timestamp))[0]

    async def init_producer_id(self) -> tuple[int, int]:
        address = self._world.random.choice(self._bootstrap)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000)
        answer = await self._call(address, request, 1)
        check_code(answer.error_code)
        return int(answer.producer_id), int(answer.producer_epoch)

    async def delete_records(self, tp: TopicPartition, offset: int) -> int:
        """Deletes everything below the offset; gives the low watermark.  Where a live replica does
        not follow, it fails with REQUEST_TIMED_OUT, though the leader's log already begins
        there."""
        address, _ = await self._leader(tp)
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        partition = topic.DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[topic(name=tp.topic, partitions=[partition])], timeout_ms=1000
        )
        answer = await self._call(address, request, 1)
        result = answer.topics[0].partitions[0]
        check_code(result.error_code)
        return int(result.low_watermark)

    # -- administration -------------------------------------------------------------------------

    async def _controller(self) -> tuple[str, int]:
        await self.refresh([])
        if self.controller not in self._brokers:
            raise Failed("NOT_CONTROLLER")
        return self._brokers[self.controller]

    async def create_topic(
        self, name: str, partitions: int, replication: int, config: Mapping[str, str] | None = None
    ) -> None:
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication,
                    assignments=[],
                    configs=[
                        CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=k, value=v)
                        for k, v in (config or {}).items()
                    ],
                )
            ],
            timeout_ms=2000,
            validate_only=False,
        )
        answer = await self._call(await self._controller(), request, 4)
        check_code(answer.topics[0].error_code)

    async def create_assigned(
        self, name: str, assignments: list[Any], config: Mapping[str, str] | None = None
    ) -> None:
        """Makes a topic with the given replicas."""
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=assignments,
            configs=[
                CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=k, value=v)
                for k, v in (config or {}).items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=2000, validate_only=False)
        answer = await self._call(await self._controller(), request, 4)
        check_code(answer.topics[0].error_code)

    async def grow_topic(self, name: str, partitions: int, timeout_ms: int = 2000) -> None:
        topic = CreatePartitionsRequest.CreatePartitionsTopic(
            name=name, count=partitions, assignments=None
        )
        request = CreatePartitionsRequest(
            topics=[topic], timeout_ms=timeout_ms, validate_only=False
        )
        answer = await self._call(await self._controller(), request, 1)
        check_code(answer.results[0].error_code)

    async def alter_topic(self, address: tuple[str, int], name: str, key: str, value: str) -> None:
        """Sets one property of a topic at that broker."""
        kind = IncrementalAlterConfigsRequest.AlterConfigsResource
        config = kind.AlterableConfig(name=key, config_operation=0, value=value)
        resource = kind(resource_type=2, resource_name=name, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = await self._call(address, request, 0)
        check_code(answer.responses[0].error_code)

    async def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=2000)
        answer = await self._call(await self._controller(), request, 3)
        check_code(answer.responses[0].error_code)

    async def elect_preferred(self, tp: TopicPartition) -> None:
        topics = [ElectLeadersRequest.TopicPartitions(topic=tp.topic, partitions=[tp.partition])]
        request = ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout_ms=2000)
        await self._call(await self._controller(), request, 1)

    async def reassign(self, tp: TopicPartition, replicas: list[int] | None) -> None:
        """Asks for these replicas; None cancels."""
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic
        partition = topic.ReassignablePartition(partition_index=tp.partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=2000, topics=[topic(name=tp.topic, partitions=[partition])]
        )
        answer = await self._call(await self._controller(), request, 0)
        check_code(answer.error_code)
        check_code(answer.responses[0].partitions[0].error_code)

    async def describe_topic(self, address: tuple[str, int], topic: str) -> None:
        """Gets a topic's configuration, which the broker reads from ZooKeeper."""
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=2, resource_name=topic, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=False)
        await self._call(address, request, 1)

    def close(self) -> None:
        """Closes every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def control(self, host: str, port: int, sent: ControlRequest) -> int:
        """Sends a controller's request as it is; gives the error of its answer."""
        body = await self._call_raw((host, port), sent.api_key, sent.version, [sent.body])
        assert body is not None
        return int(decode_response(sent.api_key, sent.version, body).error_code)

    async def pause(self, least_s: float = 0.05, most_s: float = 0.3) -> None:
        await self.sleep(self._world.random.uniform(least_s, most_s))

    async def sleep(self, seconds: float) -> None:
        await self._world.process.kernel.timeline.sleep(seconds)
