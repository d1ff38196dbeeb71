"""ShareFetch and ShareAcknowledge on one broker, which is its own share coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
import trio

from highwater.broker.handlers import share_acknowledge, share_fetch
from highwater.broker.log.parts import Origin
from highwater.broker.settings.client_quotas import write_entity
from highwater.broker.settings.group_configs import path_of
from highwater.broker.share.persister import SharePartitionKey, StateAnswer
from highwater.broker.share.share_partition import ACCEPT, GAP, REJECT, RELEASE, RENEW
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.features import SHARE_VERSION, TOPIC_IDS
from highwater.kafka.security.acls import Acls, Entry, Operation, Permission, Resource, ResourceType
from highwater.kafka.topic_ids import made_of
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import (
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from highwater.kafka.wire.records import (
    TRANSACTIONAL,
    Marker,
    Record,
    batches,
    build_batch,
    build_marker,
    records_of_batch,
)
from tests.running import Body, running_in
from tests.unit.broker.handlers.conftest import Led, run_in_broker

STATE_TOPIC = "__share_group_state"
ID, UNKNOWN = UUID(bytes=made_of("c", "t", 1)), UUID(bytes=made_of("c", "x", 1))
KEY = SharePartitionKey("g", ID.bytes, 0)
TP = TopicPartition("t", 0)
FEATURES = {SHARE_VERSION: 1, TOPIC_IDS: 1}
LOCK_MS = 30_000


class Node(Led):
    topics = ("t", STATE_TOPIC)

    async def leads(self, *, initialized: bool = True, start: int = 0) -> None:
        await self.role(1)
        while not self.b.services.share_states.shards[0].loaded:
            await trio.sleep(0.01)
        if initialized:
            answer = await self.b.services.persister.initialize(KEY, 0, start)
            assert answer == StateAnswer(state_epoch=0), answer

    def append(self, *sizes: int, **batch: Any) -> None:
        """Appends a batch of each of these sizes."""
        replicas = self.b.services.replicas
        for size in sizes:
            records = [Record(b"k", b"v%d" % n, 1, ()) for n in range(size)]
            data = memoryview(bytearray(build_batch(records, **batch)))
            replicas.append(replicas.partition(TP), data, 1, Origin.CLIENT)

    def append_in_transaction(self, size: int) -> None:
        """Appends the first batch of a transaction."""
        partition = self.b.services.replicas.partition(TP)
        verification = partition.verify_transaction(7, 0, 0, 0)
        batch = build_batch(
            [Record(b"k", b"v", 1, ())] * size,
            producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL,
        )  # fmt: skip
        self.b.services.replicas.append(
            partition, memoryview(bytearray(batch)), 1, Origin.CLIENT, verification=verification
        )

    def end_transaction(self, *, commit: bool) -> None:
        marker = memoryview(bytearray(build_marker(Marker(commit, 0), 7, 0, 1)))
        replicas = self.b.services.replicas
        replicas.append(replicas.partition(TP), marker, 1, Origin.COORDINATOR)

    async def fetch(
        self,
        epoch: int,
        member: str = "m",
        *,
        acks: Any = (),
        topic_id: UUID = ID,
        partitions: Any = (0,),
        forgotten: Any = (),
        version: int = 2,
        **fields: Any,
    ) -> Any:
        given: dict[str, Any] = {
            "group_id": "g", "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20,
            "max_records": 500, "batch_size": 500,
        } | fields  # fmt: skip
        topic, part = ShareFetchRequest.FetchTopic, ShareFetchRequest.FetchTopic.FetchPartition
        named = [
            part(partition_index=p, acknowledgement_batches=acked(part, acks)) for p in partitions
        ]
        gone = ShareFetchRequest.ForgottenTopic
        request = ShareFetchRequest(
            member_id=member, share_session_epoch=epoch,
            topics=[topic(topic_id=topic_id, partitions=named)] if named else [],
            forgotten_topics_data=(
                [gone(topic_id=ID, partitions=list(forgotten))] if forgotten else []
            ),
            **given,
        )  # fmt: skip
        return await self.b.ask(share_fetch, version, request)

    async def acknowledge(
        self, epoch: int, *acks: Any, member: str = "m", version: int = 2, **fields: Any
    ) -> Any:
        topic = ShareAcknowledgeRequest.AcknowledgeTopic
        part = topic.AcknowledgePartition
        named = topic(
            topic_id=fields.pop("topic_id", ID),
            partitions=[part(partition_index=0, acknowledgement_batches=acked(part, acks))],
        )
        request = ShareAcknowledgeRequest(
            group_id="g", member_id=member, share_session_epoch=epoch, topics=[named], **fields
        )
        return await self.b.ask(share_acknowledge, version, request)

    async def opened(self, member: str = "m", **fields: Any) -> Any:
        """Opens a session, and waits until the share-partition is loaded."""
        return await self.fetch(0, member, **{"max_wait_ms": 1000, "min_bytes": 1} | fields)

    async def stored(self) -> Any:
        answer = await self.b.services.persister.read(KEY, 1 << 20)
        return answer.start_offset, [tuple(b) for b in answer.batches]

    @contextmanager
    def slow_coordinator(self) -> Iterator[None]:
        """Lets the share coordinator's records wait for their replicas."""
        log = self.b.services.replicas.partition(TopicPartition(STATE_TOPIC, 0))
        log.advance_high_watermark, kept = lambda now_ms: False, log.advance_high_watermark
        try:
            yield
        finally:
            log.advance_high_watermark = kept
            log.advance_high_watermark(0)
            self.b.services.replicas.high_watermark_moved(log.tp)


