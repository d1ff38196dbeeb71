"""Share groups on one broker: heartbeats, descriptions, and the state of their share-partitions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
import trio

from highwater.base.metrics import Registry, exposition
from highwater.broker.context import Delayed
from highwater.broker.coordinator.group.group_metrics import register_group_metrics
from highwater.broker.handlers import (
    alter_share_group_offsets,
    consumer_group_heartbeat,
    delete_groups,
    delete_share_group_offsets,
    describe_groups,
    describe_share_group_offsets,
    join_group,
    list_groups,
    offset_commit,
    offset_fetch,
    share_group_describe,
    share_group_heartbeat,
)
from highwater.broker.settings.group_configs import SHARE_HEARTBEAT_INTERVAL, SHARE_SESSION_TIMEOUT
from highwater.broker.share.persister import SharePartitionKey, StateBatch
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.features import GROUP_VERSION, SHARE_VERSION, TOPIC_IDS
from highwater.kafka.security.acls import Acls, Entry, Operation, Permission, Resource, ResourceType
from highwater.kafka.topic_ids import NO_ID, made_of
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import (
    AlterShareGroupOffsetsRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeGroupsRequest,
    DescribeShareGroupOffsetsRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from highwater.kafka.wire.records import Record, build_batch
from tests.running import Body, running_in
from tests.unit.broker.handlers.conftest import Led, run_in_broker

GROUPS, STATES = "__consumer_offsets", "__share_group_state"
ID, OTHER = made_of("c", "t", 1), made_of("c", "tt", 1)
LEADERS = {GROUPS: {0: 1}, STATES: {0: 1}, "t": dict.fromkeys(range(4), 1), "tt": {0: 1}}
IDS = {"t": UUID(bytes=ID), "tt": UUID(bytes=OTHER)}
FEATURES = {SHARE_VERSION: 1, GROUP_VERSION: 1, TOPIC_IDS: 1}


class Node(Led):
    topics = (GROUPS, STATES, "t")

    async def leads(self, isr: tuple[int, ...] = (1,)) -> None:
        await self.role(1, isr)
        services = self.b.services
        while not (services.groups.shards[0].loaded and services.share_states.shards[0].loaded):
            await trio.sleep(0.01)

    async def beat(self, member_id: str, epoch: int, *, group: str = "g", **request: Any) -> Any:
        asked = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=epoch, **request
        )
        return await self.b.ask(share_group_heartbeat, 1, asked)

    async def joins(self, member_id: str, *topics: str, **request: Any) -> Any:
        return await self.beat(member_id, 0, subscribed_topic_names=[*topics] or ["t"], **request)

    async def code(self, member_id: str, epoch: int, **request: Any) -> str:
        return ErrorCode((await self.beat(member_id, epoch, **request)).error_code).name

    async def settles(self, member_id: str = "a", group: str = "g") -> Any:
        """The member's last answer, when its heartbeats bring nothing new."""
        epoch = (await self.joins(member_id, group=group)).member_epoch
        while True:
            await trio.sleep(0.1)
            found = await self.beat(member_id, epoch, group=group, subscribed_topic_names=["t"])
            if found.member_epoch == epoch:
                return found
            epoch = found.member_epoch

    async def describes(self, group: str = "g") -> Any:
        asked = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
        (found,) = (await self.b.ask(share_group_describe, 1, asked)).groups
        return found

    async def offsets(self, *topics: str, version: int = 1, group: str = "g") -> Any:
        """By topic and partition: start offset, leader epoch, lag and error."""
        cls = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
        topic = cls.DescribeShareGroupOffsetsRequestTopic
        named = [topic(topic_name=name, partitions=[0, 1]) for name in topics]
        asked = cls(group_id=group, topics=named if topics else None)
        request = DescribeShareGroupOffsetsRequest(groups=[asked])
        answer = await self.b.ask(describe_share_group_offsets, version, request)
        (found,) = answer.groups
        if found.error_code:
            return ErrorCode(found.error_code).name
        return {
            (t.topic_name, p.partition_index): (
                p.start_offset, p.leader_epoch, p.lag, ErrorCode(p.error_code).name,
            )
            for t in found.topics
            for p in t.partitions
        }  # fmt: skip

    async def alters(self, starts: dict[str, dict[int, int]], group: str = "g") -> Any:
        cls = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
        part = cls.AlterShareGroupOffsetsRequestPartition
        topics = [
            cls(
                topic_name=name,
                partitions=[part(partition_index=p, start_offset=o) for p, o in by.items()],
            )
            for name, by in starts.items()
        ]
        request = AlterShareGroupOffsetsRequest(group_id=group, topics=topics)
        answer = await self.b.ask(alter_share_group_offsets, 0, request)
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        return {
            (t.topic_name, p.partition_index): ErrorCode(p.error_code).name
            for t in answer.responses
            for p in t.partitions
        }

    async def deletes_offsets(self, *topics: str, group: str = "g") -> Any:
        cls = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
        named = [cls(topic_name=name) for name in topics]
        request = DeleteShareGroupOffsetsRequest(group_id=group, topics=named)
        answer = await self.b.ask(delete_share_group_offsets, 0, request)
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        return {t.topic_name: ErrorCode(t.error_code).name for t in answer.responses}

    async def deletes(self, group: str = "g") -> str:
        answer = await self.b.ask(delete_groups, 2, DeleteGroupsRequest(groups_names=[group]))
        return ErrorCode(answer.results[0].error_code).name

    async def listed(self, **filters: Any) -> list[tuple[str, str, str, str]]:
        answer = await self.b.ask(list_groups, 5, ListGroupsRequest(**filters))
        return [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in answer.groups]


