"""The group APIs on one broker: its role for a partition of __consumer_offsets comes and goes."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from highwater.base.metrics import Registry, exposition
from highwater.broker.coordinator.group.group_metrics import register_group_metrics
from highwater.broker.handlers import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import FetchPartition
from highwater.kafka.wire.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from highwater.world.sim.failing_call import FailingCall
from tests.running import Body, running_in
from tests.unit.broker.handlers.conftest import Led, in_broker, run_in_broker

TOPIC = "__consumer_offsets"
TP = TopicPartition(TOPIC, 0)
SETTINGS = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 1}


class Node(Led):
    topics = (TOPIC,)

    async def leads(self, isr: tuple[int, ...] = (1,)) -> None:
        """The broker leads, and has loaded the partition."""
        await self.role(1, isr)
        while not self.b.services.groups.shards[0].loaded:
            await trio.sleep(0.01)

    def follower_has_all(self) -> None:
        replicas = self.b.services.replicas
        end = replicas.partition(TP).leader_log().log_end_offset
        replicas.follower_progress(FetchPartition(TP, -1, end, 0, 1000, -1), 2)

    @property
    def end(self) -> int:
        return int(self.b.services.replicas.partition(TP).leader_log().log_end_offset)

    async def commit(self, offset: int, **changed: Any) -> str:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        partition = topic.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata="m"
        )
        version = changed.pop("version", 7)
        request = OffsetCommitRequest(
            group_id="g", topics=[topic(name="t", partitions=[partition])], **changed
        )
        answer = await self.b.ask(offset_commit, version, request)
        return ErrorCode(answer.topics[0].partitions[0].error_code).name

    async def fetch(self) -> tuple[str, int | None]:
        """The error, and the offset of t-0."""
        request = OffsetFetchRequest(group_id="g", topics=None, require_stable=False)
        answer = await self.b.ask(offset_fetch, 7, request)
        found = [p.committed_offset for t in answer.topics for p in t.partitions]
        return ErrorCode(answer.error_code).name, found[0] if found else None

    async def stable(self, version: int = 7) -> list[int | str]:
        """The group's offsets that nothing may change any more, or errors."""
        groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)]
        request = OffsetFetchRequest(group_id="g", topics=None, groups=groups, require_stable=True)
        answer = await self.b.ask(offset_fetch, version, request)
        found = answer.groups[0] if version >= 8 else answer
        if found.error_code:
            return [ErrorCode(found.error_code).name]
        return [
            ErrorCode(p.error_code).name if p.error_code else p.committed_offset
            for t in found.topics
            for p in t.partitions
        ]

    async def join(self, member_id: str = "") -> Any:
        request = JoinGroupRequest(
            group_id="g", session_timeout_ms=10000, rebalance_timeout_ms=30000,
            member_id=member_id, protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"s")],
        )  # fmt: skip
        return await self.b.ask(join_group, 7, request)

    async def member(self) -> str:
        """A group of one."""
        member_id = (await self.join()).member_id
        joined = await self.join(member_id)
        assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, member_id)
        answer = await self.sync(member_id)
        assert (answer.error_code, bytes(answer.assignment)) == (0, b"all")
        return str(member_id)

    async def sync(
        self, member_id: str, generation: int = 1, what: bytes = b"all", **changed: Any
    ) -> Any:
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(
            member_id=member_id, assignment=what
        )
        request = SyncGroupRequest(
            group_id="g", generation_id=generation, member_id=member_id, assignments=[assignment],
            **{"protocol_type": "consumer", "protocol_name": "range", **changed},
        )  # fmt: skip
        return await self.b.ask(sync_group, 5, request)

    async def heartbeat(self, member_id: str) -> str:
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
        return ErrorCode((await self.b.ask(heartbeat, 4, request)).error_code).name

    async def state(self) -> tuple[str, str, int]:
        (group,) = (
            await self.b.ask(describe_groups, 5, DescribeGroupsRequest(groups=["g"]))
        ).groups
        return ErrorCode(group.error_code).name, group.group_state, len(group.members)


