"""Groups whose members roll from the classic protocol to that of consumers and back, on one broker.

Each client here does what librdkafka and Kafka's own consumer do: it joins again when it is told
to, with the partitions that it may still have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import trio

from highwater.broker.coordinator.group.consumer.embedded import assignment, encode_assignment
from highwater.broker.handlers import (
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    sync_group,
)
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tests.running import running_in
from tests.unit.broker.handlers.test_consumer_groups import Consumers, owned, partitions, run

CLASSIC, CONSUMER = 0, 1


def subscription(topics: Iterable[str] = ("t",), has: Iterable[int] = ()) -> bytes:
    """A subscription of v1, as of a client that moves its partitions step by step."""
    names = [name.encode() for name in topics]
    listed = b"".join(len(name).to_bytes(2) + name for name in names)
    parts = encode_assignment([("t", has)] if has else [], 1)[2:-4]
    return b"\0\1" + len(names).to_bytes(4) + listed + b"\xff\xff\xff\xff" + parts


class Mixed(Consumers):
    async def joins_classic(
        self, member_id: str = "", has: Iterable[int] = (), *, version: int = 9, **changed: Any
    ) -> Any:
        metadata = changed.pop("metadata", subscription(has=has))
        names = changed.pop("names", ("range",))
        protocol = JoinGroupRequest.JoinGroupRequestProtocol
        request = JoinGroupRequest(
            group_id="g", member_id=member_id,
            protocols=[protocol(name=name, metadata=metadata) for name in names],
            **{"session_timeout_ms": 10_000, "rebalance_timeout_ms": 30_000,
               "protocol_type": "consumer", **changed},
        )  # fmt: skip
        return await self.b.ask(join_group, version, request)

    async def syncs(
        self, member_id: str, generation: int, parts: dict[str, list[int]] | None = None,
        **changed: Any,
    ) -> Any:  # fmt: skip
        given = [
            SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=m, assignment=encode_assignment([("t", has)], 1)
            )
            for m, has in (parts or {}).items()
        ]
        fields = {"protocol_type": "consumer", "protocol_name": "range", **changed}
        request = SyncGroupRequest(
            group_id="g", generation_id=generation, member_id=member_id, assignments=given,
            **fields,
        )  # fmt: skip
        return await self.b.ask(sync_group, 5, request)

    async def has(self, member_id: str, generation: int, **changed: Any) -> list[int] | str:
        """What a member gets by SyncGroup: its partitions of t, or an error."""
        answer = await self.syncs(member_id, generation, **changed)
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        return sorted(assignment(bytes(answer.assignment))[0].get("t", ()))

    async def alive(self, member_id: str, generation: int, **more: Any) -> str:
        request = HeartbeatRequest(
            group_id="g", generation_id=generation, member_id=member_id, **more
        )
        return ErrorCode((await self.b.ask(heartbeat, 4, request)).error_code).name

    async def leaves(self, member_id: str, instance_id: str | None = None) -> str:
        cls = LeaveGroupRequest.MemberIdentity
        members = [cls(member_id=member_id, group_instance_id=instance_id)]
        request = LeaveGroupRequest(group_id="g", members=members)
        answer = await self.b.ask(leave_group, 5, request)
        return ErrorCode(answer.error_code or answer.members[0].error_code).name

    async def two(self) -> tuple[str, str]:
        """A classic group of two members, with two partitions each."""
        ids = [(await self.joins_classic()).member_id for _ in range(2)]
        answers: dict[str, Any] = {}

        async def joins(member_id: str) -> None:
            answers[member_id] = await self.joins_classic(member_id)

        async def syncs(member_id: str) -> None:
            leads = answers[member_id].leader == member_id
            parts = {ids[0]: [0, 1], ids[1]: [2, 3]} if leads else None
            synced = await self.syncs(member_id, answers[member_id].generation_id, parts)
            assert synced.error_code == 0

        for step in (joins, syncs):
            async with trio.open_nursery() as nursery:
                for member_id in ids:
                    nursery.start_soon(step, member_id)
        assert await self.alive(ids[0], await self.generation()) == "NONE"
        return ids[0], ids[1]

    async def generation(self) -> int:
        group = self.b.services.groups.shards[0].groups["g"]
        return group.generation if group.consumer is None else group.consumer.epoch

    async def kinds(self) -> dict[str, int]:
        return {m.member_id: m.member_type for m in (await self.describes()).members}

    async def kind(self) -> tuple[str, str]:
        ((_, _, state, kind),) = await self.listed()
        return state, kind

    async def old_members(self) -> list[str]:
        answer = await self.b.ask(describe_groups, 5, DescribeGroupsRequest(groups=["g"]))
        return [m.member_id for m in answer.groups[0].members]

    async def settles(self, classic: dict[str, list[int]], consumers: dict[str, list[int]]) -> None:
        """Lets every member go on, each with what it has, until nothing moves."""
        for _ in range(12):
            before = {m: list(has) for m, has in (classic | consumers).items()}
            for member_id in classic:
                await self._goes_on(member_id, classic)
            for member_id, has in consumers.items():
                found = await self.describes()
                epoch = next(m.member_epoch for m in found.members if m.member_id == member_id)
                beat = await self.beat(member_id, epoch, topic_partitions=owned(has))
                assert beat.error_code == 0, ErrorCode(beat.error_code)
                new = partitions(beat.assignment)
                consumers[member_id] = has if new is None else new
            if before == classic | consumers and (await self.describes()).group_state == "Stable":
                return
        raise AssertionError("the group does not come to rest")

    async def _goes_on(self, member_id: str, classic: dict[str, list[int]]) -> None:
        found = {m.member_id: m.member_epoch for m in (await self.describes()).members}
        told = await self.alive(member_id, found[member_id])
        if told == "NONE":
            return
        assert told == "REBALANCE_IN_PROGRESS"
        joined = await self.joins_classic(member_id, classic[member_id])
        assert (joined.error_code, joined.leader, joined.members) == (0, "", [])
        got = await self.has(member_id, joined.generation_id)
        assert isinstance(got, list), got
        classic[member_id] = got


in_mixed = running_in(lambda body, **config: run(lambda node: body(Mixed(node.b)), **config))


@in_mixed()
async def test_a_living_group_takes_the_consumer_protocol_and_gives_it_up(node: Mixed) -> None:
    await node.leads()
    a, b = await node.two()
    joined = await node.joins("c")
    assert (joined.error_code, joined.member_epoch, partitions(joined.assignment)) == (0, 2, [])
    assert await node.kind() == ("Reconciling", "consumer")
    assert await node.kinds() == {a: CLASSIC, b: CLASSIC, "c": CONSUMER}
    classic, consumers = {a: [0, 1], b: [2, 3]}, {"c": list[int]()}
    await node.settles(classic, consumers)
    sizes = sorted(len(has) for has in (classic | consumers).values())
    assert sizes == [1, 1, 2]
    assert sorted(n for has in (classic | consumers).values() for n in has) == [0, 1, 2, 3]
    epoch = await node.generation()
    mine = {"member_id": a, "version": 7}
    assert await node.commit(5, generation_id_or_member_epoch=epoch, **mine) == "NONE"
    old = await node.commit(6, generation_id_or_member_epoch=epoch - 1, **mine)
    assert old == "ILLEGAL_GENERATION"
    assert await node.committed(a, epoch - 1) == "ILLEGAL_GENERATION"
    assert await node.alive(a, epoch - 1) == "ILLEGAL_GENERATION"
    assert await node.alive("c", epoch) == "UNKNOWN_MEMBER_ID", "it does not use the classic one"
    # a coordinator's move in the middle
    await node.role(2)
    await node.leads()
    assert await node.kinds() == {a: CLASSIC, b: CLASSIC, "c": CONSUMER}
    assert await node.alive(a, epoch) == "NONE"
    assert await node.code("c", epoch) == "NONE"
    # and back
    assert await node.code("c", -1) == "NONE"
    assert await node.kind() == ("PreparingRebalance", "classic")
    assert await node.alive(a, epoch) == "REBALANCE_IN_PROGRESS"
    assert (await node.describes()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert await node.commit(7, generation_id_or_member_epoch=epoch, **mine) == "NONE"
    await node.role(2)
    await node.leads()
    assert await node.kind() == ("Stable", "classic"), "a preparation is not stored"
    assert sorted(await node.old_members()) == sorted((a, b))
    assert await node.has(a, epoch) == classic[a], "the targets are the assignments"
    assert await node.fetch() == ("NONE", 7)


@in_mixed()
async def test_clients_that_wait_are_told_to_join_again(node: Mixed) -> None:
    await node.leads()
    a, b = await node.two()
    answers: dict[str, Any] = {}

    async def joins() -> None:
        answers["a"] = await node.joins_classic(a, metadata=subscription(("t", "u")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(joins)
        await trio.sleep(1)
        assert await node.kind() == ("PreparingRebalance", "classic")
        assert (await node.joins("c")).error_code == 0
    assert (answers["a"].error_code, answers["a"].member_id) == (
        ErrorCode.REBALANCE_IN_PROGRESS, a,
    )  # fmt: skip
    classic, consumers = {a: [0, 1], b: [2, 3]}, {"c": list[int]()}
    await node.settles(classic, consumers)
    await trio.sleep(9)
    assert set(await node.kinds()) == {a, b, "c"}, "no timer of the classic group is left"


@in_mixed()
async def test_a_group_before_its_first_generation_takes_the_consumer_protocol(
    node: Mixed,
) -> None:
    groups = node.b.services.groups
    groups.__dict__["limits"] = replace(groups.limits, initial_delay_ms=3000)
    await node.leads()
    answers: dict[str, Any] = {}

    async def joins() -> None:
        answers["a"] = await node.joins_classic(version=3)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(joins)
        await trio.sleep(1)
        joined = await node.joins("c")
    a = answers["a"].member_id
    assert (joined.error_code, joined.member_epoch) == (0, 1)
    assert answers["a"].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    classic, consumers = {a: list[int]()}, {"c": partitions(joined.assignment) or []}
    await node.settles(classic, consumers)
    assert sorted(classic[a] + consumers["c"]) == [0, 1, 2, 3]


@in_mixed()
async def test_a_classic_member_joins_a_consumer_group(node: Mixed) -> None:
    await node.leads()
    await node.joins("c")
    first = await node.joins_classic()
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert await node.kinds() == {"c": CONSUMER}
    a = first.member_id
    joined = await node.joins_classic(a)
    assert (joined.error_code, joined.generation_id) == (0, 2)
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert await node.has(a, 2) == []
    assert await node.has(a, 1) == "ILLEGAL_GENERATION"
    assert await node.has(a, 2, protocol_name="sticky") == "INCONSISTENT_GROUP_PROTOCOL"
    assert await node.has(a, 2, protocol_type="connect") == "INCONSISTENT_GROUP_PROTOCOL"
    assert await node.has("c", 1) == "UNKNOWN_MEMBER_ID"
    assert await node.alive(a, 2) == "NONE", "it waits for what the other has"
    classic, consumers = {a: list[int]()}, {"c": [0, 1, 2, 3]}
    await node.settles(classic, consumers)
    assert (classic[a], consumers["c"]) == ([2, 3], [0, 1])
    # the group's other epoch: the member has not joined since
    assert await node.code("c", 2, subscribed_topic_names=["t", "u"]) == "NONE"
    assert await node.has(a, 2) == "REBALANCE_IN_PROGRESS"
    assert await node.leaves(a) == "NONE"
    assert await node.kinds() == {"c": CONSUMER}


@in_mixed()
async def test_protocols_that_do_not_fit_are_refused(node: Mixed) -> None:
    await node.leads()
    await node.joins("c")

    async def refusal(**request: Any) -> str:
        return ErrorCode((await node.joins_classic("x", **request)).error_code).name

    assert await refusal(protocol_type="connect") == "INCONSISTENT_GROUP_PROTOCOL"
    assert await refusal(names=()) == "INCONSISTENT_GROUP_PROTOCOL"
    assert await refusal(session_timeout_ms=1) == "INVALID_SESSION_TIMEOUT"
    assert (await node.joins_classic("a", names=("range", "sticky"))).error_code == 0
    assert await refusal(names=("other",)) == "INCONSISTENT_GROUP_PROTOCOL"
    assert (await node.joins_classic("b", names=("sticky",))).error_code == 0
    assert await refusal(names=("range",)) == "INCONSISTENT_GROUP_PROTOCOL"
    assert await refusal(names=("sticky",), metadata=b"?") == "UNKNOWN_SERVER_ERROR"
    assert set(await node.kinds()) == {"a", "b", "c"}


@in_mixed()
async def test_a_silent_classic_member_is_out(node: Mixed) -> None:
    await node.leads()
    await node.joins("c")
    await node.joins_classic("a")
    await trio.sleep(9)
    assert await node.alive("a", 2) == "NONE"
    await trio.sleep(9)
    assert set(await node.kinds()) == {"a", "c"}
    await trio.sleep(2)
    assert await node.kinds() == {"c": CONSUMER}, "its own session is over, not that of consumers"


@pytest.mark.parametrize("syncs", [False, True])
@in_mixed()
async def test_a_classic_member_must_sync_in_time(node: Mixed, syncs: bool) -> None:
    await node.leads()
    await node.joins("c")
    await node.joins_classic("a")
    if syncs:
        assert await node.has("a", 2) == []
    for _ in range(4):
        await trio.sleep(8)
        await node.code("c", 1)
        told = await node.alive("a", 2)
    assert told == ("NONE" if syncs else "UNKNOWN_MEMBER_ID")


@pytest.mark.parametrize("again", [False, True])
@in_mixed()
async def test_a_classic_member_must_join_again_in_time(node: Mixed, again: bool) -> None:
    await node.leads()
    await node.joins("c")
    await node.joins_classic("a")
    await node.has("a", 2)
    await node.code("c", 1, topic_partitions=owned([0, 1]))
    epoch = 2
    told = []
    for n in range(5):
        told.append(await node.alive("a", epoch))
        if again and n == 3:
            assert (await node.joins_classic("a")).error_code == 0
            assert await node.has("a", epoch) == [2, 3]
        await node.code("c", 2)
        await trio.sleep(8)
    assert told[:4] == ["REBALANCE_IN_PROGRESS"] * 4
    assert told[4] == ("NONE" if again else "UNKNOWN_MEMBER_ID")


@in_mixed()
async def test_a_static_member_rolls_to_the_consumer_protocol_and_back(node: Mixed) -> None:
    await node.leads()
    i: dict[str, Any] = {"group_instance_id": "i"}
    first = await node.joins_classic(**i)
    a = first.member_id
    assert (first.error_code, first.leader) == (0, a)
    given = await node.has(a, 1, parts={a: [0, 1, 2, 3]}, group_instance_id="i")
    assert given == [0, 1, 2, 3]
    # its next process uses the consumer protocol, and keeps the partitions
    joined = await node.joins("c", instance_id="i")
    assert (joined.error_code, partitions(joined.assignment)) == (0, [0, 1, 2, 3])
    assert await node.kinds() == {"c": CONSUMER}
    fenced = await node.alive(a, 1, group_instance_id="i")
    assert fenced == "FENCED_INSTANCE_ID"
    # a classic one comes while the consumer is away: nobody has to join again
    epoch = joined.member_epoch
    assert await node.code("c", -2, instance_id="i") == "NONE"
    back = await node.joins_classic(**i)
    assert back.error_code == 0
    assert await node.kind() == ("Stable", "classic")
    b = back.member_id
    assert back.generation_id == epoch
    assert await node.has(b, epoch, group_instance_id="i") == [0, 1, 2, 3]
    assert await node.alive(b, epoch, group_instance_id="i") == "NONE"
    assert (await node.beat("c", epoch, instance_id="i")).error_code == (
        ErrorCode.GROUP_ID_NOT_FOUND
    )
    await node.role(2)
    await node.leads()
    assert await node.old_members() == [b]
    assert await node.has(b, epoch, group_instance_id="i") == [0, 1, 2, 3]


@in_mixed()
async def test_a_static_member_with_other_topics_has_all_join_again(node: Mixed) -> None:
    await node.leads()
    await node.joins("c", instance_id="i")
    assert await node.code("c", -2, instance_id="i") == "NONE"
    metadata = subscription(("t", "u"))
    back = await node.joins_classic(group_instance_id="i", metadata=metadata)
    assert back.error_code == 0
    assert await node.kind() == ("PreparingRebalance", "classic")
    told = await node.has(back.member_id, back.generation_id, group_instance_id="i")
    assert told == "REBALANCE_IN_PROGRESS"


@in_mixed()
async def test_a_static_classic_member_comes_back_to_a_consumer_group(node: Mixed) -> None:
    await node.leads()
    await node.joins("c")
    first = await node.joins_classic(group_instance_id="i")
    again = await node.joins_classic(group_instance_id="i")
    assert (again.error_code, again.generation_id) == (0, 2)
    assert set(await node.kinds()) == {"c", again.member_id}
    a = first.member_id
    assert await node.alive(a, 2, group_instance_id="i") == "FENCED_INSTANCE_ID"
    assert await node.alive(again.member_id, 2, group_instance_id="j") == "UNKNOWN_MEMBER_ID"
    fenced = await node.joins_classic(a, group_instance_id="i")
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert await node.leaves("", "i") == "NONE"
    assert await node.kinds() == {"c": CONSUMER}


async def moves(node: Mixed) -> tuple[str, str]:
    """Whether a group takes the consumer protocol, and gives it up."""
    await node.two()
    up = ErrorCode((await node.joins("c")).error_code).name
    if up != "NONE":
        return up, ""
    await node.code("c", -1)
    return up, (await node.kind())[1]


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        ("disabled", ("GROUP_ID_NOT_FOUND", "")),
        ("Upgrade", ("NONE", "consumer")),
        ("downgrade", ("GROUP_ID_NOT_FOUND", "")),
        ("BIDIRECTIONAL", ("NONE", "classic")),
    ],
)
def test_the_policy_decides(policy: str, found: tuple[str, str]) -> None:
    async def body(node: Any) -> None:
        mixed = Mixed(node.b)
        await mixed.leads()
        assert await moves(mixed) == found

    run(body, group_consumer_migration_policy=policy)


@in_mixed(group_consumer_max_size=1)
async def test_a_group_that_is_too_large_stays_classic(node: Mixed) -> None:
    await node.leads()
    assert await moves(node) == ("GROUP_ID_NOT_FOUND", "")


@in_mixed(group_max_size=2)
async def test_a_consumer_group_that_is_too_large_stays_one(node: Mixed) -> None:
    await node.leads()
    await node.joins("c")
    for member_id in ("x", "y", "z"):
        await node.joins_classic(member_id)
    await node.code("c", -1)
    assert (await node.kind())[1] == "consumer"
    assert await node.leaves("x") == "NONE"
    assert await node.kind() == ("PreparingRebalance", "classic")


@in_mixed()
async def test_a_group_stays_as_it_is_where_the_move_cannot_be_written(node: Mixed) -> None:
    await node.leads()
    a, b = await node.two()
    log = node.b.services.groups.shards[0].partition.leader_log()
    before = log.config
    log.config = replace(before, max_message_bytes=1)
    assert (await node.joins("c")).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert await node.kind() == ("Stable", "classic")
    assert await node.alive(a, 1) == "NONE"
    log.config = before
    assert (await node.joins("c")).error_code == 0
    await node.settles({a: [0, 1], b: [2, 3]}, {"c": []})
    epoch = await node.generation()
    log.config = replace(before, max_message_bytes=1)
    assert await node.code("c", -1) == "UNKNOWN_SERVER_ERROR"
    assert set(await node.kinds()) == {a, b, "c"}
    for member_id in (a, b):
        assert await node.alive(member_id, epoch) == "NONE"
    log.config = before
    await trio.sleep(2)
    assert await node.kind() == ("PreparingRebalance", "classic"), "its end is tried again"


@in_mixed()
async def test_moves_that_are_not_committed_yet_follow_each_other(node: Mixed) -> None:
    """Up and down again and up, while the HW stands still: the latest one holds."""
    await node.leads()
    a, b = await node.two()
    await node.role(2)
    await node.leads(isr=(1, 2))
    assert (await node.joins("c")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await node.beat("c", -1)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await node.joins("d")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    node.follower_has_all()
    assert await node.kinds() == {a: CLASSIC, b: CLASSIC, "d": CONSUMER}
    assert await node.alive(a, 1) in ("ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS")
    await node.role(2)
    await node.leads()
    assert await node.kinds() == {a: CLASSIC, b: CLASSIC, "d": CONSUMER}


@in_mixed()
async def test_a_downgrade_is_not_undone_by_an_older_record(node: Mixed) -> None:
    await node.leads()
    a, _ = await node.two()
    await node.role(2)
    await node.leads(isr=(1, 2))
    await node.joins("c")
    await node.beat("c", -1)
    node.follower_has_all()
    assert await node.kind() == ("PreparingRebalance", "classic")
    assert await node.alive(a, await node.generation()) == "REBALANCE_IN_PROGRESS"


@in_mixed()
async def test_a_group_that_is_classic_again_is_not_forgotten(node: Mixed) -> None:
    """The tombstone of its first classic life is committed when its second one has begun."""
    await node.leads()
    i: dict[str, Any] = {"group_instance_id": "i", "names": ("range", "sticky")}
    a = (await node.joins_classic(**i)).member_id
    await node.has(a, 1, parts={a: [0]}, group_instance_id="i")
    await node.role(2)
    await node.leads(isr=(1, 2))
    await node.joins("c", instance_id="i")
    await node.beat("c", -2, instance_id="i")
    await node.joins_classic(**i)
    node.follower_has_all()
    assert await node.kind() == ("Stable", "classic")
    (member,) = node.b.services.groups.shards[0].groups["g"].members.values()
    assert [name for name, _ in member.protocols] == ["range", "sticky"]


@in_mixed()
async def test_a_move_is_shown_when_it_is_committed(node: Mixed) -> None:
    await node.leads()
    await node.two()
    await node.role(2)
    await node.leads(isr=(1, 2))
    await node.joins("c")
    assert await node.kind() == ("Stable", "classic")
    assert len(await node.old_members()) == 2
    node.follower_has_all()
    assert len(await node.kinds()) == 3
    assert (await node.beat("c", -1)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(await node.kinds()) == 3
    node.follower_has_all()
    assert await node.kind() == ("PreparingRebalance", "classic")