def run(body: Body, *, features: dict[str, int] | None = None, **config: Any) -> None:
    async def main(b: Any) -> None:
        await b.services.logs.load("the-cluster", 1)
        used = FEATURES if features is None else features
        await b.update_metadata(LEADERS, ids=IDS, features=used)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(b.services.completions.run)
            await nursery.start(b.services.groups.run)
            await nursery.start(b.services.share_states.run)
            await nursery.start(b.services.share.run)
            await body(Node(b))
            nursery.cancel_scope.cancel()

    given: dict[str, Any] = {
        "share_coordinator_state_topic_num_partitions": 1, "offsets_topic_num_partitions": 1,
    }  # fmt: skip
    run_in_broker(main, **given | config)


in_share_groups = running_in(run)


@in_share_groups()
async def test_who_asks_share_coordinators_keeps_no_handler(node: Node) -> None:
    await node.leads()
    no_group = {"group_id": "g", "topics": []}
    for module, request in [
        (describe_share_group_offsets, DescribeShareGroupOffsetsRequest(groups=[])),
        (alter_share_group_offsets, AlterShareGroupOffsetsRequest(**no_group)),
        (delete_share_group_offsets, DeleteShareGroupOffsetsRequest(**no_group)),
    ]:
        handle: Any = module.handle
        reply = handle(node.b.context(module, module.API.versions[1]), request)
        assert isinstance(reply, Delayed)


def partitions(assignment: Any) -> list[int] | None:
    """The partitions of t."""
    if assignment is None:
        return None
    found = {topic.topic_id: topic.partitions for topic in assignment.topic_partitions}
    assert not found.keys() - {UUID(bytes=ID)}
    return list(found.get(UUID(bytes=ID), ()))


@in_share_groups()
async def test_a_member_joins_and_is_assigned_all(node: Node) -> None:
    assert await node.code("a", 1) == "NOT_COORDINATOR"
    await node.leads()
    joined = await node.joins("a")
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "a", 1)
    assert joined.heartbeat_interval_ms == 5000
    assert partitions(joined.assignment) == [], "no state is initialized yet"
    await trio.sleep(0.1)
    told = await node.beat("a", 1)
    assert (told.member_epoch, partitions(told.assignment)) == (2, [0, 1, 2, 3])
    again = await node.beat("a", 1)
    assert (again.error_code, again.member_epoch, again.assignment) == (0, 2, None)
    full = await node.beat("a", 2, subscribed_topic_names=["t"])
    assert (full.member_epoch, partitions(full.assignment)) == (2, [0, 1, 2, 3])
    assert await node.code("a", 3) == await node.code("a", 0x7FFF) == "FENCED_MEMBER_EPOCH"
    left = await node.beat("a", -1)
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert await node.code("a", 2) == "UNKNOWN_MEMBER_ID"