def run(body: Body, **config: Any) -> None:
    async def main(b: Any) -> None:
        await b.services.logs.load("the-cluster", 1)
        await b.update_metadata({TOPIC: {0: 1}, "t": {0: 1}})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(b.services.completions.run)
            await nursery.start(b.services.groups.run)
            await body(Node(b))
            nursery.cancel_scope.cancel()

    run_in_broker(main, **SETTINGS | config)


in_node = running_in(run)


@in_node()
async def test_the_longest_retention_of_an_offset_is_for_ever(node: Node) -> None:
    """It ended with a traceback (`scripts/long fuzz`, part 22): now and it are over 63 bits."""
    await node.leads()
    assert await node.commit(5, version=4, retention_time_ms=(1 << 63) - 1) == "NONE"
    await node.role(2)
    await node.leads()
    assert await node.fetch() == ("NONE", 5)


@in_node()
async def test_a_group_lives_on_at_the_next_leader(node: Node) -> None:
    assert await node.fetch() == ("NOT_COORDINATOR", None)
    await node.leads()
    member = await node.member()
    committed = {"generation_id_or_member_epoch": 1, "member_id": member}
    assert await node.commit(5, **committed) == "NONE"
    assert await node.commit(7) == "UNKNOWN_MEMBER_ID"
    await node.role(2)
    assert await node.heartbeat(member) == "NOT_COORDINATOR"
    assert await node.state() == ("NOT_COORDINATOR", "", 0)
    await node.leads()
    assert await node.state() == ("NONE", "Stable", 1)
    metrics = Registry()
    register_group_metrics(metrics, node.b.services.groups)
    page = exposition(metrics.families(0))
    prefix = "kafka_coordinator_group_groupmetadatamanager_num"
    for line in ("groups 1", "offsets 1", "groupsstable 1", "groupsempty 0"):
        assert f"{prefix}{line}" in page
    assert await node.fetch() == ("NONE", 5)
    assert await node.heartbeat(member) == "NONE"
    assert await node.commit(6, **committed) == "NONE"
    await trio.sleep(11)  # the session began again, and ends
    assert await node.heartbeat(member) == "UNKNOWN_MEMBER_ID"
    assert await node.state() == ("NONE", "Empty", 0)


@in_node()
async def test_a_log_that_cannot_be_read_takes_its_directory_offline(node: Node) -> None:
    await node.leads()
    assert await node.commit(5) == "NONE"
    await node.role(2)
    node.b.failed_dirs = []
    disk = node.b.services.world.process.host.disk
    disk.failing = FailingCall("read", f"/data/{TP}/", ".log")
    await node.role(1)
    with trio.fail_after(1):
        await disk.failing.struck.wait()
        while not node.b.failed_dirs:
            await trio.sleep(0.01)
    assert node.b.failed_dirs == ["/data"]
    assert await node.fetch() == ("NOT_COORDINATOR", None)


@in_node()
async def test_nothing_is_served_before_the_hw_is_where_the_log_ended(node: Node) -> None:
    await node.leads()
    assert await node.commit(5) == "NONE"
    await node.role(2)
    partition = node.b.services.replicas.partition(TP)
    partition.host(partition.log, 0, 1)  # as a checkpoint may say
    await node.role(1, (1, 2))
    await trio.sleep(5)
    assert (await node.fetch())[0] == "COORDINATOR_LOAD_IN_PROGRESS"
    listed = await node.b.ask(list_groups, 4, ListGroupsRequest(states_filter=[]))
    assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await node.heartbeat("m") == "NONE"
    node.follower_has_all()
    await trio.sleep(0.1)
    assert await node.fetch() == ("NONE", 5)


@in_node()
async def test_a_commit_is_answered_and_shown_when_all_replicas_have_it(node: Node) -> None:
    await node.leads((1, 2))
    answers: list[str] = []

    async def commits() -> None:
        answers.append(await node.commit(5))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(commits)
        await trio.sleep(1)
        assert (answers, await node.fetch()) == ([], ("NONE", None))
        node.follower_has_all()
    assert (answers, await node.fetch()) == (["NONE"], ("NONE", 5))
    assert await node.commit(6) == "REQUEST_TIMED_OUT"
    assert await node.fetch() == ("NONE", 5)
    node.follower_has_all()  # it was appended, and it counts now
    assert await node.fetch() == ("NONE", 6)


