"""The consumer protocol on one broker: heartbeats, descriptions, and offsets of its members."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import trio

from highwater.base.metrics import Registry, exposition
from highwater.broker.coordinator.group.group_metrics import register_group_metrics
from highwater.broker.handlers import (
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    leave_group,
    list_groups,
    offset_delete,
    offset_fetch,
)
from highwater.kafka.errors import ErrorCode
from highwater.kafka.features import GROUP_VERSION, TOPIC_IDS
from highwater.kafka.security.acls import Acls, Entry, Operation, Permission, Resource, ResourceType
from highwater.kafka.topic_ids import made_of
from highwater.kafka.wire.messages import (
    ApiVersionsRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from tests.running import Body, running_in
from tests.unit.broker.handlers.conftest import run_in_broker
from tests.unit.broker.handlers.test_groups import SETTINGS, TOPIC, Node

ID, OTHER = UUID(bytes=made_of("c", "t", 1)), UUID(bytes=made_of("c", "tt", 1))
LEADERS = {TOPIC: {0: 1}, "t": dict.fromkeys(range(4), 1)}
Request = ConsumerGroupHeartbeatRequest


class Consumers(Node):
    async def beat(
        self, member_id: str, epoch: int, *, version: int = 1, group: str = "g", **request: Any
    ) -> Any:
        asked = Request(group_id=group, member_id=member_id, member_epoch=epoch, **request)
        return await self.b.ask(consumer_group_heartbeat, version, asked)

    async def joins(self, member_id: str, *, version: int = 1, **request: Any) -> Any:
        asked: dict[str, Any] = {
            "rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"],
            "topic_partitions": [], **request,
        }  # fmt: skip
        return await self.beat(member_id, 0, version=version, **asked)

    async def code(self, member_id: str, epoch: int, **request: Any) -> str:
        return ErrorCode((await self.beat(member_id, epoch, **request)).error_code).name

    async def describes(self, group: str = "g", version: int = 1) -> Any:
        asked = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
        (found,) = (await self.b.ask(consumer_group_describe, version, asked)).groups
        return found

    async def listed(self, **filters: Any) -> list[tuple[str, str, str, str]]:
        answer = await self.b.ask(list_groups, 5, ListGroupsRequest(**filters))
        return [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in answer.groups]

    async def committed(self, member_id: str | None, epoch: int, version: int = 9) -> Any:
        """The offset of t-0, or an error."""
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id="g", member_id=member_id, member_epoch=epoch, topics=None
        )
        request = OffsetFetchRequest(groups=[group], require_stable=False)
        (found,) = (await self.b.ask(offset_fetch, version, request)).groups
        if found.error_code:
            return ErrorCode(found.error_code).name
        return [p.committed_offset for t in found.topics for p in t.partitions]


def run(
    body: Body, *, features: tuple[str, ...] = (GROUP_VERSION, TOPIC_IDS), **config: Any
) -> None:
    async def main(b: Any) -> None:
        await b.services.logs.load("the-cluster", 1)
        await b.update_metadata(LEADERS, ids={"t": ID}, features=dict.fromkeys(features, 1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(b.services.completions.run)
            await nursery.start(b.services.groups.run)
            await body(Consumers(b))
            nursery.cancel_scope.cancel()

    run_in_broker(main, **SETTINGS | config)


in_consumers = running_in(run)


def partitions(assignment: Any) -> list[int] | None:
    """The partitions of t."""
    if assignment is None:
        return None
    found = {topic.topic_id: topic.partitions for topic in assignment.topic_partitions}
    assert not found.keys() - {ID}
    return list(found.get(ID, ()))


def owned(numbers: Iterable[int]) -> list[Any]:
    return [Request.TopicPartitions(topic_id=ID, partitions=list(numbers))]


@pytest.mark.parametrize("version", [0, 1])
@in_consumers()
async def test_a_member_joins_and_is_assigned_all(node: Consumers, version: int) -> None:
    assert await node.code("a", 1) == "NOT_COORDINATOR"
    await node.leads()
    joined = await node.joins("a", version=version)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "a", 1)
    assert joined.heartbeat_interval_ms == 5000
    assert partitions(joined.assignment) == [0, 1, 2, 3]
    again = await node.beat("a", 1, version=version)
    assert (again.error_code, again.assignment) == (0, None)
    refused = await node.beat("a", 2, version=version)
    assert refused.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "join again" in refused.error_message


@in_consumers()
async def test_the_coordinator_gives_ids_to_members_of_v0_alone(node: Consumers) -> None:
    await node.leads()
    joined = await node.joins("", version=0)
    assert len(joined.member_id) > 20
    assert await node.code("", 0) == "INVALID_REQUEST"
    assert await node.code("", joined.member_epoch, version=0) == "INVALID_REQUEST"


@in_consumers()
async def test_a_heartbeat_is_answered_when_its_records_are_committed(node: Consumers) -> None:
    await node.leads(isr=(1, 2))
    answers: list[Any] = []

    async def joins(member_id: str) -> None:
        answers.append(await node.joins(member_id))

    async def beats() -> None:
        answers.append(await node.beat("b", 2))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(joins, "a")
        await trio.sleep(1)
        nursery.start_soon(joins, "b")
        await trio.sleep(1)
        nursery.start_soon(beats)
        await trio.sleep(1)
        assert answers == [], "even the one that changes nothing"
        node.follower_has_all()
    assert sorted(a.member_id for a in answers) == ["a", "b", "b"]
    assert sorted(a.member_epoch for a in answers) == [1, 2, 2]


@in_consumers()
async def test_a_heartbeat_that_is_not_committed_in_time_says_so(node: Consumers) -> None:
    await node.leads(isr=(1, 2))
    joined = await node.joins("a")
    assert joined.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    node.follower_has_all()
    assert (await node.joins("a")).member_epoch == 1, "the log decides"


@in_consumers()
async def test_a_silent_members_session_ends(node: Consumers) -> None:
    await node.leads()
    await node.joins("a")
    await trio.sleep(40)
    assert await node.code("a", 1) == "NONE"
    await trio.sleep(40)
    assert await node.code("a", 1) == "NONE"
    await trio.sleep(46)
    assert await node.code("a", 1) == "UNKNOWN_MEMBER_ID"
    assert (await node.describes()).group_state == "Empty"


@in_consumers()
async def test_a_session_that_could_not_be_ended_is_ended_later(node: Consumers) -> None:
    await node.leads()
    await node.joins("a")
    log = node.b.services.groups.shards[0].partition.leader_log()
    before = log.config
    log.config = replace(before, max_message_bytes=1)
    await trio.sleep(46)
    assert (await node.describes()).group_state == "Stable"
    left = await node.beat("a", -1)
    assert left.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    log.config = before
    await trio.sleep(2)
    assert (await node.describes()).group_state == "Empty"


@in_consumers()
async def test_a_member_that_could_not_be_put_out_is_put_out_later(node: Consumers) -> None:
    """The one that keeps partitions for too long goes on sending heartbeats, and they are taken."""
    await node.leads()
    await node.joins("a")
    await node.joins("b")
    assert partitions((await node.beat("a", 1)).assignment) == [0, 1]
    assert await node.code("b", 2) == "NONE"
    log = node.b.services.groups.shards[0].partition.leader_log()
    before = log.config
    log.config = replace(before, max_message_bytes=1)
    for _ in range(4):
        await trio.sleep(20)
        assert [await node.code("a", 1), await node.code("b", 2)] == ["NONE", "NONE"]
    log.config = before
    await trio.sleep(2)
    assert [await node.code("a", 1), await node.code("b", 2)] == ["UNKNOWN_MEMBER_ID", "NONE"]


@in_consumers()
async def test_a_group_lives_on_at_the_next_leader(node: Consumers) -> None:
    await node.leads()
    await node.joins("a")
    await node.joins("b")
    await node.role(2)
    assert await node.code("a", 1) == "NOT_COORDINATOR"
    await node.leads()
    first = await node.beat("a", 1)
    assert partitions(first.assignment) == [0, 1]
    given = await node.beat("a", 1, topic_partitions=owned([0, 1]))
    assert given.member_epoch == 2
    assert partitions((await node.beat("b", 2)).assignment) == [2, 3]
    assert (await node.describes()).group_state == "Stable"
    await trio.sleep(46)
    assert await node.listed() == [("g", "consumer", "Empty", "consumer")]


@pytest.mark.parametrize("version", [0, 1])
@in_consumers()
async def test_a_group_is_described(node: Consumers, version: int) -> None:
    await node.leads()
    await node.joins("a", rack_id="r", instance_id="i", server_assignor="range")
    found = await node.describes(version=version)
    assert (found.error_code, found.group_state) == (0, "Stable")
    assert (found.group_epoch, found.assignment_epoch, found.assignor_name) == (1, 1, "range")
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("a", "i", "r")
    assert (member.member_epoch, member.subscribed_topic_names) == (1, ["t"])
    assert member.client_host.startswith("/")
    for assignment in (member.assignment, member.target_assignment):
        (topic,) = assignment.topic_partitions
        assert (topic.topic_id, topic.topic_name, topic.partitions) == (ID, "t", [0, 1, 2, 3])
    assert member.member_type == (1 if version >= 1 else -1)
    assert found.authorized_operations
    missing = await node.describes("missing", version)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    old = await node.b.ask(describe_groups, 5, DescribeGroupsRequest(groups=["g"]))
    assert (old.groups[0].error_code, old.groups[0].group_state) == (0, "Dead")
    newer = await node.b.ask(describe_groups, 6, DescribeGroupsRequest(groups=["g", "missing"]))
    for group in newer.groups:
        assert (group.error_code, group.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
        assert group.error_message.startswith(group.group_id)


@in_consumers()
async def test_groups_are_listed_by_type_and_state(node: Consumers) -> None:
    await node.leads()
    await node.joins("a")
    assert await node.commit(5) == "UNKNOWN_MEMBER_ID"
    everything = [("g", "consumer", "Stable", "consumer")]
    assert await node.listed() == everything
    assert await node.listed(types_filter=["Consumer"]) == everything
    assert await node.listed(types_filter=["classic"]) == []
    assert await node.listed(states_filter=["stable"]) == everything
    assert await node.listed(states_filter=["Empty"]) == []


@in_consumers()
async def test_offsets_are_committed_and_fetched_by_epochs(node: Consumers) -> None:
    await node.leads()
    await node.joins("a")
    mine = {"member_id": "a", "version": 9}
    assert await node.commit(5, generation_id_or_member_epoch=1, **mine) == "NONE"
    assert await node.commit(6, generation_id_or_member_epoch=0, **mine) == "STALE_MEMBER_EPOCH"
    assert await node.commit(6, generation_id_or_member_epoch=2, **mine) == "STALE_MEMBER_EPOCH"
    old = {"member_id": "a", "version": 8, "generation_id_or_member_epoch": 1}
    assert await node.commit(6, **old) == "UNSUPPORTED_VERSION"
    other = {"member_id": "x", "version": 9, "generation_id_or_member_epoch": 1}
    assert await node.commit(6, **other) == "UNKNOWN_MEMBER_ID"
    assert await node.committed("a", 1) == [5]
    assert await node.committed(None, -1) == [5]
    assert await node.committed("a", 2) == "STALE_MEMBER_EPOCH"
    assert await node.committed("x", 1) == "UNKNOWN_MEMBER_ID"
    await node.beat("a", -1)
    assert await node.commit(7, version=9) == "NONE", "the group is empty"


@in_consumers()
async def test_only_an_empty_group_is_deleted(node: Consumers) -> None:
    async def deleted() -> str:
        asked = DeleteGroupsRequest(groups_names=["g"])
        (found,) = (await node.b.ask(delete_groups, 2, asked)).results
        return ErrorCode(found.error_code).name

    async def forgotten(topic: str) -> str:
        cls = OffsetDeleteRequest.OffsetDeleteRequestTopic
        partition = cls.OffsetDeleteRequestPartition(partition_index=0)
        asked = OffsetDeleteRequest(group_id="g", topics=[cls(name=topic, partitions=[partition])])
        answer = await node.b.ask(offset_delete, 0, asked)
        return ErrorCode(answer.topics[0].partitions[0].error_code).name

    await node.leads()
    await node.joins("a")
    mine = {"member_id": "a", "version": 9, "generation_id_or_member_epoch": 1}
    assert await node.commit(5, **mine) == "NONE"
    assert await deleted() == "NON_EMPTY_GROUP"
    assert await forgotten("t") == "GROUP_SUBSCRIBED_TO_TOPIC"
    await node.beat("a", -1)
    assert await deleted() == "NONE"
    assert await deleted() == "GROUP_ID_NOT_FOUND"
    assert await node.listed() == []
    await node.role(2)
    await node.leads()
    assert await node.listed() == []


@in_consumers(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
async def test_an_empty_group_without_offsets_goes(node: Consumers) -> None:
    await node.leads()
    await node.joins("a")
    mine = {"member_id": "a", "version": 9, "generation_id_or_member_epoch": 1}
    assert await node.commit(5, **mine) == "NONE"
    for _ in range(3):
        await trio.sleep(40)
        assert await node.code("a", 1) == "NONE"
    assert await node.committed("a", 1) == [5], "the group reads the topic"
    await node.beat("a", -1)
    await trio.sleep(3)
    assert await node.listed() == []
    await node.role(2)
    await node.leads()
    assert await node.listed() == []


@pytest.mark.parametrize("version", range(6))
@in_consumers()
async def test_an_administrator_has_members_leave(node: Consumers, version: int) -> None:
    await node.leads()
    for member_id in "abc":
        await node.joins(member_id, instance_id=f"i{member_id}" if member_id == "c" else None)
    if version < 3:
        request = LeaveGroupRequest(group_id="g", member_id="a")
        assert (await node.b.ask(leave_group, version, request)).error_code == 0
        assert len((await node.describes()).members) == 2
        return
    epoch = (await node.describes()).group_epoch
    named = [("a", None), ("x", None), ("", "ic"), ("a", "ic"), ("", "nobody")]
    cls = LeaveGroupRequest.MemberIdentity
    members = [cls(member_id=member, group_instance_id=instance) for member, instance in named]
    request = LeaveGroupRequest(group_id="g", members=members)
    answer = await node.b.ask(leave_group, version, request)
    assert [ErrorCode(m.error_code).name for m in answer.members] == [
        "NONE", "UNKNOWN_MEMBER_ID", "NONE", "FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID",
    ]  # fmt: skip
    found = await node.describes()
    assert ([m.member_id for m in found.members], found.group_epoch) == (["b"], epoch + 1)


@in_consumers(group_consumer_max_size=1)
async def test_a_group_has_room_for_so_many(node: Consumers) -> None:
    await node.leads()
    await node.joins("a")
    assert (await node.joins("b")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


@in_consumers(group_consumer_assignors="range")
async def test_the_first_assignor_is_the_default(node: Consumers) -> None:
    await node.leads()
    await node.joins("a")
    assert (await node.describes()).assignor_name == "range"
    refused = await node.joins("b", server_assignor="uniform")
    assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR


@in_consumers()
async def test_an_empty_group_changes_its_protocol(node: Consumers) -> None:
    await node.leads()
    member = await node.member()
    assert (await node.joins("a")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    committed = {"generation_id_or_member_epoch": 1, "member_id": member}
    assert await node.commit(5, **committed) == "NONE"
    await trio.sleep(11)
    assert await node.listed() == [("g", "consumer", "Empty", "classic")]
    assert (await node.joins("a")).member_epoch == 1
    assert await node.committed("a", 1) == [5]
    assert await node.listed() == [("g", "consumer", "Stable", "consumer")]
    await node.role(2)
    await node.leads()
    assert await node.listed() == [("g", "consumer", "Stable", "consumer")]
    await node.beat("a", -1)
    assert (await node.join("x")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert await node.listed() == [("g", "consumer", "Empty", "consumer")]
    joined = await node.join()
    assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert (await node.join(joined.member_id)).generation_id == 1
    assert await node.code("a", 1) == "GROUP_ID_NOT_FOUND"
    await node.role(2)
    await node.leads()
    assert await node.fetch() == ("NONE", 5)
    assert [found[3] for found in await node.listed()] == ["classic"]


@in_consumers()
async def test_a_regular_expression_stands_for_topics(node: Consumers) -> None:
    pytest.importorskip("re2")
    await node.leads()
    chosen: dict[str, Any] = {"subscribed_topic_names": None}
    wrong = await node.joins("a", **chosen, subscribed_topic_regex="(")
    assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert await node.listed() == []
    joined = await node.joins("a", **chosen, subscribed_topic_regex="t.*")
    assert (joined.member_epoch, partitions(joined.assignment)) == (1, [])
    await trio.sleep(1)
    found = await node.beat("a", 1)
    assert (found.member_epoch, partitions(found.assignment)) == (2, [0, 1, 2, 3])
    (member,) = (await node.describes()).members
    assert member.subscribed_topic_regex == "t.*"
    ids, features = {"t": ID, "tt": OTHER}, (GROUP_VERSION, TOPIC_IDS)
    await node.b.update_metadata(
        LEADERS | {"tt": {0: 1}}, ids=ids, features=dict.fromkeys(features, 1)
    )
    await trio.sleep(11)
    assert (await node.beat("a", 2)).assignment is None, "it is looked up"
    await trio.sleep(1)
    found = await node.beat("a", 2)
    assert {t.topic_id for t in found.assignment.topic_partitions} == {ID, OTHER}
    await node.role(2)
    await node.leads()
    assert await node.code("a", 3) == "NONE"


@in_consumers(features=(TOPIC_IDS,))
async def test_without_the_feature_there_is_no_such_protocol(node: Consumers) -> None:
    await node.leads()
    refused = await node.joins("a")
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "group.protocol=classic" in refused.error_message
    assert (await node.describes()).error_code == ErrorCode.UNSUPPORTED_VERSION


@in_consumers()
async def test_the_apis_are_offered_while_the_feature_is_in_use(node: Consumers) -> None:
    request = ApiVersionsRequest(client_software_name="a-b", client_software_version="1.0")
    found = await node.b.ask(api_versions, 3, request)
    offered = {k.api_key: (k.min_version, k.max_version) for k in found.api_keys}
    assert offered[68] == offered[69] == (0, 1)


@in_consumers()
async def test_topics_that_a_client_may_not_describe_are_refused(node: Consumers) -> None:
    await node.leads()
    assert (await node.joins("a")).error_code == 0
    acls = node.b.services.authorizer = Acls([], open_without_rules=False)
    anybody = Entry("User:*", "*", Operation.DESCRIBE, Permission.ALLOW)
    acls.put(Resource(ResourceType.GROUP, "g"), [anybody])
    refused = await node.joins("b")
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    described = await node.describes()
    assert described.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert described.members == []
    acls.put(Resource(ResourceType.TOPIC, "t"), [anybody])
    assert (await node.joins("b")).error_code == 0
    assert len((await node.describes()).members) == 2


@in_consumers()
async def test_what_is_not_committed_is_not_shown(node: Consumers) -> None:
    await node.leads()
    await node.member()
    await trio.sleep(11)
    await node.joins("a")
    await node.role(2)
    await node.leads(isr=(1, 2))

    async def shown() -> list[str]:
        found = await node.describes()
        return [m.member_id for m in found.members]

    assert await shown() == ["a"]
    assert (await node.joins("b")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await shown() == ["a"]
    assert await node.listed() == [("g", "consumer", "Stable", "consumer")]
    new = await node.beat(
        "x", 0, group="h", rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
    )
    assert new.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await node.describes("h")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert len(await node.listed()) == 1
    node.follower_has_all()
    assert await shown() == ["a", "b"]
    assert sorted(await node.listed()) == [
        ("g", "consumer", "Reconciling", "consumer"), ("h", "consumer", "Stable", "consumer"),
    ]  # fmt: skip


@in_consumers()
async def test_groups_are_counted_by_protocol_and_state(node: Consumers) -> None:
    metrics = Registry()
    register_group_metrics(metrics, node.b.services.groups)
    prefix = "kafka_server_group_coordinator_metrics_"

    def shown(name: str) -> float:
        page = exposition(metrics.families(0))
        (line,) = (x for x in page.splitlines() if x.startswith(f"{prefix}{name} "))
        return float(line.rpartition(" ")[2])

    await node.leads()
    await node.member()
    assert shown('group_count{protocol="classic"}') == 1
    assert shown('group_count{protocol="consumer"}') == 0
    await trio.sleep(11)
    await node.joins("a")
    assert shown('group_count{protocol="classic"}') == 0
    assert shown('group_count{protocol="consumer"}') == 1
    assert shown('consumer_group_count{state="Stable"}') == 1
    assert shown("consumer_group_rebalance_count") == 1
    await node.joins("b")
    await node.beat("b", 2)
    assert shown('consumer_group_count{state="Stable"}') == 0
    assert shown('consumer_group_count{state="Reconciling"}') == 1
    assert shown("consumer_group_rebalance_count") == 2
    assert 0 < shown("consumer_group_rebalance_rate") < 0.07
    await trio.sleep(61)
    assert shown('consumer_group_count{state="Empty"}') == 1
    assert shown("consumer_group_rebalance_rate") == 0