def acked(part: Any, acks: Any) -> list[Any]:
    return [
        part.AcknowledgementBatch(
            first_offset=first, last_offset=last,
            acknowledge_types=types if isinstance(types, list) else [types],
        )
        for first, last, types in acks
    ]  # fmt: skip


def found(answer: Any) -> Any:
    """The only partition of an answer."""
    assert not answer.error_code, ErrorCode(answer.error_code).name
    ((partition,),) = [topic.partitions for topic in answer.responses]
    return partition


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    return [
        (a.first_offset, a.last_offset, a.delivery_count) for a in found(answer).acquired_records
    ]


def offsets(answer: Any) -> list[int]:
    data = bytes(found(answer).records or b"")
    return [r.offset for h in batches(data) for r in records_of_batch(data, h)]


def code(answer: Any) -> str:
    return ErrorCode(answer.error_code).name


def run(body: Body, **config: Any) -> None:
    async def main(b: Any) -> None:
        services = b.services
        await services.logs.load("the-cluster", 1)
        leaders = {STATE_TOPIC: {0: 1}, "t": {0: 1, 1: 2}}
        await b.update_metadata(leaders, ids={"t": ID}, features=FEATURES)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(services.completions.run)
            await nursery.start(services.share_states.run)
            await nursery.start(services.share.run)
            await body(Node(b))
            nursery.cancel_scope.cancel()

    run_in_broker(main, **{"share_coordinator_state_topic_num_partitions": 1} | config)


in_share_group = running_in(run)


@in_share_group()
@pytest.mark.parametrize("version", [1, 2])
async def test_records_are_acquired_and_acknowledged(node: Node, version: int) -> None:
    await node.leads()
    node.append(3, 2)
    answer = await node.opened(version=version)
    assert acquired(answer) == [(0, 4, 1)]
    assert offsets(answer) == [0, 1, 2, 3, 4]
    assert answer.acquisition_lock_timeout_ms == LOCK_MS
    done = await node.acknowledge(1, (0, 2, ACCEPT), (3, 4, [ACCEPT, REJECT]), version=version)
    assert code(found(done)) == "NONE"
    assert await node.stored() == (0, [(0, 3, 2, 1), (4, 4, 4, 1)])
    assert (await node.fetch(2, version=version)).responses == []


