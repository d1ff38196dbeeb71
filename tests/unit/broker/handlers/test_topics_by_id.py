"""Requests that name topics by their ids, and answers that have them."""

from __future__ import annotations

import inspect
from typing import Any
from uuid import UUID

import pytest

from highwater.broker.context import Delayed
from highwater.broker.handlers import (
    api_versions,
    create_topics,
    delete_topics,
    describe_topic_partitions,
    fetch,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)
from highwater.broker.log import metadata_file
from highwater.broker.replica import log_topic_ids
from highwater.broker.replica.partition import LeaderAndIsr
from highwater.broker.replica.partition_states import LeaderAndIsrUpdate
from highwater.broker.request.response import FileSlice, Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.features import TRANSACTION_VERSION
from highwater.kafka.security.acls import Acls, Entry, Operation, Permission, Resource, ResourceType
from highwater.kafka.topic_ids import made_of, unknown_name
from highwater.kafka.types import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition, ZkVersion
from highwater.kafka.wire.codec import decode_response, encode_request
from highwater.kafka.wire.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
    FetchRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
)
from highwater.kafka.wire.records import Record, build_batch
from tests.unit.broker.handlers.conftest import in_broker
from tests.unit.broker.handlers.test_groups import Node, in_node

FIRST, SECOND, NEVER = (UUID(bytes=made_of("c", "t", number)) for number in (1, 2, 3))
TP = TopicPartition("t", 0)
FETCH_VERSIONS = range(13, 18)


def state(leader: int, epoch: int, *, is_new: bool = False) -> LeaderAndIsr:
    return LeaderAndIsr(
        BrokerId(leader), LeaderEpoch(epoch), ControllerEpoch(1), (1,), ZkVersion(epoch), (1, 2),
        is_new,
    )  # fmt: skip


async def told(b: Any, topic_id: UUID | None, epoch: int, leader: int = 1) -> ErrorCode:
    """LeaderAndIsr for the one partition."""
    ids = {} if topic_id is None else {"t": topic_id.bytes}
    update = LeaderAndIsrUpdate([(TP, state(leader, epoch, is_new=True))], {}, ids)
    errors = await b.services.replicas.leader_and_isr(update, lambda: None)
    return ErrorCode(errors[TP])


async def led(b: Any) -> None:
    await b.services.logs.load("the-cluster", 1)
    await b.update_metadata({"t": {0: 1}}, ids={"t": FIRST})
    assert await told(b, FIRST, 0) is ErrorCode.NONE


async def made_anew(b: Any) -> None:
    """The topic is deleted, and another one gets its name."""
    await b.update_metadata({"t": {0: -2}}, ids={})
    await b.update_metadata({"t": {0: 1}}, ids={"t": SECOND})


# ---- logs


@in_broker()
async def test_a_log_keeps_the_id_that_it_was_told_first(b: Any) -> None:
    await led(b)
    replica_log = b.services.logs.get(TP)
    assert replica_log.topic_id == FIRST.bytes
    assert metadata_file.read(replica_log.disk, replica_log.dir) == FIRST.bytes
    assert await told(b, SECOND, 1) is ErrorCode.INCONSISTENT_TOPIC_ID
    assert b.services.replicas.partition(TP).leader_epoch == 0, "it takes no part"
    assert await told(b, None, 1) is ErrorCode.NONE, "a controller that knows no ids"
    assert replica_log.topic_id == FIRST.bytes


@in_broker()
async def test_a_log_from_before_takes_an_id_though_its_epoch_is_not_new(b: Any) -> None:
    await b.services.logs.load("the-cluster", 1)
    assert await told(b, None, 3) is ErrorCode.NONE
    replica_log = b.services.logs.get(TP)
    assert replica_log.topic_id is None
    assert await told(b, FIRST, 3) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert replica_log.topic_id == FIRST.bytes