@pytest.mark.parametrize("version", [7, 9])
@in_node()
async def test_stable_offsets_wait_for_the_commits_before_them_alone(
    node: Node, version: int
) -> None:
    """In a group that commits all the time, one commit is always on its way."""

    await node.leads((1, 2))
    answers: list[Any] = []

    async def asks() -> None:
        answers.append(await node.stable(version))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.commit, 5)
        await trio.sleep(0.1)
        before = node.end
        nursery.start_soon(asks)
        await trio.sleep(0.1)
        nursery.start_soon(node.commit, 6)
        await trio.sleep(0.1)
        assert (answers, node.end) == ([], before + 1)
        replicas = node.b.services.replicas
        replicas.follower_progress(FetchPartition(TP, -1, before, 0, 1000, -1), 2)
        await trio.sleep(0.1)
        assert answers == [[5]], "the later commit is not waited for, and not shown"
        node.follower_has_all()
    assert await node.stable(version) == [6]


@pytest.mark.parametrize("version", [7, 9])
@in_node()
async def test_a_commit_that_timed_out_is_not_waited_for_and_counts_once_all_have_it(
    node: Node, version: int
) -> None:
    await node.leads()
    assert await node.commit(5) == "NONE"
    await node.leads((1, 2))
    assert await node.commit(6) == "REQUEST_TIMED_OUT"
    asked = trio.current_time()
    assert await node.stable(version) == [5]
    assert trio.current_time() - asked < 0.1, "answered at once"
    node.follower_has_all()
    await trio.sleep(0.1)
    assert await node.stable(version) == [6]


@pytest.mark.parametrize("version", [7, 9])
@in_node()
async def test_stable_offsets_are_not_waited_for_without_end(node: Node, version: int) -> None:
    await node.leads()
    assert await node.commit(4) == "NONE"
    await node.leads((1, 2))
    answers: list[Any] = []

    async def asks() -> None:
        answers.append(await node.stable(version))

    async with trio.open_nursery() as nursery:
        for offset in (5, 6):
            nursery.start_soon(node.commit, offset)
            await trio.sleep(0.1)
            nursery.start_soon(asks)
            await trio.sleep(0.1)
        await trio.sleep(4.6)
        assert answers == []
        await trio.sleep(0.2)  # offsets.commit.timeout.ms
        assert answers == [["UNSTABLE_OFFSET_COMMIT"]], "the second commit is still awaited"
        await node.role(2)
    assert answers[1:] == [["NOT_COORDINATOR"]]


@in_node()
async def test_who_waits_hears_of_the_move_at_once(node: Node) -> None:
    await node.leads((1, 2))
    member_id = (await node.join()).member_id
    await node.join(member_id)
    answers: list[Any] = []

    async def syncs() -> None:
        answers.append(await node.sync(member_id))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(syncs)
        await trio.sleep(1)
        assert answers == []
        started = trio.current_time()
        await node.role(2)
    assert answers[0].error_code == ErrorCode.NOT_COORDINATOR
    assert trio.current_time() - started < 0.1


@in_node()
async def test_an_assignment_too_large_for_the_log_is_refused_at_once(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    await node.leads()
    member_id = (await node.join()).member_id
    await node.join(member_id)
    with trio.fail_after(1):
        answer = await node.sync(member_id, what=bytes(2 << 20))
    assert ErrorCode(answer.error_code) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert (await node.state())[:2] == ("NONE", "PreparingRebalance")
    (line,) = [r.getMessage() for r in caplog.records if "appended" in r.getMessage()]
    assert line.startswith("group g: nothing could be appended to __consumer_offsets-0: ")


@in_node()
async def test_a_sync_names_its_protocol(node: Node) -> None:
    await node.leads()
    member_id = (await node.join()).member_id
    await node.join(member_id)
    changes: list[dict[str, Any]] = [{"protocol_type": None}, {"protocol_name": None}]
    for change in changes:
        answer = await node.sync(member_id, **change)
        assert ErrorCode(answer.error_code) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await node.state())[1] == "CompletingRebalance"
    assert (await node.sync(member_id)).error_code == 0