@in_share_groups()
async def test_members_share_out_the_partitions(node: Node) -> None:
    await node.leads()
    await node.settles("a")
    b = await node.joins("b")
    assert len(partitions(b.assignment) or ()) == 2
    a = await node.beat("a", 2)
    assert (a.member_epoch, len(partitions(a.assignment) or ())) == (b.member_epoch, 2)
    for member in "cdefg":
        await node.joins(member)
    found = await node.describes()
    shares = [partitions(member.assignment) for member in found.members]
    assert len(shares) == 7
    assert all(share is not None and len(share) >= 1 for share in shares[1:])
    assert (found.group_state, found.assignor_name) == ("Stable", "simple")
    assert found.assignment_epoch == found.group_epoch


@in_share_groups()
async def test_what_is_no_heartbeat(node: Node) -> None:
    await node.leads()
    topics = {"subscribed_topic_names": ["t"]}
    assert await node.code("", 0, **topics) == "INVALID_REQUEST"
    assert await node.code("x" * 37, 0, **topics) == "INVALID_REQUEST"
    assert await node.code("a", 0, rack_id=" ", **topics) == "INVALID_REQUEST"
    assert await node.code("a", 0) == "INVALID_REQUEST"
    assert await node.code("a", 0, subscribed_topic_names=[]) == "INVALID_REQUEST"
    assert await node.code("a", -2, **topics) == "INVALID_REQUEST"
    assert await node.code("a", 0, group="", **topics) == "INVALID_REQUEST"
    assert await node.code("a", 1, **topics) == "GROUP_ID_NOT_FOUND"
    assert await node.code("a", -1) == "GROUP_ID_NOT_FOUND"
    assert await node.listed() == []


@in_share_groups(group_share_max_size=2)
async def test_a_group_has_room_for_so_many(node: Node) -> None:
    await node.leads()
    for member in "ab":
        assert (await node.joins(member)).error_code == 0
    refused = await node.joins("c")
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (await node.joins("a")).error_code == 0


@in_share_groups(
    group_share_session_timeout_ms=50_000, group_share_heartbeat_interval_ms=6000,
)  # fmt: skip
async def test_a_silent_members_session_ends(node: Node) -> None:
    await node.leads()
    node.b.services.groups.configs.configured("other", {SHARE_SESSION_TIMEOUT: "45000"})
    assert (await node.settles("a")).heartbeat_interval_ms == 6000
    await node.settles("a", group="other")
    await trio.sleep(46)
    assert await node.listed(states_filter=["Stable"]) == [("g", "share", "Stable", "share")]
    await trio.sleep(5)
    assert [state for _, _, state, _ in await node.listed()] == ["Empty", "Empty"]
    assert (await node.describes()).members == []


@in_share_groups()
async def test_a_groups_own_times_go_before_the_brokers(node: Node) -> None:
    await node.leads()
    node.b.services.groups.configs.configured("g", {SHARE_HEARTBEAT_INTERVAL: "7000"})
    assert (await node.joins("a")).heartbeat_interval_ms == 7000
    assert (await node.joins("a", group="other")).heartbeat_interval_ms == 5000


@in_share_groups()
async def test_another_term_knows_the_group(node: Node) -> None:
    await node.leads()
    before = await node.settles("a")
    await node.role(2)
    assert await node.code("a", before.member_epoch) == "NOT_COORDINATOR"
    await node.leads()
    again = await node.beat("a", before.member_epoch, subscribed_topic_names=["t"])
    assert (again.member_epoch, partitions(again.assignment)) == (2, [0, 1, 2, 3])
    await trio.sleep(46)
    assert (await node.describes()).group_state == "Empty"