@in_broker()
async def test_the_answer_names_ids_that_the_controller_does_not(b: Any) -> None:
    await led(b)
    logs = b.services.logs

    def named(ids: dict[str, bytes]) -> dict[str, bytes]:
        return log_topic_ids.unnamed(logs, LeaderAndIsrUpdate([(TP, state(1, 1))], {}, ids))

    assert named({}) == {"t": FIRST.bytes}
    assert named({"t": SECOND.bytes}) == {"t": FIRST.bytes}
    assert named({"t": FIRST.bytes}) == {}


@pytest.mark.parametrize(
    "content", [b"", b"version: 1\ntopic_id: x", b"version: 0\ntopic_id: abc", b"\xff\n\xff"]
)
@in_broker()
async def test_a_damaged_file_counts_as_none(b: Any, content: bytes) -> None:
    await led(b)
    disk, folder = b.services.world.disk, b.services.logs.get(TP).dir
    disk.replace(f"{folder}/{metadata_file.NAME}", content)
    assert metadata_file.read(disk, folder) is None


# ---- metadata


@in_broker()
async def test_metadata_has_ids_while_they_are_in_use(b: Any) -> None:
    await led(b)
    topic = MetadataRequest.MetadataRequestTopic
    by_name = MetadataRequest(topics=[topic(name="t")])
    by_id = MetadataRequest(topics=[topic(name=None, topic_id=i) for i in (FIRST, NEVER)])
    for version in (10, 11, 12, 13):
        found = await b.ask(metadata, version, by_name)
        assert [(t.name, t.topic_id) for t in found.topics] == [("t", FIRST)]
    for version in (12, 13):
        found = await b.ask(metadata, version, by_id)
        answered = [(t.name, t.topic_id, t.error_code, len(t.partitions)) for t in found.topics]
        unknown = (None, NEVER, ErrorCode.UNKNOWN_TOPIC_ID, 0)
        assert sorted(answered, key=str) == sorted([("t", FIRST, 0, 1), unknown], key=str)
    await b.update_metadata({})
    found = await b.ask(metadata, 12, by_name)
    assert [(t.name, t.topic_id) for t in found.topics] == [("t", None)], "out of use"
    found = await b.ask(metadata, 12, by_id)
    assert {t.error_code for t in found.topics} == {ErrorCode.UNKNOWN_TOPIC_ID}


@in_broker()
async def test_versions_are_offered_while_their_features_are_in_use(b: Any) -> None:
    async def offered() -> list[int]:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        found = await b.ask(api_versions, 3, request)
        most = {k.api_key: k.max_version for k in found.api_keys}
        return [most[key] for key in (0, 1, 8, 9)]

    assert await offered() == [11, 12, 9, 9]
    await b.update_metadata({}, ids={})
    assert await offered() == [13, 17, 10, 10]
    await b.update_metadata({}, features={TRANSACTION_VERSION: 1})
    assert await offered() == [12, 12, 9, 9]


@in_broker()
async def test_a_created_topic_is_answered_with_its_id(b: Any) -> None:
    await b.update_metadata({"t": {0: 1}}, ids={"t": FIRST})
    topic = CreateTopicsRequest.CreatableTopic(
        name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=True)
    found = await b.ask(create_topics, 7, request)
    assert [(t.error_code, t.topic_id) for t in found.topics] == [(0, None)], "only validated"
    await b.update_metadata({"new": {0: 1}}, ids={"new": SECOND})
    assert create_topics._id_of(b.context(create_topics, 7), "new") == SECOND