@in_node()
async def test_the_member_that_asks_last_hears_first(node: Node) -> None:
    """A leader's SyncGroup (and the last JoinGroup) is answered before those that waited for it, so
    that no follower works with an assignment that its leader does not have yet."""

    await node.leads()
    leader = await node.member()
    follower = (await node.join()).member_id
    waiting = node.b.services.groups.shards[0].groups["g"]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.join, follower)
        while follower not in waiting.members:
            await trio.sleep(0.01)
        await node.join(leader)
    assert [r.member_id for r in node.b.answered[-2:]] == [leader, follower]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.sync, follower, 2)
        while not waiting.members[follower].syncing:
            await trio.sleep(0.01)
        await node.sync(leader, 2)
    assert [r.member_id for r in node.b.answered[-2:]] == [leader, follower]


@in_node()
async def test_groups_and_offsets_are_deleted_for_good(node: Node) -> None:
    await node.leads()
    assert await node.commit(5) == "NONE"
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    partition = topic.OffsetDeleteRequestPartition(partition_index=0)
    request = OffsetDeleteRequest(group_id="g", topics=[topic(name="t", partitions=[partition])])
    answer = await node.b.ask(offset_delete, 0, request)
    assert answer.topics[0].partitions[0].error_code == 0
    assert await node.state() == ("NONE", "Dead", 0)
    assert await node.commit(6) == "NONE"
    ask = DeleteGroupsRequest(groups_names=["g", "unknown"])
    results = (await node.b.ask(delete_groups, 2, ask)).results
    assert [(r.group_id, r.error_code) for r in results] == [
        ("g", 0),
        ("unknown", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    await node.role(2)
    await node.leads()
    assert await node.fetch() == ("NONE", None)
    assert node.b.services.groups.shards[0].groups == {}


@in_node()
async def test_offsets_of_a_deleted_topic_go_with_it(node: Node) -> None:
    await node.leads()
    assert await node.commit(5) == "NONE"
    await node.b.update_metadata({"t": {0: -2}})
    assert await node.fetch() == ("NONE", None)
    assert node.end == 2


@in_node()
async def test_the_coordinator_is_found_by_the_leader_of_the_groups_partition(node: Node) -> None:
    request = FindCoordinatorRequest(key="g", key_type=0)
    found = await node.b.ask(find_coordinator, 3, request)
    assert (found.error_code, found.node_id, found.port) == (0, 1, 9091)
    transactional = FindCoordinatorRequest(key="g", key_type=1)
    found = await node.b.ask(find_coordinator, 3, transactional)
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@in_broker(**SETTINGS)
async def test_the_topic_is_created_for_the_first_group(b: Any) -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h"])
    found = await b.ask(find_coordinator, 4, request)
    assert [c.error_code for c in found.coordinators] == [15, 15]
    assert len(await b.stored_topic(TOPIC)) == 1
    assert (await b.stored_config(TOPIC))["cleanup.policy"] == "compact"


@in_broker(**SETTINGS)
async def test_why_there_is_no_coordinator_is_logged_and_not_for_each_request(
    b: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients ask ten times a second, and only the log can tell what is missing."""
    request = FindCoordinatorRequest(key="g", key_type=0)

    async def said() -> list[str]:
        caplog.clear()
        for _ in range(3):
            found = await b.ask(find_coordinator, 3, request)
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        return [line.removeprefix("no coordinator for groups of ") for line in caplog.messages]

    await b.update_metadata({}, {1: None, 2: None})
    few = "its topic is to have more replicas than there are brokers now (2)"
    assert await said() == [f"{TOPIC}: {few}"]
    assert await said() == []
    await b.update_metadata({TOPIC: {0: -1}}, {1: None, 2: None})
    assert await said() == [f"{TP}: it has no leader"]
    await trio.sleep(11)
    await b.update_metadata({TOPIC: {0: 3}}, {1: None, 2: None})
    assert await said() == [f"{TP}: its leader, broker 3, is not there"]