@in_share_groups()
async def test_topics_that_come_grow_and_go(node: Node) -> None:
    await node.leads()
    joined = await node.joins("a", "later", "t")
    later = made_of("c", "later", 9)
    await node.b.update_metadata(
        LEADERS | {"later": {0: 1}}, ids=IDS | {"later": UUID(bytes=later)}, features=FEATURES
    )
    epoch = joined.member_epoch
    found: dict[UUID, list[int]] = {}
    for _ in range(6):
        await trio.sleep(0.1)
        told = await node.beat("a", epoch)
        epoch = told.member_epoch
        if told.assignment is not None:
            found = {t.topic_id: t.partitions for t in told.assignment.topic_partitions}
    assert found == {UUID(bytes=ID): [0, 1, 2, 3], UUID(bytes=later): [0]}
    await node.b.update_metadata({"later": {0: -2}}, features=FEATURES)
    told = await node.beat("a", epoch)
    assert (told.member_epoch, partitions(told.assignment)) == (epoch + 1, [0, 1, 2, 3])
    assert {topic for topic, _ in await node.offsets()} == {"t"}
    steady = await node.beat("a", epoch + 1)
    assert steady.member_epoch == epoch + 1, "and the group comes to rest"


@in_share_groups()
async def test_state_that_cannot_be_initialized_is_tried_again(node: Node) -> None:
    await node.leads()
    real, groups = node.b.services.persister, node.b.services.groups
    asked: list[SharePartitionKey] = []

    class Refusing:
        async def initialize(self, key: SharePartitionKey, *args: int) -> Any:
            asked.append(key)
            await trio.sleep(1)
            if len(asked) > 4:
                return await real.initialize(key, *args)
            return await real.initialize(key._replace(topic_id=NO_ID), *args)

    groups.persister = Refusing()
    await node.joins("a")
    await trio.sleep(0.1)
    await node.beat("a", 1)
    assert len(asked) == 4, "it is on its way"
    await trio.sleep(1)
    assert partitions((await node.beat("a", 1, subscribed_topic_names=["t"])).assignment) == []
    assert len(asked) == 4
    await trio.sleep(1.5)
    assert len(asked) == 8
    assert partitions((await node.beat("a", 1)).assignment) == [0, 1, 2, 3]