@in_share_group()
async def test_acknowledgements_come_with_a_fetch(node: Node) -> None:
    await node.leads()
    node.append(3)
    await node.opened()
    node.append(2)
    answer = await node.fetch(1, acks=[(0, 1, ACCEPT), (2, 2, RELEASE)])
    assert (code(found(answer)), found(answer).acknowledge_error_code) == ("NONE", 0)
    assert acquired(answer) == [(3, 4, 1)]
    answer = await node.fetch(2, acks=[(0, 1, ACCEPT)])
    assert (found(answer).acknowledge_error_code, acquired(answer)) == (0, [(2, 2, 2)])
    answer = await node.fetch(3, acks=[(9, 9, ACCEPT)])
    assert ErrorCode(found(answer).acknowledge_error_code).name == "INVALID_REQUEST"
    assert "past acquired records" in found(answer).acknowledge_error_message


@in_share_group()
async def test_a_fetch_waits_for_records(node: Node) -> None:
    await node.leads()
    await node.opened()
    answers = []

    async def ask() -> None:
        answers.append(await node.fetch(1, max_wait_ms=60_000, min_bytes=1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(1)
        assert answers == []
        node.append(2)
        with trio.fail_after(1):
            while not answers:
                await trio.sleep(0.01)
    assert acquired(answers[0]) == [(0, 1, 1)]


@in_share_group()
async def test_a_fetch_waits_for_released_records(node: Node) -> None:
    await node.leads()
    node.append(2)
    await node.opened("a")
    await node.opened("b", max_wait_ms=1)
    answers = []

    async def ask() -> None:
        answers.append(await node.fetch(1, "b", max_wait_ms=60_000, min_bytes=1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(1)
        await node.acknowledge(1, (0, 1, RELEASE), member="a")
    assert acquired(answers[0]) == [(0, 1, 2)]


@in_share_group()
async def test_a_lock_ends_after_its_time(node: Node) -> None:
    await node.leads()
    node.append(2)
    assert acquired(await node.opened("a")) == [(0, 1, 1)]
    began = trio.current_time()
    await node.opened("b", max_wait_ms=1)
    answer = await node.fetch(1, "b", max_wait_ms=60_000, min_bytes=1)
    assert acquired(answer) == [(0, 1, 2)]
    assert LOCK_MS / 1000 - 1 < trio.current_time() - began < LOCK_MS / 1000 + 2
    assert code(found(await node.acknowledge(1, (0, 1, 1), member="a"))) == "INVALID_RECORD_STATE"
    assert await node.stored() == (0, [(0, 1, 0, 1)])


@in_share_group(group_share_record_lock_duration_ms=1000)
async def test_a_lock_is_renewed(node: Node) -> None:
    await node.leads()
    node.append(2)
    await node.opened()
    for epoch in range(1, 4):
        await trio.sleep(0.7)
        answer = await node.acknowledge(epoch, (0, 1, RENEW), is_renew_ack=True)
        assert (code(found(answer)), answer.acquisition_lock_timeout_ms) == ("NONE", 1000)
    assert code(found(await node.acknowledge(4, (0, 1, RENEW)))) == "INVALID_REQUEST"
    nothing: Any = {"max_bytes": 0, "max_records": 0, "min_bytes": 0, "max_wait_ms": 0}
    wrong = await node.fetch(5, acks=[(0, 1, RENEW)], is_renew_ack=True)
    assert code(wrong) == "INVALID_REQUEST"
    node.append(1)
    answer = await node.fetch(5, acks=[(0, 1, RENEW)], is_renew_ack=True, **nothing)
    assert (found(answer).acknowledge_error_code, acquired(answer)) == (0, [])
    assert await node.stored() == (0, [])


@in_share_group(group_share_partition_max_record_locks=100)
async def test_so_many_records_are_in_flight(node: Node) -> None:
    await node.leads()
    node.append(*[60] * 3)
    assert acquired(await node.opened()) == [(0, 119, 1)]
    assert (await node.fetch(1)).responses == []
    await node.acknowledge(2, (0, 59, ACCEPT))
    assert acquired(await node.fetch(3)) == [(120, 179, 1)]


@in_share_group(group_share_delivery_count_limit=2)
async def test_a_record_is_delivered_so_often(node: Node) -> None:
    await node.leads()
    node.append(1)
    assert acquired(await node.opened()) == [(0, 0, 1)]
    await node.acknowledge(1, (0, 0, RELEASE))
    assert acquired(await node.fetch(2)) == [(0, 0, 2)]
    await node.acknowledge(3, (0, 0, RELEASE))
    assert (await node.fetch(4)).responses == []
    assert await node.stored() == (0, [(0, 0, 4, 2)])


@in_share_group(group_share_max_share_sessions=1)
async def test_so_many_sessions_are_open(node: Node) -> None:
    await node.leads()
    await node.opened("a")
    began = trio.current_time()
    assert code(await node.fetch(0, "b", max_wait_ms=500)) == "SHARE_SESSION_LIMIT_REACHED"
    assert trio.current_time() - began >= 0.5
    assert code(await node.fetch(0, "b")) == "SHARE_SESSION_LIMIT_REACHED"
    assert code(await node.fetch(0, "a")) == "NONE"
    assert code(await node.acknowledge(-1, member="a")) == "NONE"
    assert code(await node.fetch(0, "b")) == "NONE"


@in_share_group()
async def test_sessions_have_epochs(node: Node) -> None:
    await node.leads()
    node.append(1)
    assert code(await node.fetch(1)) == "SHARE_SESSION_NOT_FOUND"
    assert code(await node.fetch(-1)) == "SHARE_SESSION_NOT_FOUND"
    assert code(await node.acknowledge(1)) == "SHARE_SESSION_NOT_FOUND"
    assert code(await node.acknowledge(0)) == "INVALID_SHARE_SESSION_EPOCH"
    assert code(await node.fetch(0, acks=[(0, 0, ACCEPT)])) == "INVALID_REQUEST"
    await node.opened()
    for wrong in (2, 7):
        assert code(await node.fetch(wrong)) == "INVALID_SHARE_SESSION_EPOCH"
        assert code(await node.acknowledge(wrong)) == "INVALID_SHARE_SESSION_EPOCH"
    assert code(await node.acknowledge(1)) == "NONE"
    assert code(await node.fetch(2)) == "NONE"
    assert code(await node.fetch(-1)) == "NONE"
    assert code(await node.fetch(3)) == "SHARE_SESSION_NOT_FOUND"


@in_share_group()
async def test_a_session_ends_and_its_records_are_released(node: Node) -> None:
    await node.leads()
    node.append(4)
    await node.opened("a")
    await node.opened("b", max_wait_ms=1)
    answer = await node.acknowledge(-1, (0, 1, ACCEPT), member="a")
    assert code(found(answer)) == "NONE"
    assert acquired(await node.fetch(1, "b", max_wait_ms=1000, min_bytes=1)) == [(2, 3, 2)]
    node.b.services.share.disconnected(0)
    assert code(await node.fetch(2, "b")) == "SHARE_SESSION_NOT_FOUND"
    assert acquired(await node.opened("c")) == [(2, 3, 3)]


@in_share_group()
async def test_a_session_that_is_closed_late_takes_nothing_from_the_next_one(node: Node) -> None:
    await node.leads()
    node.append(1)
    await node.opened("a")

    async def close() -> None:
        assert code(found(await node.acknowledge(-1, (0, 0, ACCEPT), member="a"))) == "NONE"

    async with trio.open_nursery() as nursery:
        with node.slow_coordinator():
            nursery.start_soon(close)
            await trio.sleep(1)
            node.append(1)
            assert acquired(await node.opened("a")) == [(1, 1, 1)]
    answer = await node.acknowledge(1, (1, 1, ACCEPT), member="a")
    assert code(found(answer)) == "NONE"


@in_share_group()
async def test_without_sessions_nothing_is_kept(node: Node) -> None:
    await node.leads()
    node.append(1)
    await node.opened()
    share = node.b.services.share
    assert list(share.led) == [KEY]
    assert len(list(share.families())) == 9
    node.b.services.share.disconnected(0)
    while share.led:
        await trio.sleep(0.01)
    assert acquired(await node.opened()) == [(0, 0, 2)]


@in_share_group()
async def test_members_and_groups_have_names(node: Node) -> None:
    await node.leads()
    for member in ("", "m" * 37):
        assert code(await node.fetch(0, member)) == "INVALID_REQUEST"
        assert code(await node.acknowledge(1, member=member)) == "INVALID_REQUEST"
    assert code(await node.fetch(0, group_id=None)) == "INVALID_REQUEST"


@in_share_group()
async def test_topics_that_are_not_there(node: Node) -> None:
    await node.leads()
    assert code(found(await node.fetch(0, topic_id=UNKNOWN))) == "UNKNOWN_TOPIC_ID"
    assert code(found(await node.fetch(0, partitions=[7]))) == "UNKNOWN_TOPIC_OR_PARTITION"
    answer = await node.fetch(0, partitions=[1])
    assert code(found(answer)) == "UNKNOWN_TOPIC_OR_PARTITION"
    await node.fetch(0)
    done = await node.acknowledge(1, (0, 0, ACCEPT), topic_id=UNKNOWN)
    assert code(found(done)) == "UNKNOWN_TOPIC_ID"
    for wrong in [(1, 0, ACCEPT), (0, 0, []), (0, 2, [1, 1]), (0, 0, 5), (0, 0, RENEW)]:
        (epoch,) = [s.epoch for s in node.b.services.share.sessions._sessions.values()]
        assert code(found(await node.acknowledge(epoch, wrong))) == "INVALID_REQUEST"


@in_share_group()
async def test_a_deposed_leader_names_the_new_one(node: Node) -> None:
    await node.leads()
    node.append(2)
    await node.opened("a")
    await node.opened("b", max_wait_ms=1)
    answers = []

    async def ask() -> None:
        answers.append(await node.fetch(1, "b", max_wait_ms=60_000, min_bytes=1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(1)
        await node.role(2)
    assert code(found(answers[0])) == "NOT_LEADER_OR_FOLLOWER"
    assert found(answers[0]).current_leader.leader_id == 2
    assert [(e.node_id, e.port) for e in answers[0].node_endpoints] == [(2, 9092)]
    done = await node.acknowledge(1, (0, 1, ACCEPT), member="a")
    assert code(found(done)) == "NOT_LEADER_OR_FOLLOWER"
    assert (found(done).current_leader.leader_id, done.node_endpoints[0].node_id) == (2, 2)
    assert node.b.services.share.led == {}


@in_share_group()
async def test_a_later_leader_goes_on_with_what_is_stored(node: Node) -> None:
    await node.leads()
    node.append(4)
    await node.opened()
    await node.acknowledge(1, (0, 1, ACCEPT))
    await node.role(2)
    await node.leads(initialized=False)
    assert acquired(await node.opened()) == [(2, 3, 1)]


@in_share_group()
async def test_a_leader_goes_on_in_its_next_epoch_unless_one_was_left_out(node: Node) -> None:
    await node.leads()
    node.append(4)
    await node.opened()
    await node.role(1)
    assert code(found(await node.acknowledge(1, (0, 1, ACCEPT)))) == "NONE"
    node.epoch += 1
    await node.role(1)
    assert code(found(await node.acknowledge(2, (2, 3, ACCEPT)))) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert acquired(await node.opened()) == [(2, 3, 1)]


@in_share_group()
async def test_a_slow_coordinator_holds_the_answer_and_nothing_else(node: Node) -> None:
    await node.leads()
    node.append(2)
    await node.opened()
    answers = []

    async def acknowledge() -> None:
        answers.append(await node.acknowledge(1, (0, 1, ACCEPT)))

    async with trio.open_nursery() as nursery:
        with node.slow_coordinator():
            nursery.start_soon(acknowledge)
            await trio.sleep(1)
            assert answers == []
            node.append(1)
            assert acquired(await node.opened("n")) == [(2, 2, 1)]
    assert code(found(answers[0])) == "NONE"


@in_share_group()
async def test_what_cannot_be_stored_never_was(node: Node) -> None:
    await node.leads()
    node.append(2)
    await node.opened()
    persister = node.b.services.share.persister
    said: list[ErrorCode] = []

    class Refusing:
        """The persister, with a share coordinator that refuses writes."""

        async def write(self, *args: Any) -> StateAnswer:
            return StateAnswer(said.pop())

        def __getattr__(self, name: str) -> Any:
            return getattr(persister, name)

    node.b.services.share.persister = Refusing()
    for epoch, (error, told) in enumerate(
        [
            (ErrorCode.REQUEST_TIMED_OUT, "UNKNOWN_SERVER_ERROR"),
            (ErrorCode.NOT_COORDINATOR, "COORDINATOR_NOT_AVAILABLE"),
            (ErrorCode.FENCED_STATE_EPOCH, "NOT_LEADER_OR_FOLLOWER"),
        ],
        1,
    ):
        said.append(error)
        assert code(found(await node.acknowledge(epoch, (0, 1, ACCEPT)))) == told
    assert node.b.services.share.led == {}
    node.b.services.share.persister = persister
    assert await node.stored() == (0, [])


@in_share_group()
async def test_state_that_is_not_there(node: Node) -> None:
    await node.leads(initialized=False)
    answer = await node.opened()
    assert code(found(answer)) == "UNKNOWN_SERVER_ERROR"
    assert node.b.services.share.led == {}


@in_share_group()
async def test_a_group_begins_at_the_end_and_stays_there(node: Node) -> None:
    await node.leads(start=-1)
    node.append(3)
    assert acquired(await node.opened(max_wait_ms=100)) == []
    node.append(2)
    await node.role(2)
    await node.leads(initialized=False)
    assert acquired(await node.opened()) == [(3, 4, 1)]


@pytest.mark.parametrize(
    ("reset", "first"), [("earliest", 0), ("latest", 4), ("by_duration:PT1H", 2)]
)
def test_where_a_group_begins(reset: str, first: int) -> None:
    async def body(node: Node) -> None:
        await node.leads(start=-1)
        node.b.services.groups.configs._overrides["g"] = {"share.auto.offset.reset": reset}
        now_ms = node.b.services.world.clock.wall_ms()
        replicas = node.b.services.replicas
        for age_ms in (7_200_000, 60_000):
            records = [Record(b"k", b"v", now_ms - age_ms, ())] * 2
            data = memoryview(bytearray(build_batch(records)))
            replicas.append(replicas.partition(TP), data, 1, Origin.CLIENT)
        await node.opened(max_wait_ms=100)
        node.append(1)
        answer = await node.fetch(0, "n", max_records=1)
        assert node.b.services.share.led[KEY].machine.start_offset == first
        assert code(answer) == "NONE"

    run(body)


@in_share_group()
async def test_aborted_records_are_passed_over(node: Node) -> None:
    await node.leads()
    node.b.services.groups.configs._overrides["g"] = {"share.isolation.level": "read_committed"}
    node.append_in_transaction(2)
    node.append(1)
    assert (await node.opened(max_wait_ms=100)).responses[0].partitions[0].records in (b"", None)
    node.end_transaction(commit=False)
    assert acquired(await node.fetch(1)) == [(2, 3, 1)]


@in_share_group()
async def test_a_leader_reads_the_groups_properties_before_it_gives_anything(node: Node) -> None:
    """Found by the simulation: a broker that had come back gave a group that reads committed
    records only those of an aborted transaction."""
    wanted = {"share.isolation.level": "read_committed", "share.record.lock.duration.ms": "15000"}
    await write_entity(node.b.services.zk, path_of("g"), wanted, None)
    await node.leads()
    node.append_in_transaction(2)
    node.append(1)
    answer = await node.fetch(0, max_wait_ms=1000, min_bytes=1)
    assert not found(answer).records
    node.end_transaction(commit=False)
    assert acquired(await node.fetch(1)) == [(2, 3, 1)]
    assert (await node.fetch(2)).acquisition_lock_timeout_ms == 15_000


@in_share_group()
async def test_deleted_records_are_passed_over(node: Node) -> None:
    await node.leads()
    node.append(2, 2)
    await node.opened()
    await node.acknowledge(1, (0, 3, RELEASE))
    node.b.services.replicas.partition(TP).leader_log().advance_log_start(2)
    assert (await node.fetch(2)).responses == []
    assert acquired(await node.fetch(3)) == [(2, 3, 2)]


@in_share_group()
async def test_rights_come_before_anything(node: Node) -> None:
    await node.leads()
    node.append(1)
    await node.opened()
    acls = node.b.services.authorizer = Acls([], open_without_rules=False)
    requests = ShareFetchRequest(group_id="g"), ShareAcknowledgeRequest(group_id="g")
    for module, request in zip((share_fetch, share_acknowledge), requests, strict=True):
        with pytest.raises(ApiError) as refused:
            module.API.access.split(node.b.context(module, 2), request)
        assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert code(found(await node.fetch(1))) == "TOPIC_AUTHORIZATION_FAILED"
    done = await node.acknowledge(2, (0, 0, ACCEPT))
    assert code(found(done)) == "TOPIC_AUTHORIZATION_FAILED"
    anybody = Entry("User:*", "*", Operation.READ, Permission.ALLOW)
    acls.put(Resource(ResourceType.TOPIC, "t"), [anybody])
    assert code(found(await node.acknowledge(3, (0, 0, ACCEPT)))) == "NONE"


@in_share_group()
async def test_gaps_are_archived(node: Node) -> None:
    await node.leads()
    node.append(3)
    await node.opened()
    await node.acknowledge(1, (0, 2, [ACCEPT, GAP, ACCEPT]))
    assert await node.stored() == (0, [(0, 0, 2, 1), (1, 1, 4, 1), (2, 2, 2, 1)])


@in_share_group()
async def test_another_partition_is_first_each_time_and_one_can_be_forgotten(node: Node) -> None:
    await node.leads()
    await node.opened()
    session = next(iter(node.b.services.share.sessions._sessions.values()))
    answer = await node.fetch(1, partitions=[0, 7])
    assert [code(p) for t in answer.responses for p in t.partitions] == [
        "UNKNOWN_TOPIC_OR_PARTITION"
    ]
    firsts = [session.in_turn()[0].partition]
    await node.fetch(2, partitions=())
    firsts.append(session.in_turn()[0].partition)
    assert sorted(firsts) == [0, 7]
    await node.fetch(3, partitions=(), forgotten=[7])
    assert [p.partition for p in session.partitions] == [0]


@in_share_group()
async def test_groups_are_kept_until_their_connections_end(node: Node) -> None:
    await node.leads()
    node.append(1)
    await node.opened()
    await node.acknowledge(-1, (0, 0, ACCEPT))
    await trio.sleep(1)
    share = node.b.services.share
    assert list(share.led) == [KEY]
    await node.opened(max_wait_ms=1)
    await node.fetch(-1)
    share.disconnected(0)
    await trio.sleep(1)
    assert share.led == {}


@in_share_group()
async def test_cold_records_are_read_outside_of_the_loop(node: Node) -> None:
    await node.leads()
    await node.opened(max_wait_ms=100)
    disk = node.b.services.world.disk._disk
    node.append(3)
    disk.cold = 1.0
    assert acquired(await node.fetch(1)) == [(0, 2, 1)]
    assert disk.loads