@in_broker()
async def test_topics_are_described_a_part_at_a_time(b: Any) -> None:
    topics = {"a": {0: 1, 1: 2, 2: 3}, "b": {0: 1, 1: 9}, "c": {0: 2}}
    await b.update_metadata(topics, ids={"a": FIRST, "b": SECOND})
    cls = DescribeTopicPartitionsRequest

    async def asked(*names: str, limit: int = 2000, cursor: Any = None) -> Any:
        request = cls(
            topics=[cls.TopicRequest(name=n) for n in names],
            response_partition_limit=limit,
            cursor=None if cursor is None else cls.Cursor(
                topic_name=cursor[0], partition_index=cursor[1]
            ),
        )  # fmt: skip
        found = await b.ask(describe_topic_partitions, 0, request)
        after = found.next_cursor
        shown = [(t.name, [p.partition_index for p in t.partitions]) for t in found.topics]
        return shown, None if after is None else (after.topic_name, after.partition_index)

    assert await asked() == ([("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0])], None)
    assert await asked(limit=2) == ([("a", [0, 1])], ("a", 2))
    assert await asked(limit=2, cursor=("a", 2)) == ([("a", [2]), ("b", [0])], ("b", 1))
    assert await asked(limit=2, cursor=("b", 1)) == ([("b", [1]), ("c", [0])], None)
    assert await asked(limit=3) == ([("a", [0, 1, 2])], ("b", 0))
    assert await asked("c", "a", limit=0) == ([("a", [0])], ("a", 1))
    assert await asked(cursor=("bb", 5)) == ([("c", [0])], None)
    assert await asked("c", cursor=("b", 0)) == ([("c", [])], None), "INVALID_REQUEST"
    request = cls(topics=[cls.TopicRequest(name=n) for n in ("b", "no", "?")], cursor=None)
    found = (await b.ask(describe_topic_partitions, 0, request)).topics
    assert [(t.name, ErrorCode(t.error_code).name, t.topic_id) for t in found] == [
        ("?", "INVALID_TOPIC_EXCEPTION", None),
        ("b", "NONE", SECOND),
        ("no", "UNKNOWN_TOPIC_OR_PARTITION", None),
    ]
    first, second = found[1].partitions
    assert (first.leader_id, first.replica_nodes, first.eligible_leader_replicas) == (
        1, [1, 2, 3], [],
    )  # fmt: skip
    assert (second.leader_id, second.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    refused = cls(topics=[], cursor=cls.Cursor(topic_name="a", partition_index=-1))
    assert (await b.ask(describe_topic_partitions, 0, refused)).topics == []


def allow(b: Any, *operations: Operation) -> None:
    """Bob may do these on the topic, and nothing else."""
    b.principal = "User:bob"
    acls = b.services.authorizer = Acls([], open_without_rules=False)
    entries = [
        Entry(operation=o, host="*", permission=Permission.ALLOW, principal="User:bob")
        for o in operations
    ]
    acls.put(Resource(ResourceType.TOPIC, "t"), entries)


@in_broker()
async def test_who_may_not_describe_a_topic_is_not_told_its_name(b: Any) -> None:
    await led(b)
    allow(b)
    topic = MetadataRequest.MetadataRequestTopic
    request = MetadataRequest(topics=[topic(name=None, topic_id=FIRST)])
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    found = (await b.ask(metadata, 12, request)).topics
    assert [(t.name, t.topic_id, t.error_code) for t in found] == [(None, FIRST, denied)]

    async def deleted() -> list[Any]:
        named = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=FIRST)
        request = DeleteTopicsRequest(topics=[named], timeout_ms=0)
        found = await b.ask(delete_topics, 6, request)
        return [(t.name, t.topic_id, t.error_code) for t in found.responses]

    assert await deleted() == [(None, FIRST, denied)]
    allow(b, Operation.DESCRIBE)
    assert await deleted() == [("t", FIRST, denied)]
    everything = DescribeTopicPartitionsRequest(topics=[], cursor=None)
    assert len((await b.ask(describe_topic_partitions, 0, everything)).topics) == 1
    allow(b)
    assert (await b.ask(describe_topic_partitions, 0, everything)).topics == []


@in_broker()
async def test_a_topic_is_deleted_by_its_id(b: Any) -> None:
    from highwater.broker.admin import topic_znodes
    from highwater.kafka import znodes

    await topic_znodes.write(b.zk, "t", {0: (1,)}, {})
    await b.update_metadata({"t": {0: 1}}, ids={"t": FIRST})
    names = [DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=i) for i in (FIRST, NEVER)]
    found = await b.ask(delete_topics, 6, DeleteTopicsRequest(topics=names, timeout_ms=0))
    assert [(t.name, t.topic_id, t.error_code) for t in found.responses] == [
        ("t", FIRST, ErrorCode.REQUEST_TIMED_OUT),
        (None, NEVER, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert await b.zk.exists(znodes.delete_topic_path("t")) is not None


# ---- records


def produced(b: Any, version: int, *ids: UUID) -> list[tuple[UUID, str]]:
    topic = ProduceRequest.TopicProduceData
    data = [
        topic(topic_id=i, partition_data=[topic.PartitionProduceData(index=0, records=records())])
        for i in ids
    ]
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=data)
    body = memoryview(bytearray(encode_request(request, version)))
    reply = produce.handle(b.context(produce, version), body)
    answer = decoded(0, version, reply)
    return [
        (t.topic_id, ErrorCode(t.partition_responses[0].error_code).name) for t in answer.responses
    ]


def records() -> bytes:
    return bytes(build_batch([Record(b"k", b"v", 1, ())]))


def decoded(key: int, version: int, reply: Any) -> Any:
    assert isinstance(reply, Response)
    assert reply.parts is not None
    body = b"".join(
        part.file.read_to_send(part.position, part.size) if isinstance(part, FileSlice) else part
        for part in reply.parts
    )
    return decode_response(key, version, body)


@in_broker()
async def test_records_go_to_the_topic_of_the_id(b: Any) -> None:
    await led(b)
    assert produced(b, 13, FIRST, NEVER) == [(FIRST, "NONE"), (NEVER, "UNKNOWN_TOPIC_ID")]
    assert b.services.logs.get(TP).log_end_offset == 1
    await made_anew(b)
    assert produced(b, 13, FIRST) == [(FIRST, "UNKNOWN_TOPIC_ID")]
    assert produced(b, 13, SECOND) == [(SECOND, "UNKNOWN_TOPIC_ID")], "the log is the old topic's"
    assert b.services.logs.get(TP).log_end_offset == 1


@in_broker()
async def test_a_name_that_looks_like_an_unknown_id_is_a_name(b: Any) -> None:
    topic = ProduceRequest.TopicProduceData
    data = topic(
        name=unknown_name(NEVER.bytes),
        partition_data=[topic.PartitionProduceData(index=0, records=records())],
    )
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=[data])
    body = memoryview(bytearray(encode_request(request, 12)))
    found = decoded(0, 12, produce.handle(b.context(produce, 12), body))
    (partition,) = found.responses[0].partition_responses
    assert ErrorCode(partition.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Reader:
    """A consumer that names topics by their ids, within a session."""

    def __init__(self, b: Any, version: int) -> None:
        self.b, self.version = b, version
        self.session, self.epoch = 0, 0

    def ask(
        self, *asked: tuple[UUID, int], forgotten: tuple[UUID, ...] = (), wait_ms: int = 0
    ) -> Any:
        topic = FetchRequest.FetchTopic
        request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, isolation_level=0,
            session_id=self.session, session_epoch=self.epoch,
            topics=[
                topic(
                    topic_id=topic_id,
                    partitions=[
                        topic.FetchPartition(
                            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
                        )
                    ],
                )
                for topic_id, offset in asked
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic_id=i, partitions=[0]) for i in forgotten
            ],
            rack_id="",
        )  # fmt: skip
        body = memoryview(bytes(encode_request(request, self.version)))
        return fetch.handle(self.b.context(fetch, self.version), body)

    def read(self, *asked: tuple[UUID, int], forgotten: tuple[UUID, ...] = ()) -> Any:
        reply = self.ask(*asked, forgotten=forgotten)
        assert not inspect.isawaitable(reply)
        if isinstance(reply, Delayed):
            reply = reply.operation.try_complete()
        answer = decoded(1, self.version, reply)
        if not answer.error_code:
            self.session, self.epoch = answer.session_id, self.epoch + 1
        return answer

    def errors(self, *asked: tuple[UUID, int], **more: Any) -> list[tuple[UUID, str, int]]:
        """Of each topic its id, its error, and the bytes of its records."""
        answer = self.read(*asked, **more)
        assert not answer.error_code, ErrorCode(answer.error_code)
        return [
            (t.topic_id, ErrorCode(p.error_code).name, len(p.records or b""))
            for t in answer.responses
            for p in t.partitions
        ]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@in_broker()
async def test_a_topic_is_read_by_its_id(b: Any, version: int) -> None:
    await led(b)
    produced(b, 13, FIRST)
    reader = Reader(b, version)
    size = b.services.logs.get(TP).size
    found = reader.errors((FIRST, 0), (NEVER, 0))
    assert found == [(FIRST, "NONE", size), (NEVER, "UNKNOWN_TOPIC_ID", 0)]
    assert reader.errors((FIRST, 1), forgotten=(NEVER,)) == []
    assert reader.errors((FIRST, 0)) == [(FIRST, "NONE", size)], "the session goes on"


@in_broker()
async def test_a_topic_that_was_made_anew_is_another_one(b: Any) -> None:
    await led(b)
    produced(b, 13, FIRST)
    reader = Reader(b, 16)
    assert reader.errors((FIRST, 1)) == [(FIRST, "NONE", 0)]
    await made_anew(b)
    assert reader.errors() == [(FIRST, "UNKNOWN_TOPIC_ID", 0)]
    assert reader.errors((SECOND, 0), forgotten=(FIRST,)) == [(SECOND, "INCONSISTENT_TOPIC_ID", 0)]
    b.services.logs.get(TP).topic_id = SECOND.bytes
    assert [e for _, e, _ in reader.errors((SECOND, 0))] == ["NONE"], "the old one is forgotten"


@in_broker()
async def test_an_unknown_id_may_become_known_within_a_session(b: Any) -> None:
    await led(b)
    produced(b, 13, FIRST)
    await b.update_metadata({"t": {0: -2}}, ids={})
    reader = Reader(b, 13)
    assert reader.errors((FIRST, 1)) == [(FIRST, "UNKNOWN_TOPIC_ID", 0)]
    await b.update_metadata({"t": {0: 1}}, ids={"t": FIRST})
    assert reader.errors() == [(FIRST, "NONE", 0)]


@in_broker()
async def test_a_session_names_topics_in_one_way(b: Any) -> None:
    await led(b)
    reader = Reader(b, 13)
    reader.errors((FIRST, 0))
    reader.version = 12
    assert reader.read().error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    reader.version = 15
    assert reader.read().error_code == 0, "its epoch is the same as before"


@in_broker()
async def test_a_wrong_leaders_answer_names_the_right_one(b: Any) -> None:
    await led(b)
    await told(b, FIRST, 1, leader=2)
    for version in (15, 16, 17):
        answer = Reader(b, version).read((FIRST, 0))
        (partition,) = answer.responses[0].partitions
        assert ErrorCode(partition.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = partition.current_leader
        if version < 16:
            assert leader is None or leader.leader_id == -1
            continue
        assert (leader.leader_id, leader.leader_epoch) == (2, 1)
        assert [(n.node_id, n.host, n.port) for n in answer.node_endpoints] == [(2, "h", 9092)]


@in_broker()
async def test_a_follower_does_not_name_ids(b: Any) -> None:
    await led(b)
    asked = FetchRequest(max_wait_ms=0, replica_id=2, topics=[
        FetchRequest.FetchTopic(topic_id=FIRST, partitions=[
            FetchRequest.FetchTopic.FetchPartition(partition=0, partition_max_bytes=9)
        ])
    ])  # fmt: skip
    body = memoryview(bytes(encode_request(asked, 13)))
    answer = decoded(1, 13, fetch.handle(b.context(fetch, 13), body))
    assert answer.error_code == 0
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@in_broker()
async def test_a_waiting_fetch_hears_that_its_topic_is_another_one(b: Any) -> None:
    await led(b)
    reply = Reader(b, 16).ask((FIRST, 0), wait_ms=10_000)
    operation = reply.operation
    assert operation.try_complete() is None
    await made_anew(b)
    operation.heard(TP)
    answer = decoded(1, 16, operation.try_complete())
    assert answer.responses[0].topic_id == FIRST
    (partition,) = answer.responses[0].partitions
    assert ErrorCode(partition.error_code) is ErrorCode.UNKNOWN_TOPIC_ID


# ---- offsets


@in_node()
async def test_offsets_are_committed_and_fetched_by_ids(node: Node) -> None:
    b = node.b
    await node.leads()
    await b.update_metadata({"t": {0: 1}}, ids={"t": FIRST})
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    place = topic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata="m"
    )

    def commit() -> OffsetCommitRequest:
        topics = [topic(topic_id=i, partitions=[place]) for i in (FIRST, NEVER)]
        return OffsetCommitRequest(group_id="g", topics=topics)

    def codes(found: Any) -> list[tuple[UUID, str]]:
        return [(t.topic_id, ErrorCode(t.partitions[0].error_code).name) for t in found.topics]

    found = await b.ask(offset_commit, 10, commit())
    assert codes(found) == [(FIRST, "NONE"), (NEVER, "UNKNOWN_TOPIC_ID")]
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    by_id = [
        group.OffsetFetchRequestTopics(topic_id=i, partition_indexes=[0]) for i in (FIRST, NEVER)
    ]

    async def fetched(topics: Any) -> list[tuple[UUID, str, int]]:
        request = OffsetFetchRequest(groups=[group(group_id="g", topics=topics)])
        found = (await b.ask(offset_fetch, 10, request)).groups[0]
        assert not found.error_code
        return sorted(
            (t.topic_id, ErrorCode(p.error_code).name, p.committed_offset)
            for t in found.topics
            for p in t.partitions
        )

    assert await fetched(by_id) == sorted([(FIRST, "NONE", 5), (NEVER, "UNKNOWN_TOPIC_ID", -1)])
    assert await fetched(None) == [(FIRST, "NONE", 5)]
    named = group.OffsetFetchRequestTopics(name=unknown_name(NEVER.bytes), partition_indexes=[0])
    request = OffsetFetchRequest(groups=[group(group_id="g", topics=[named])])
    (answered,) = (await b.ask(offset_fetch, 9, request)).groups[0].topics
    assert [(p.error_code, p.committed_offset) for p in answered.partitions] == [(0, -1)]
    await b.update_metadata({"t": {0: -2}}, ids={})
    assert await fetched(None) == [], "a topic without an id cannot be named"
    await b.update_metadata({"t": {0: 1}}, ids={"t": FIRST})
    allow(b)
    assert codes(await refused(b, commit()))[0] == (FIRST, "TOPIC_AUTHORIZATION_FAILED")


async def refused(b: Any, request: Any) -> Any:
    """The answer to a client that may use the group, and not the topic."""
    b.services.authorizer.put(
        Resource(ResourceType.GROUP, "g"),
        [
            Entry(
                operation=Operation.READ, host="*", permission=Permission.ALLOW,
                principal="User:bob",
            )
        ],
    )  # fmt: skip
    ctx = b.context(offset_commit, 10)
    _, parts = offset_commit.API.access.split(ctx, request)
    (code, part) = parts[0]
    return offset_commit.error_response(ctx, part, code).message


@in_broker()
async def test_an_id_of_nothing_is_unknown_to_whoever_asks(b: Any) -> None:
    await led(b)
    allow(b)
    found = Reader(b, 16).errors((FIRST, 0), (NEVER, 0))
    assert found == [(FIRST, "TOPIC_AUTHORIZATION_FAILED", 0), (NEVER, "UNKNOWN_TOPIC_ID", 0)]
    assert sorted(produced(b, 13, FIRST, NEVER)) == sorted(
        [(FIRST, "TOPIC_AUTHORIZATION_FAILED"), (NEVER, "UNKNOWN_TOPIC_ID")]
    )
