"""Share groups (KIP-932) on Highwater and on Apache Kafka 4.2: equal answers of the coordinators.

One broker each, as in test_consumer_groups.py.  Deliberate differences are in
differences_of_share_groups.toml.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import pytest
import trio

from highwater.kafka.topic_ids import to_text
from tests.integration.oracle import differences, script_admin, script_group_configs
from tests.integration.oracle.asking import Case, Side
from tests.integration.oracle.script_features import SAFE, UPDATE_FEATURES, update
from tests.integration.oracle.test_consumer_groups import (
    BEAT as CONSUMER_BEAT,
)
from tests.integration.oracle.test_consumer_groups import (
    COMMIT,
    DELETE,
    DESCRIBE_OLD,
    FETCH,
    HEARTBEAT,
    JOIN,
    LEAVE,
    LIST,
    TOPICS,
    V1,
    Body,
    Facts,
    GroupSide,
    ask_both,
    classic,
    commit,
    fetch,
    set_up,
    two_sides,
)
from tests.integration.oracle.test_consumer_groups import joins as joins_consumers
from tests.integration.oracle.test_topics_by_id import FIND_COORDINATOR, NEVER

pytestmark = [
    pytest.mark.integration, pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(240),
]  # fmt: skip
BEAT, DESCRIBE = 76, 77
INITIALIZE, READ, WRITE, DELETE_STATE, SUMMARY = range(83, 88)
OFFSETS, ALTER, DELETE_OFFSETS = 90, 91, 92
SHARE = "share.version"
PROPERTIES = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.max.size": "3",
}


@pytest.fixture(scope="module")
def sides(
    tmp_path_factory: pytest.TempPathFactory, apache_tool: Callable[..., Any]
) -> Iterator[tuple[Side, Side]]:
    with ExitStack() as stack:
        yield two_sides(stack, tmp_path_factory, ShareSide, PROPERTIES)


class ShareSide(GroupSide):
    """A side whose keys of share-partitions have names in place of ids, too."""

    def _named(self, value: Any) -> Any:
        found = super()._named(value)
        if isinstance(found, dict) and "key" in found:
            for name in TOPICS:
                id_text = to_text(UUID(self.facts[name]).bytes)
                found["key"] = found["key"].replace(id_text, name)
        return found


# --- requests


def beat(member_id: str, epoch: int, group: str = "g", **fields: Any) -> Body:
    return {"group_id": group, "member_id": member_id, "member_epoch": epoch, **fields}


def joins(member_id: str, *topics: str, group: str = "g", **fields: Any) -> Body:
    return beat(member_id, 0, group, **{"subscribed_topic_names": list(topics), **fields})


def describe(*groups: str) -> Body:
    return {"group_ids": list(groups), "include_authorized_operations": True}


def offsets(group: str = "g", *topics: str) -> Body:
    named = [{"topic_name": name, "partitions": [0, 1]} for name in topics]
    return {"groups": [{"group_id": group, "topics": named if topics else None}]}


def alter(starts: dict[str, dict[int, int]], group: str = "g") -> Body:
    topics = [
        {
            "topic_name": name,
            "partitions": [{"partition_index": p, "start_offset": o} for p, o in by.items()],
        }
        for name, by in starts.items()
    ]
    return {"group_id": group, "topics": topics}


def deletion(*topics: str, group: str = "g") -> Body:
    return {"group_id": group, "topics": [{"topic_name": name} for name in topics]}


def state(group: str = "s", topic: str = "one", **fields: Any) -> Any:
    """A request of one share-partition to the share coordinator."""

    def body(_: int, facts: Facts) -> Body:
        part = {"partition": 0, **fields}
        topics = [{"topic_id": facts.get(topic, NEVER), "partitions": [part]}]
        return {"group_id": group, "topics": topics}

    return body


def batch(first: int, last: int, how: int, count: int) -> Body:
    return {
        "first_offset": first, "last_offset": last, "delivery_state": how, "delivery_count": count,
    }  # fmt: skip


def write(start: int, *batches: Body, leader: int = 0, epoch: int = 0, done: int = 0) -> Any:
    return state(
        state_epoch=epoch, leader_epoch=leader, start_offset=start, delivery_complete_count=done,
        state_batches=list(batches),
    )  # fmt: skip


def key_of(*more: str) -> Any:
    def body(_: int, facts: Facts) -> Body:
        keys = [f"s:{to_text(UUID(facts['one']).bytes)}:0", *more]
        return {"key_type": 2, "coordinator_keys": keys, "key": keys[0]}

    return body


# --- the script


def no_errors(answer: Any) -> bool:
    return all(p["error_code"] == 0 for t in answer["results"] for p in t["partitions"])


def places() -> list[Case]:
    def found(answer: Any) -> bool:
        return bool(answer["coordinators"][0]["error_code"] == 0)

    return [
        Case("a share-partition's", FIND_COORDINATOR, key_of(), versions=(6, 6), until=found),
        Case("wrong keys", FIND_COORDINATOR, key_of("s", "s:one:0", ":a:0", "s:x:0:1", ""),
             versions=(6, 6)),
        Case("before there were any", FIND_COORDINATOR, key_of(), versions=(1, 5)),
    ]  # fmt: skip


def states() -> list[Case]:
    first = batch(5, 9, 2, 1)
    return [
        Case("not initialized", READ, state(leader_epoch=0)),
        Case("not initialized", WRITE, write(0, first)),
        Case("not initialized", SUMMARY, state(leader_epoch=0)),
        Case("of no such topic", INITIALIZE, state(topic="no", state_epoch=0, start_offset=1)),
        Case("of no such topic", SUMMARY, state(topic="no", leader_epoch=1)),
        Case("of no such topic", DELETE_STATE, state(topic="no")),
        Case("of no such partition", INITIALIZE, state(partition=9, state_epoch=0)),
        Case("of a negative partition", INITIALIZE, state(partition=-1, state_epoch=0)),
        Case("of no group", INITIALIZE, state(group="", state_epoch=0)),
        Case("of nothing", READ, {"group_id": "s", "topics": []}),
        Case("made", INITIALIZE, state(state_epoch=2, start_offset=3), until=no_errors),
        Case("as it was made", READ, state(leader_epoch=0)),
        Case("as it was made", SUMMARY, state(leader_epoch=0)),
        Case("by no leader", READ, state(leader_epoch=-1)),
        Case("by a new leader", READ, state(leader_epoch=4)),
        Case("by a deposed leader", READ, state(leader_epoch=3)),
        Case("its leader is known", SUMMARY, state(leader_epoch=0)),
        Case("by a deposed leader", WRITE, write(3, first, leader=3, epoch=2)),
        Case("of an earlier state", WRITE, write(3, first, leader=4, epoch=1)),
        Case("of an earlier state", INITIALIZE, state(state_epoch=1, start_offset=1)),
        Case("added", WRITE, write(3, first, leader=4, epoch=2, done=5)),
        Case("added later", WRITE, write(4, batch(7, 11, 0, 2), batch(3, 3, 4, 1), leader=4,
             epoch=2, done=6)),
        Case("with neither epoch", WRITE, write(-1, batch(12, 12, 2, 1), leader=-1, epoch=-1)),
        Case("all of it", READ, state(leader_epoch=4)),
        Case("all of it", SUMMARY, state(leader_epoch=0)),
        Case("made again", INITIALIZE, state(state_epoch=3, start_offset=50)),
        Case("as it is now", READ, state(leader_epoch=4)),
        Case("as it is now", SUMMARY, state(leader_epoch=0)),
        Case("gone", DELETE_STATE, state()),
        Case("gone twice", DELETE_STATE, state()),
        Case("gone", READ, state(leader_epoch=4)),
    ]  # fmt: skip


def requests() -> list[Case]:
    """Requests that are refused whatever the group is."""
    return [
        Case("no group", BEAT, joins("a", "one", group="")),
        Case("no member id", BEAT, joins("", "one")),
        Case("a long member id", BEAT, joins("x" * 37, "one")),
        Case("no topics", BEAT, joins("a")),
        Case("topics left out", BEAT, joins("a", subscribed_topic_names=None)),
        Case("an empty rack", BEAT, joins("a", "one", rack_id="")),
        Case("no such epoch", BEAT, beat("a", -2)),
        Case("no such group", BEAT, beat("a", 1, "nobody")),
        Case("to leave no such group", BEAT, beat("a", -1, "nobody")),
        Case("no such group", DESCRIBE, describe("nobody", "")),
        Case("of no such group", OFFSETS, offsets("nobody")),
        Case("of no such group, by topic", OFFSETS, offsets("nobody", "one", "no")),
        Case("of no group", ALTER, alter({"one": {0: 1}}, group="")),
        Case("of no group", DELETE_OFFSETS, deletion("one", group="")),
        Case("of no such group", DELETE_OFFSETS, deletion("one", group="nobody")),
        Case("no such group", DELETE, {"groups_names": ["nobody"]}, versions=(2, 2)),
    ]


def has(*topics: str) -> Callable[[Any], bool]:
    def assigned(answer: Any) -> bool:
        parts = (answer["assignment"] or {}).get("topic_partitions", ())
        return {t["topic_id"] for t in parts if t["partitions"]} == {*topics}

    return assigned


def members() -> list[Case]:
    full: Body = {"subscribed_topic_names": ["one"]}
    return [
        Case("the first", BEAT, joins("a", "one", rack_id="r")),
        Case("its state is initialized", BEAT, beat("a", 1, **full), until=has("one")),
        Case("it goes on", BEAT, beat("a", 2)),
        Case("it says all", BEAT, beat("a", 2, **full)),
        Case("with its epoch before", BEAT, beat("a", 1)),
        Case("a later epoch", BEAT, beat("a", 5)),
        Case("it joins again", BEAT, joins("a", "one")),
        Case("unknown", BEAT, beat("x", 1)),
        Case("unknown leaves", BEAT, beat("x", -1)),
        Case("one", DESCRIBE, describe("g")),
        Case("of all partitions", OFFSETS, offsets()),
        Case("by topic", OFFSETS, offsets("g", "one", "two", "no")),
        Case("of a group with members", ALTER, alter({"one": {0: 1}})),
        Case("of a group with members", DELETE_OFFSETS, deletion("one")),
        Case("a group with members", DELETE, {"groups_names": ["g"]}, versions=(2, 2)),
        Case("groups", LIST, {}, versions=(4, 5)),
        Case("groups by type", LIST, {"types_filter": ["Share"]}, versions=(5, 5)),
        Case("groups by state", LIST, {"states_filter": ["stable"]}, versions=(4, 5)),
        # the assignor of both takes members in an order of its own where they are more than one
        Case("it leaves its topic", BEAT, beat("a", 2, subscribed_topic_names=["two"])),
        Case("its other state", BEAT, beat("a", 3, subscribed_topic_names=["two"]),
             until=has("two")),
        Case("one of another topic", DESCRIBE, describe("g")),
        Case("topics that are missing", BEAT, joins("b", "missing")),
        Case("two", DESCRIBE, describe("g")),
        Case("a third", BEAT, joins("c", "missing")),
        Case("a fourth is too many", BEAT, joins("d", "one")),
        Case("the third leaves", BEAT, beat("c", -1)),
        Case("the second leaves", BEAT, beat("b", -1)),
        Case("the first leaves", BEAT, beat("a", -1)),
        Case("nobody is left", DESCRIBE, describe("g")),
        Case("groups without members", LIST, {"states_filter": ["empty"]}, versions=(4, 5)),
    ]  # fmt: skip


def kinds() -> list[Case]:
    """One id, and groups of different kinds."""
    leaves = {"group_id": "g", "members": [{"member_id": "x"}]}
    return [
        Case("a share group's id", JOIN, classic("g"), versions=(3, 5)),
        Case("a share group's id", CONSUMER_BEAT, joins_consumers("a", "one"), versions=V1),
        Case("a share group's id", COMMIT, commit("", -1, "g"), versions=(8, 9)),
        Case("a share group's id", FETCH, fetch(None, -1, "g"), versions=(8, 9)),
        Case("a share group's id", DESCRIBE_OLD, {"groups": ["g"]}, versions=(5, 6)),
        Case("a share group's id", HEARTBEAT,
             {"group_id": "g", "generation_id": 5, "member_id": "c"}, versions=(3, 4)),
        Case("a share group's id", LEAVE, leaves, versions=(3, 4)),
        Case("a group of offsets alone", BEAT, joins("a", "one", group="simple")),
        Case("a group of offsets alone", DESCRIBE, describe("simple")),
        Case("a group of offsets alone", ALTER, alter({"one": {0: 1}}, group="simple")),
        Case("a group of offsets alone", DELETE_OFFSETS, deletion("one", group="simple")),
        Case("one of consumers", CONSUMER_BEAT, joins_consumers("a", "one", group="c"),
             versions=V1),
        Case("one of consumers", BEAT, joins("a", "one", group="c")),
    ]  # fmt: skip


def administration() -> list[Case]:
    def gone(answer: Any) -> bool:
        return bool(answer["results"][0]["error_code"] in (0, 69))

    return [
        Case("of an empty group", ALTER, alter({"one": {0: 7, 9: 1}, "no": {0: 1}})),
        Case("altered", OFFSETS, offsets()),
        Case("of a new group", ALTER, alter({"two": {1: 3}}, group="made")),
        Case("a new group", DESCRIBE, describe("made")),
        Case("of nothing", ALTER, alter({}, group="none")),
        Case("altered again", ALTER, alter({"one": {0: 5}})),
        Case("twice altered", OFFSETS, offsets("g", "one")),
        Case("of topics", DELETE_OFFSETS, deletion("one", "no")),
        Case("deleted", OFFSETS, offsets()),
        Case("of no topic", DELETE_OFFSETS, deletion()),
        Case("a group without members", DELETE, {"groups_names": ["g"]}, versions=(2, 2),
             until=gone),
        Case("it is gone", DESCRIBE, describe("g")),
        Case("another one", DELETE, {"groups_names": ["made"]}, versions=(2, 2), until=gone),
        Case("all groups", LIST, {}, versions=(5, 5)),
    ]  # fmt: skip


def times_and_features() -> list[Case]:
    """A group's own interval of heartbeats, and the level that share groups need."""
    change = script_group_configs.sets(("share.heartbeat.interval.ms", 0, "7000"), name="t")
    wrong = script_group_configs.sets(("share.heartbeat.interval.ms", 0, "1"), name="t")
    reset = script_group_configs.sets(("share.auto.offset.reset", 0, "none"), name="t")
    level = script_group_configs.sets(("share.isolation.level", 0, "read_committed"), name="t")

    def is_seven(answer: Any) -> bool:
        return bool(answer["heartbeat_interval_ms"] == 7000)

    def is_unsupported(answer: Any) -> bool:
        return bool(answer["error_code"] == 35)

    return [
        Case("by the broker's interval", BEAT, joins("a", "missing", group="t")),
        Case("another interval", script_admin.INCREMENTAL, change, versions=V1),
        Case("below the broker's bound", script_admin.INCREMENTAL, wrong, versions=V1),
        Case("no place to begin", script_admin.INCREMENTAL, reset, versions=V1),
        Case("an isolation level", script_admin.INCREMENTAL, level, versions=V1),
        Case("by its own interval", BEAT, beat("a", 1, "t"), until=is_seven),
        Case("down, with groups", UPDATE_FEATURES, update((SHARE, 0), kind=SAFE), versions=V1),
        Case("without share groups", BEAT, beat("a", 1, "t"), until=is_unsupported),
        Case("without share groups", DESCRIBE, describe("t")),
        Case("without share groups", OFFSETS, offsets("t")),
        Case("without share groups", ALTER, alter({"one": {0: 1}}, group="t")),
        Case("without share groups", DELETE_OFFSETS, deletion("one", group="t")),
        Case("without share groups", LIST, {}, versions=(5, 5)),
    ]


def test_the_answers_are_those_of_apache_kafka(sides: tuple[Side, Side]) -> None:
    assert set(TOPICS) == {"one", "two"}
    cases = [
        *set_up(), *places(), *states(), *requests(), *members(), *kinds(), *administration(),
        *times_and_features(),
    ]  # fmt: skip
    asked, found = trio.run(ask_both, *sides, cases)
    known = differences.load(differences.OF_SHARE_GROUPS)
    left = [d for d in found if not any(entry.covers(d) for entry in known)]
    assert not left, "\n".join(map(str, left[:90]))
    stale = [entry for entry in known if not any(entry.covers(d) for d in found)]
    assert not stale, stale
    assert asked > 100