@in_share_groups()
async def test_an_id_is_that_of_one_kind_of_group(node: Node) -> None:
    await node.leads()
    await node.settles("a")
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"x")],
    )  # fmt: skip
    assert (await node.b.ask(join_group, 7, join)).error_code == (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    consumer = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="c", member_epoch=0, rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"], topic_partitions=[],
    )  # fmt: skip
    refused = await node.b.ask(consumer_group_heartbeat, 1, consumer)
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    part = topic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )

    async def commits(group: str) -> str:
        request = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=-1, member_id="",
            topics=[topic(name="t", partitions=[part])],
        )  # fmt: skip
        answer = await node.b.ask(offset_commit, 7, request)
        return ErrorCode(answer.topics[0].partitions[0].error_code).name

    assert await commits("g") == "GROUP_ID_NOT_FOUND"
    fetch = OffsetFetchRequest(group_id="g", topics=None, require_stable=False)
    assert (await node.b.ask(offset_fetch, 7, fetch)).error_code == 0, "nothing is committed"
    assert await commits("classic") == "NONE"
    assert (await node.joins("a", group="classic")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await node.describes("classic")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    asked = DescribeGroupsRequest(groups=["g"])
    (described,) = (await node.b.ask(describe_groups, 6, asked)).groups
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "ShareGroupDescribe" in described.error_message
    assert await node.listed(types_filter=["share"]) == [("g", "share", "Stable", "share")]
    assert await node.listed(types_filter=["classic"]) == [("classic", "", "Empty", "classic")]


# ------------------------------------------------------------------------------- offsets


def produce(node: Node, count: int) -> None:
    services = node.b.services
    from highwater.broker.log.parts import Origin

    batch = build_batch([Record(None, b"v", 1000) for _ in range(count)])
    partition = services.replicas.partition(TopicPartition("t", 0))
    services.replicas.append(partition, memoryview(batch), -1, Origin.CLIENT)


@in_share_groups()
async def test_start_offsets_and_lags_are_described(node: Node) -> None:
    await node.leads()
    assert await node.offsets() == {}
    assert await node.offsets("t", "no") == {
        ("t", 0): (-1, 0, -1, "NONE"), ("t", 1): (-1, 0, -1, "NONE"),
        ("no", 0): (-1, 0, -1, "NONE"), ("no", 1): (-1, 0, -1, "NONE"),
    }  # fmt: skip
    await node.settles("a")
    assert await node.offsets() == {("t", p): (-1, 0, -1, "NONE") for p in range(4)}
    produce(node, 10)
    key, persister = SharePartitionKey("g", ID, 0), node.b.services.persister
    assert not (await persister.read(key, 6)).error
    assert not (await persister.write(key, 1, 6, 2, 1, [StateBatch(4, 4, 2, 1)])).error
    assert (await node.offsets())["t", 0] == (2, 6, 7, "NONE")
    assert (await node.offsets("t", version=0))["t", 0][:2] == (2, 6)
    assert await node.offsets(group="none") == {}


@in_share_groups()
async def test_offsets_are_altered_while_the_group_is_empty(node: Node) -> None:
    await node.leads()
    assert await node.alters({"t": {0: 7, 9: 1}, "no": {0: 1}}) == {
        ("t", 0): "NONE", ("t", 9): "UNKNOWN_TOPIC_OR_PARTITION",
        ("no", 0): "UNKNOWN_TOPIC_OR_PARTITION",
    }  # fmt: skip
    assert (await node.describes()).group_state == "Empty"
    assert await node.offsets() == {("t", 0): (7, 0, -1, "NONE")}
    told = await node.settles("a")
    assert partitions(told.assignment) == [0, 1, 2, 3]
    assert (await node.offsets())["t", 0][0] == 7, "its state was not initialized again"
    assert await node.alters({"t": {0: 8}}) == "NON_EMPTY_GROUP"
    assert await node.alters({"t": {0: 8}}, group="") == "INVALID_GROUP_ID"
    await node.beat("a", -1)
    assert await node.alters({"t": {0: 3}}) == {("t", 0): "NONE"}
    assert (await node.offsets())["t", 0][0] == 3
    late = await node.b.services.persister.write(SharePartitionKey("g", ID, 0), 0, 0, 9, 0, [])
    assert late.error is ErrorCode.FENCED_STATE_EPOCH


@in_share_groups()
async def test_offsets_are_deleted_while_the_group_is_empty(node: Node) -> None:
    await node.leads()
    assert await node.deletes_offsets("t") == "GROUP_ID_NOT_FOUND"
    await node.settles("a")
    assert await node.deletes_offsets("t") == "NON_EMPTY_GROUP"
    await node.beat("a", -1)
    assert await node.deletes_offsets("t", "tt", "no") == {
        "t": "NONE", "tt": "UNKNOWN_TOPIC_OR_PARTITION", "no": "UNKNOWN_TOPIC_OR_PARTITION",
    }  # fmt: skip
    assert await node.offsets() == {}
    assert not node.b.services.share_states.shards[0].states
    assert await node.deletes_offsets("t") == {"t": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert partitions((await node.settles("a")).assignment) == [0, 1, 2, 3]


@in_share_groups()
async def test_a_group_is_deleted_with_its_state(node: Node) -> None:
    await node.leads()
    await node.settles("a")
    assert await node.deletes() == "NON_EMPTY_GROUP"
    await node.beat("a", -1)
    assert await node.deletes() == "NONE"
    assert await node.listed() == []
    assert await node.deletes() == "GROUP_ID_NOT_FOUND"
    services = node.b.services
    assert not services.share_states.shards[0].states
    await node.role(2)
    await node.leads()
    assert not services.groups.shards[0].share_groups
    assert (await node.joins("a")).member_epoch == 1


@in_share_groups()
async def test_a_member_comes_while_the_state_is_deleted(node: Node) -> None:
    """Its share-partitions are initialized afterwards, and not in between."""
    await node.leads()
    await node.settles("a")
    await node.beat("a", -1)
    real, codes = node.b.services.persister, list[str]()

    class Slow:
        initialize, summary = real.initialize, real.summary

        async def delete(self, key: SharePartitionKey) -> Any:
            await trio.sleep(1)
            return await real.delete(key)

    node.b.services.groups.persister = Slow()

    async def delete() -> None:
        codes.append(await node.deletes())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete)
        await trio.sleep(0.2)
        joined = await node.joins("b")
        assert partitions(joined.assignment) == []
        await trio.sleep(0.2)
        assert partitions((await node.joins("b")).assignment) == []
    assert codes == ["NON_EMPTY_GROUP"]
    assert partitions((await node.settles("b")).assignment) == [0, 1, 2, 3]
    for number in range(4):
        read = await real.read(SharePartitionKey("g", ID, number), 0)
        assert read.error is ErrorCode.NONE


# ------------------------------------------------------------------------------- rights, metrics


@in_share_groups()
async def test_what_a_client_must_be_allowed(node: Node) -> None:
    await node.leads()
    await node.settles("a")
    acls = node.b.services.authorizer = Acls([], open_without_rules=False)
    (read,) = share_group_heartbeat.API.access.whole
    asked = ShareGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=0)
    assert read(asked, asked)[0][:3] == (Operation.READ, ResourceType.GROUP, "g")
    topics = {"subscribed_topic_names": ["t"]}
    assert await node.code("a", 0, **topics) == "TOPIC_AUTHORIZATION_FAILED"
    assert await node.offsets() == {}
    assert (await node.offsets("t"))["t", 0][3] == "TOPIC_AUTHORIZATION_FAILED"
    allow = Entry("User:ANONYMOUS", "*", Operation.DESCRIBE, Permission.ALLOW)
    acls.put(Resource(ResourceType.TOPIC, "t"), [allow])
    assert await node.code("a", 0, **topics) == "NONE"
    assert (await node.offsets())["t", 0][3] == "NONE"
    for module, operation in (
        (alter_share_group_offsets, Operation.READ), (delete_share_group_offsets, Operation.DELETE),
    ):  # fmt: skip
        (whole,) = module.API.access.whole
        assert whole(asked, asked)[0][:3] == (operation, ResourceType.GROUP, "g")


