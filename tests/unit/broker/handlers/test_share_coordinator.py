"""The share coordinator on one broker, whose roles come and go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
import trio

from highwater.base.metrics import Registry, exposition
from highwater.broker.coordinator.share.state_metrics import register_state_metrics
from highwater.broker.handlers import (
    delete_share_group_state,
    find_coordinator,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from highwater.broker.share.persister import SharePartitionKey, StateAnswer, StateBatch
from highwater.broker.share.state_messages import StateCall, answers_of, request_of
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.features import SHARE_VERSION, TOPIC_IDS
from highwater.kafka.security.acls import Acls
from highwater.kafka.topic_ids import made_of
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import FindCoordinatorRequest, InitializeShareGroupStateRequest
from highwater.kafka.wire.records import batches, records_of_batch
from tests.running import Body, running_in
from tests.unit.broker.handlers.conftest import Led, run_in_broker

TOPIC = "__share_group_state"
STATE = TopicPartition(TOPIC, 0)
ID, OTHER = made_of("c", "t", 1), made_of("c", "tt", 1)
KEY, LATER = SharePartitionKey("g", ID, 0), SharePartitionKey("g", ID, 1)
LEADERS = {TOPIC: {0: 1}, "t": {0: 1, 1: 1}}
FEATURES = {SHARE_VERSION: 1, TOPIC_IDS: 1}
BATCH, NEXT = StateBatch(5, 9, 2, 1), StateBatch(10, 10, 4, 5)
MODULES: dict[int, Any] = {
    m.API.key: m
    for m in (
        initialize_share_group_state, read_share_group_state, write_share_group_state,
        delete_share_group_state, read_share_group_state_summary,
    )
}  # fmt: skip
INITIALIZE, READ, WRITE, DELETE, SUMMARY = sorted(MODULES)


class Node(Led):
    topics = (TOPIC,)

    async def leads(self, isr: tuple[int, ...] = (1,)) -> None:
        await self.role(1, isr)
        shards = self.b.services.share_states.shards
        while not (isr == (1, 2) or shards[0].loaded):
            await trio.sleep(0.01)

    async def call(self, kind: int, key: SharePartitionKey = KEY, **fields: Any) -> StateAnswer:
        call = StateCall(kind, key, **fields)
        request, version = request_of([call])
        found = await self.b.ask(MODULES[kind], version, request)
        return answers_of(kind, key.group, found)[key]

    async def code(self, kind: int, key: SharePartitionKey = KEY, **fields: Any) -> str:
        return (await self.call(kind, key, **fields)).error.name

    async def write(self, start: int, *batches: StateBatch, leader: int = 0, state: int = 0) -> str:
        return await self.code(
            WRITE, start_offset=start, batches=batches, leader_epoch=leader, state_epoch=state,
            delivery_complete_count=len(batches),
        )  # fmt: skip

    async def state(self) -> tuple[int, int, Sequence[StateBatch]]:
        """State epoch, start offset and batches."""
        found = await self.call(READ, leader_epoch=1 << 20)
        assert not found.error, found
        return found.state_epoch, found.start_offset, found.batches

    @property
    def log(self) -> Any:
        return self.b.services.replicas.partition(STATE).leader_log()

    @property
    def keys(self) -> list[int]:
        """The versions of the keys in the log."""
        piece = self.log.read(self.log.log_start_offset, 1 << 20, self.log.log_end_offset)
        data = piece.file.read(piece.position, piece.size)
        found = (r for header in batches(data) for r in records_of_batch(data, header))
        return [int.from_bytes((r.key or b"")[:2], "big") for r in found]


def run(body: Body, *, features: dict[str, int] | None = None, **config: Any) -> None:
    async def main(b: Any) -> None:
        await b.services.logs.load("the-cluster", 1)
        used = FEATURES if features is None else features
        await b.update_metadata(LEADERS, ids={"t": UUID(bytes=ID)}, features=used)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(b.services.completions.run)
            await nursery.start(b.services.share_states.run)
            await body(Node(b))
            nursery.cancel_scope.cancel()

    given: dict[str, Any] = {"share_coordinator_state_topic_num_partitions": 1}
    run_in_broker(main, **given | config)


in_share_states = running_in(run)


@in_share_states()
async def test_state_is_initialized_written_and_read(node: Node) -> None:
    assert await node.code(READ) == "NOT_COORDINATOR"
    await node.leads()
    assert await node.code(READ, leader_epoch=0) == "INVALID_REQUEST"
    assert await node.write(0, BATCH) == "INVALID_REQUEST"
    summary = await node.call(SUMMARY)
    assert (summary.error, summary.start_offset, summary.delivery_complete_count) == (0, -1, -1)
    assert await node.code(INITIALIZE, state_epoch=0, start_offset=3) == "NONE"
    read = await node.call(READ, leader_epoch=0)
    assert (read.error, read.state_epoch, read.start_offset, read.batches) == (0, 0, 3, ())
    assert await node.write(4, BATCH) == "NONE"
    assert await node.write(-1, NEXT) == "NONE"
    assert await node.state() == (0, 4, (BATCH, NEXT))
    summary = await node.call(SUMMARY)
    assert (summary.leader_epoch, summary.delivery_complete_count) == (1 << 20, 1)
    assert await node.code(DELETE) == "NONE"
    assert await node.code(DELETE) == "NONE"
    assert await node.code(READ, leader_epoch=0) == "INVALID_REQUEST"


@in_share_states()
async def test_deposed_leaders_and_earlier_states_are_fenced(node: Node) -> None:
    await node.leads()
    assert await node.code(INITIALIZE, state_epoch=2, start_offset=0) == "NONE"
    assert await node.code(READ, leader_epoch=7) == "NONE"
    assert await node.code(READ, leader_epoch=6) == "FENCED_LEADER_EPOCH"
    assert await node.code(READ, leader_epoch=-1) == "FENCED_LEADER_EPOCH"
    assert await node.write(0, BATCH, leader=6, state=2) == "FENCED_LEADER_EPOCH"
    assert await node.write(0, BATCH, leader=7, state=1) == "FENCED_STATE_EPOCH"
    assert await node.code(INITIALIZE, state_epoch=1, start_offset=0) == "FENCED_STATE_EPOCH"
    assert await node.write(0, BATCH, leader=7, state=2) == "NONE"
    assert await node.code(INITIALIZE, state_epoch=3, start_offset=20) == "NONE"
    assert await node.write(0, BATCH, leader=7, state=2) == "FENCED_STATE_EPOCH"
    assert await node.code(READ, leader_epoch=6) == "FENCED_LEADER_EPOCH"
    assert await node.state() == (3, 20, ())


@in_share_states()
async def test_a_write_that_comes_late_moves_nothing_back(node: Node) -> None:
    await node.leads()
    await node.call(INITIALIZE, state_epoch=0, start_offset=0)
    assert await node.write(0, BATCH) == "NONE"
    assert await node.write(10, NEXT) == "NONE"
    assert await node.write(0, BATCH) == "NONE"
    assert await node.state() == (0, 10, (NEXT,))


@in_share_states()
async def test_another_term_reads_the_same_states(node: Node) -> None:
    await node.leads()
    await node.call(INITIALIZE, state_epoch=0, start_offset=0)
    await node.call(INITIALIZE, LATER, state_epoch=0, start_offset=0)
    assert await node.write(2, BATCH) == "NONE"
    await node.call(DELETE, LATER)
    assert await node.code(READ, leader_epoch=5) == "NONE"
    await node.role(2)
    assert await node.code(READ, leader_epoch=5) == "NOT_COORDINATOR"
    await node.leads()
    assert await node.code(READ, leader_epoch=4) == "FENCED_LEADER_EPOCH"
    assert await node.state() == (0, 2, (BATCH,))
    assert await node.code(READ, LATER, leader_epoch=0) == "INVALID_REQUEST"


@in_share_states(share_coordinator_snapshot_update_records_per_snapshot=2)
async def test_a_snapshot_comes_after_so_many_updates(node: Node) -> None:
    await node.leads()
    await node.call(INITIALIZE, state_epoch=0, start_offset=0)
    for offset in range(5):
        assert await node.write(-1, StateBatch(offset, offset, 2, 1)) == "NONE"
    assert node.keys == [0, 1, 1, 0, 1, 1]
    assert await node.state() == (0, 0, (StateBatch(0, 4, 2, 1),))


@in_share_states(share_coordinator_state_topic_compression_codec=1)
async def test_records_are_compressed(node: Node) -> None:
    await node.leads()
    await node.call(INITIALIZE, state_epoch=0, start_offset=0)
    piece = node.log.read(0, 1 << 20, node.log.log_end_offset)
    (header,) = batches(piece.file.read(piece.position, piece.size))
    assert header.compression == 1


@in_share_states(share_coordinator_write_timeout_ms=700)
async def test_a_write_waits_for_its_replicas_so_long(node: Node) -> None:
    await node.leads()
    await node.call(INITIALIZE, state_epoch=0, start_offset=0)
    await node.role(1, (1, 2))
    while not node.b.services.share_states.shards[0].loaded:
        await trio.sleep(0.01)
    began = trio.current_time()
    assert await node.write(1, BATCH) == "COORDINATOR_NOT_AVAILABLE"
    assert trio.current_time() - began == pytest.approx(0.7, abs=0.1)
    assert await node.code(SUMMARY) == "COORDINATOR_NOT_AVAILABLE", "it would tell of the write"


@in_share_states()
async def test_who_waits_when_the_term_ends_must_ask_another_broker(node: Node) -> None:
    await node.leads()
    await node.call(INITIALIZE, state_epoch=0, start_offset=0)
    await node.role(1, (1, 2))
    while not node.b.services.share_states.shards[0].loaded:
        await trio.sleep(0.01)
    codes: list[str] = []

    async def write() -> None:
        codes.append(await node.write(1, BATCH))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.sleep(0.1)
        assert not codes
        await node.role(2)
    assert codes == ["NOT_COORDINATOR"]


@in_share_states(
    share_coordinator_cold_partition_snapshot_interval_ms=60_000,
    share_coordinator_state_topic_prune_interval_ms=90_000,
    share_coordinator_snapshot_update_records_per_snapshot=2,
)
async def test_old_records_are_deleted(node: Node) -> None:
    await node.leads()
    await node.call(INITIALIZE, LATER, state_epoch=0, start_offset=0)
    await node.call(INITIALIZE, state_epoch=0, start_offset=0)
    for offset in range(3):
        assert await node.write(-1, StateBatch(offset, offset, 2, 1)) == "NONE"
    assert (node.log.log_start_offset, node.keys) == (0, [0, 0, 1, 1, 0])
    await trio.sleep(121)
    assert node.keys == [0, 0, 1, 1, 0, 0, 0], "each snapshot is as old as the interval"
    await trio.sleep(60)
    assert (node.log.log_start_offset, node.keys) == (5, [0, 0]), "and none twice for nothing"
    await node.role(2)
    await node.leads()
    assert await node.state() == (0, 0, (StateBatch(0, 2, 2, 1),))


@in_share_states()
async def test_a_topics_deletion_deletes_its_state(node: Node) -> None:
    await node.leads()
    await node.call(INITIALIZE, state_epoch=0, start_offset=0)
    unknown = KEY._replace(topic_id=OTHER)
    assert await node.code(INITIALIZE, unknown, state_epoch=0) == "UNKNOWN_TOPIC_OR_PARTITION"
    await node.b.update_metadata({"t": {0: -2, 1: -2}}, features=FEATURES)
    assert not node.b.services.share_states.shards[0].states
    assert await node.code(SUMMARY) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert node.keys == [0, 0]


@in_share_states()
async def test_a_request_of_several_partitions_is_answered_at_once(node: Node) -> None:
    await node.leads()
    calls = [StateCall(INITIALIZE, key, state_epoch=0, start_offset=1) for key in (KEY, LATER)]
    calls.append(StateCall(INITIALIZE, KEY._replace(partition=9), state_epoch=0))
    request, version = request_of(calls)
    found = answers_of(INITIALIZE, "g", await node.b.ask(MODULES[INITIALIZE], version, request))
    assert [found[call.key].error.name for call in calls] == [
        "NONE", "NONE", "UNKNOWN_TOPIC_OR_PARTITION",
    ]  # fmt: skip
    empty = InitializeShareGroupStateRequest(group_id="", topics=request.topics)
    assert (await node.b.ask(MODULES[INITIALIZE], version, empty)).results == []


@in_share_states()
async def test_writes_are_measured(node: Node) -> None:
    await node.leads()
    registry = Registry()
    register_state_metrics(registry, node.b.services.share_states.writes)
    name = "kafka_server_share_coordinator_metrics_write_"
    assert f"{name}latency_max 0\n" in exposition(registry.families(0))
    await node.call(INITIALIZE, state_epoch=0, start_offset=0)
    for _ in range(3):
        assert await node.write(1, BATCH) == "NONE"
    page = exposition(registry.families(0))
    assert f"{name}total 3\n" in page
    assert f"{name}latency_avg" in page


@pytest.mark.parametrize("kind", MODULES)
@in_share_states()
async def test_it_is_for_brokers_alone(node: Node, kind: int) -> None:
    node.b.services.authorizer = Acls([], open_without_rules=False)
    module = MODULES[kind]
    request, version = request_of([StateCall(kind, KEY)])
    found = answers_of(kind, "g", await denied(node, module, version, request))
    assert found[KEY].error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def denied(node: Node, module: Any, version: int, request: Any) -> Any:
    ctx = node.b.context(module, version)
    with pytest.raises(ApiError) as raised:
        module.API.access.split(ctx, request)
    return module.error_response(ctx, request, raised.value.code).message


@in_share_states()
async def test_its_place_is_found_by_the_share_partitions_key(node: Node) -> None:
    async def find(*keys: str, version: int = 6) -> list[tuple[str, int]]:
        request = FindCoordinatorRequest(key=keys[0], key_type=2, coordinator_keys=list(keys))
        found = await node.b.ask(find_coordinator, version, request)
        if version < 4:
            return [(ErrorCode(found.error_code).name, found.node_id)]
        return [(ErrorCode(c.error_code).name, c.node_id) for c in found.coordinators]

    assert await find(f"{KEY}", "g:x:0", "g:0", f"g:{KEY}") == [
        ("NONE", 1), *[("INVALID_REQUEST", -1)] * 3,
    ]  # fmt: skip
    assert await find(f"{KEY}", version=5) == [("INVALID_REQUEST", -1)]
    assert await find(f"{KEY}", version=2) == [("INVALID_REQUEST", -1)]
    await node.b.update_metadata(LEADERS, ids={"t": UUID(bytes=ID)}, features={TOPIC_IDS: 1})
    assert await find(f"{KEY}") == [("COORDINATOR_NOT_AVAILABLE", -1)]