@in_share_groups(features={TOPIC_IDS: 1})
async def test_without_the_feature_nothing_is_offered(node: Node) -> None:
    await node.leads()
    assert (await node.joins("a")).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await node.describes()).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert await node.offsets() == "UNSUPPORTED_VERSION"
    assert await node.alters({"t": {0: 1}}) == "UNSUPPORTED_VERSION"
    assert await node.deletes_offsets("t") == "UNSUPPORTED_VERSION"


@in_share_groups()
async def test_metrics_count_groups_by_state(node: Node) -> None:
    await node.leads()
    registry = Registry()
    register_group_metrics(registry, node.b.services.groups)
    await node.settles("a")
    await node.settles("a", group="h")
    await node.beat("a", -1, group="h")
    page = exposition(registry.families(0))
    prefix = "kafka_server_group_coordinator_metrics_"
    for line in (
        'group_count{protocol="share"} 2',
        'share_group_count{state="Stable"} 1',
        'share_group_count{state="Empty"} 1',
        "share_group_rebalance_count 4",
    ):
        assert prefix + line in page, page


@pytest.mark.parametrize("isr", [(1, 2)])
@in_share_groups()
async def test_an_answer_waits_for_its_records(node: Node, isr: tuple[int, ...]) -> None:
    await node.leads()
    await node.settles("a")
    await node.role(1, isr)
    while not node.b.services.groups.shards[0].loaded:
        await trio.sleep(0.01)
    began = trio.current_time()
    assert (await node.joins("b")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert trio.current_time() - began == pytest.approx(5, abs=0.2)
    assert len((await node.describes()).members) == 1, "only what is committed is shown"
    with pytest.raises(ApiError):
        node.b.services.groups.shard_of("g").new_group("g")
