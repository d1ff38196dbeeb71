"""The consumer protocol (KIP-848) on Highwater and on Apache Kafka 4.2: equal answers.

One broker each, as in test_topics_by_id.py.  Deliberate differences are in
differences_of_consumer_groups.toml.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any

import pytest
import trio

from highwater.cluster.processes import apache
from highwater.cluster.processes.process_settings import Settings
from highwater.cluster.processes.programs import ApacheKafka, Highwater
from highwater.cluster.target import QUICK
from tests.background import BackgroundCluster
from tests.integration.oracle import differences, script_admin, script_group_configs
from tests.integration.oracle.asking import Case, Difference, Offered, Side, compare
from tests.integration.oracle.bodies import plain
from tests.integration.oracle.script_features import GROUPS, SAFE, UPDATE_FEATURES, update
from tests.integration.oracle.test_topics_by_id import (
    API_VERSIONS,
    CREATE,
    FIND_COORDINATOR,
    METADATA,
    NEVER,
    RELEASE,
    keep_ids,
    metadata,
)

pytestmark = [
    pytest.mark.integration, pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(240),
]  # fmt: skip
COMMIT, FETCH, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE_OLD, LIST = 8, 9, 11, 12, 13, 14, 15, 16
DELETE, DELETE_OFFSETS, BEAT, DESCRIBE = 42, 47, 68, 69
KAFKAS_TIMES = {
    f"group.{kind}.{least}{name}.ms": value
    for kind in ("consumer", "share")
    for least in ("", "min.")
    for name, value in (("session.timeout", "45000"), ("heartbeat.interval", "5000"))
}
"""Kafka's own, because members of these tests send heartbeats only when they ask something."""
V0, V1 = (0, 0), (1, 1)
TOPICS = {"one": 4, "two": 2}
Facts = dict[str, Any]
Body = dict[str, Any]


class GroupSide(Side):
    """A side whose answers have names in place of ids, and an order where Kafka's is a hash's."""

    async def ask(
        self, number: int, api_key: int, version: int, message: Any, *more: Any, **other: Any
    ) -> Any:
        answer = await super().ask(number, api_key, version, message, *more, **other)
        return answer if api_key == METADATA else self._named(answer)

    def _named(self, value: Any) -> Any:
        if isinstance(value, list):
            return sorted((self._named(item) for item in value), key=str)
        if not isinstance(value, dict):
            return value
        found = {key: self._named(item) for key, item in value.items()}
        if "topic_id" in found:
            names = {known: name for name, known in self.facts.items() if name in TOPICS}
            found["topic_id"] = names.get(value["topic_id"], "another")
        return found


def two_sides(
    stack: ExitStack,
    folders: pytest.TempPathFactory,
    kind: type[GroupSide],
    others: Mapping[str, str] = MappingProxyType({}),
    **more: str,
) -> tuple[Side, Side]:
    """Highwater and Apache Kafka, one broker each, with these properties of group.consumer, and
    others."""
    kraft = ApacheKafka(apache.home(RELEASE), jvm=QUICK, version=RELEASE, kraft=True)
    properties = {
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
        **KAFKAS_TIMES,
    } | {f"group.consumer.{name.replace('_', '.')}": value for name, value in more.items()}
    properties |= others
    made = []
    for name, program in (("highwater", Highwater()), ("apache", kraft)):
        folder = folders.mktemp(name) / "cluster"
        settings = Settings(
            folder, brokers=1, program=program, quick_end=True, properties=properties,
            zookeeper="embedded" if name == "highwater" else "",
        )  # fmt: skip
        cluster = stack.enter_context(BackgroundCluster.of(settings))
        made.append(kind(name, {1: cluster.cluster.address(1)}, 1))
    return made[0], made[1]


@pytest.fixture(scope="module")
def sides(
    tmp_path_factory: pytest.TempPathFactory, apache_tool: Callable[..., Any]
) -> Iterator[tuple[Side, Side]]:
    with ExitStack() as stack:
        yield two_sides(
            stack, tmp_path_factory, GroupSide, max_size="3", migration_policy="disabled"
        )


# --- requests


def beat(member_id: str, epoch: int, group: str = "g", **fields: Any) -> Body:
    return {"group_id": group, "member_id": member_id, "member_epoch": epoch, **fields}


def joins(member_id: str, *topics: str, group: str = "g", **fields: Any) -> Body:
    return beat(
        member_id, 0, group,
        **{"rebalance_timeout_ms": 60_000, "topic_partitions": [],
           "subscribed_topic_names": list(topics), **fields},
    )  # fmt: skip


def owns(member_id: str, epoch: int, owned: dict[str, list[int]], **fields: Any) -> Any:
    """A heartbeat that names the partitions that the member has."""

    def body(_: int, facts: Facts) -> Body:
        parts = [{"topic_id": facts.get(t, NEVER), "partitions": p} for t, p in owned.items()]
        return beat(member_id, epoch, topic_partitions=parts, **fields)

    return body


def commit(member_id: str, epoch: int, group: str = "g", **fields: Any) -> Body:
    place = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
    return {
        "group_id": group, "member_id": member_id, "generation_id_or_member_epoch": epoch,
        "topics": [{"name": "one", "partitions": [place]}], **fields,
    }  # fmt: skip


def fetch(member_id: str | None, epoch: int, group: str = "g") -> Body:
    topics = [{"name": "one", "partition_indexes": [0, 1]}]
    asked = {"group_id": group, "member_id": member_id, "member_epoch": epoch, "topics": topics}
    return {"groups": [asked]}


def describe(*groups: str) -> Body:
    return {"group_ids": list(groups), "include_authorized_operations": True}


def delete_offsets(topic: str, group: str = "g") -> Body:
    topics = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    return {"group_id": group, "topics": topics}


def classic(group: str, **fields: Any) -> Body:
    protocol = {"name": "range", "metadata": b"\0\0\0\0\0\1\0\3one\xff\xff\xff\xff"}
    return {
        "group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000,
        "member_id": "", "protocol_type": "consumer", "protocols": [protocol], **fields,
    }  # fmt: skip


# --- the script


def set_up() -> list[Case]:
    new = script_admin.new_topic
    topics = [new(n, -1, -1, assigned={p: [1] for p in range(c)}) for n, c in TOPICS.items()]
    coordinator = {"key_type": 0, "coordinator_keys": ["g"]}

    def led(answer: Any) -> bool:
        places = [p for t in answer["topics"] for p in t["partitions"]]
        return len(places) == sum(TOPICS.values()) and all(p["leader_id"] > 0 for p in places)

    def coordinated(answer: Any) -> bool:
        return all(c["error_code"] == 0 for c in answer["coordinators"])

    def loaded(answer: Any) -> bool:
        return all(p["error_code"] == 0 for t in answer["topics"] for p in t["partitions"])

    return [
        Case("topics are made", CREATE, script_admin.create(*topics), versions=(4, 4)),
        Case("ids", METADATA, metadata(names=tuple(TOPICS)), versions=(12, 12), keep=keep_ids,
             until=led),
        Case("coordinator", FIND_COORDINATOR, coordinator, versions=(4, 4), until=coordinated),
        Case("it is loaded", COMMIT, commit("", -1, "simple"), versions=(9, 9), until=loaded),
    ]  # fmt: skip


def requests() -> list[Case]:
    """Requests that are refused whatever the group is."""
    return [
        Case("no group", BEAT, joins("a", "one", group="")),
        Case("no member id", BEAT, joins("", "one", group="x"), versions=V1),
        Case("no member id later", BEAT, beat("", 1)),
        Case("no member id to leave", BEAT, beat("", -1)),
        Case("no rebalance time-out", BEAT, joins("a", "one", rebalance_timeout_ms=-1)),
        Case("partitions to join with", BEAT, owns("a", 0, {"one": [0]}, rebalance_timeout_ms=1,
             subscribed_topic_names=["one"])),
        Case("unknown partitions to join with", BEAT, joins("a", "one", topic_partitions=None)),
        Case("no topics", BEAT, joins("a", subscribed_topic_names=None)),
        Case("an empty instance id", BEAT, joins("a", "one", instance_id="")),
        Case("an empty rack", BEAT, joins("a", "one", rack_id="")),
        Case("away without an instance id", BEAT, beat("a", -2)),
        Case("no such epoch", BEAT, beat("a", -3)),
        Case("no such assignor", BEAT, joins("a", "one", server_assignor="sticky")),
        Case("no such group", BEAT, beat("a", 1, "nobody")),
        Case("to leave no such group", BEAT, beat("a", -1, "nobody")),
        Case("a wrong regular expression", BEAT, joins("a", group="wrong",
             subscribed_topic_regex="(", subscribed_topic_names=None), versions=V1),
        Case("no such group", DESCRIBE, describe("nobody", "")),
    ]  # fmt: skip


def members() -> list[Case]:
    both = {"one": [0, 1, 2, 3]}
    return [
        Case("the first", BEAT, joins("a", "one", rack_id="r"), versions=V1),
        Case("it goes on", BEAT, beat("a", 1)),
        Case("it says all", BEAT, owns("a", 1, both, rebalance_timeout_ms=60_000,
             subscribed_topic_names=["one"])),
        Case("one of one", DESCRIBE, describe("g")),
        Case("a group of consumers", DESCRIBE_OLD, {"groups": ["g"]}, versions=(0, 6)),
        Case("groups", LIST, {}, versions=(4, 5)),
        Case("groups by type", LIST, {"types_filter": ["CONSUMER"]}, versions=(5, 5)),
        Case("groups of another type", LIST, {"types_filter": ["classic"]}, versions=(5, 5)),
        Case("groups by state", LIST, {"states_filter": ["stable"]}, versions=(4, 5)),
        Case("it joins again", BEAT, joins("a", "one"), versions=V1),
        Case("a later epoch", BEAT, beat("a", 5)),
        Case("an earlier epoch", BEAT, owns("a", 0, {})),
        Case("unknown", BEAT, beat("x", 1)),
        Case("unknown leaves", BEAT, beat("x", -1)),
        # a second member
        Case("the second", BEAT, joins("b", "one"), versions=V1),
        Case("two, reconciling", DESCRIBE, describe("g")),
        Case("it waits", BEAT, beat("b", 2)),
        Case("the first must give up", BEAT, beat("a", 1), versions=V1),
        Case("it has not yet", BEAT, owns("a", 1, both)),
        Case("it has", BEAT, owns("a", 1, {"one": [0, 1]}), versions=V1),
        Case("with its epoch before", BEAT, owns("a", 1, {"one": [0, 1]})),
        Case("with that, and too much", BEAT, owns("a", 1, both)),
        Case("with that, not saying", BEAT, beat("a", 1)),
        Case("the second gets it", BEAT, beat("b", 2), versions=V1),
        Case("two", DESCRIBE, describe("g")),
        # subscriptions
        Case("it takes another topic", BEAT, owns("b", 2, {"one": [2, 3]},
             subscribed_topic_names=["one", "two", "missing"]), versions=V1),
        Case("twice", BEAT, owns("b", 3, {"one": [2, 3]}), versions=V1),
        Case("two that differ", DESCRIBE, describe("g")),
        Case("it leaves its first", BEAT, owns("b", 3, {"one": [2, 3], "two": [0, 1]},
             subscribed_topic_names=["two"]), versions=V1),
        Case("it has given up", BEAT, owns("b", 3, {"two": [0, 1]}), versions=V1),
        Case("the other gets all", BEAT, owns("a", 2, {"one": [0, 1]}), versions=V1),
        Case("two of different topics", DESCRIBE, describe("g")),
        Case("a third", BEAT, joins("c", "nothing"), versions=V1),
        Case("a fourth is too many", BEAT, joins("d", "one")),
        Case("another assignor", BEAT, beat("c", 5, server_assignor="range"), versions=V1),
        Case("three", DESCRIBE, describe("g")),
    ]  # fmt: skip


def offsets() -> list[Case]:
    return [
        Case("with the epoch", COMMIT, commit("c", 5), versions=(9, 9)),
        Case("before there were epochs", COMMIT, commit("c", 5), versions=(2, 8)),
        Case("with an earlier epoch", COMMIT, commit("c", 4), versions=(9, 9)),
        Case("with a later epoch", COMMIT, commit("c", 6), versions=(9, 9)),
        Case("of nobody", COMMIT, commit("x", 5), versions=(9, 9)),
        Case("of no member", COMMIT, commit("", -1), versions=(2, 9)),
        Case("with the epoch", FETCH, fetch("c", 5), versions=(9, 9)),
        Case("with an earlier epoch", FETCH, fetch("c", 4), versions=(9, 9)),
        Case("of nobody", FETCH, fetch("x", 5), versions=(9, 9)),
        Case("of no member", FETCH, fetch(None, -1), versions=(8, 9)),
        Case("a group with members", DELETE, {"groups_names": ["g"]}, versions=(2, 2)),
        Case("of a topic that is read", DELETE_OFFSETS, delete_offsets("one")),
        Case("of another", DELETE_OFFSETS, delete_offsets("two")),
    ]  # fmt: skip


def missing_groups() -> list[Case]:
    return [
        Case("of a group that is missing", COMMIT, commit("a", 1, "nobody"), versions=(9, 9)),
        Case("of a group that was missing", COMMIT, commit("a", 1, "nobody"), versions=(8, 8)),
        Case("of a group that is missing", FETCH, fetch("a", 1, "nobody"), versions=(9, 9)),
        Case("a group that is missing", DELETE, {"groups_names": ["nobody"]}, versions=(2, 2)),
        Case("of a group that is missing", DELETE_OFFSETS, delete_offsets("one", "nobody")),
    ]


def movements() -> list[Case]:
    """Uneven numbers, and a member that goes in the middle of a movement.

    By ranges, as `uniform` takes topics in the order of their ids, which are random in Kafka.
    """
    t = {"group": "u", "server_assignor": "range"}
    first = {"one": [0, 1, 2, 3], "two": [0, 1]}
    return [
        Case("all of two topics", BEAT, joins("a", "one", "two", **t), versions=V1),
        Case("ranges", BEAT, joins("b", "one", "two", **t), versions=V1),
        Case("it gives up", BEAT, beat("a", 1, "u"), versions=V1),
        Case("a third takes part", BEAT, joins("c", "one", "two", **t), versions=V1),
        Case("it gives up more", BEAT, owns("a", 1, first, **t), versions=V1),
        Case("moving", DESCRIBE, describe("u")),
        Case("the second", BEAT, beat("b", 2, "u"), versions=V1),
        Case("it goes meanwhile", BEAT, beat("a", -1, "u"), versions=V1),
        Case("the second gets more", BEAT, beat("b", 3, "u"), versions=V1),
        Case("the third gets more", BEAT, beat("c", 3, "u"), versions=V1),
        Case("moved", DESCRIBE, describe("u")),
        Case("a changed rack", BEAT, beat("b", 4, "u", rack_id="other"), versions=V1),
        Case("a changed time-out", BEAT, beat("b", 4, "u", rebalance_timeout_ms=5), versions=V1),
        Case("changed", DESCRIBE, describe("u")),
    ]  # fmt: skip


def classic_clients() -> list[Case]:
    leaves = {"group_id": "g", "members": [{"member_id": "x"}]}
    syncs = {"group_id": "g", "generation_id": 5, "member_id": "c", "assignments": []}
    return [
        Case("unknown to a classic group", HEARTBEAT,
             {"group_id": "g", "generation_id": 5, "member_id": "c"}, versions=(3, 4)),
        Case("of members that are none", LEAVE, leaves, versions=(3, 4)),
        Case("of a member of consumers", SYNC, syncs, versions=(3, 4)),
        Case("a classic member's heartbeat", HEARTBEAT,
             {"group_id": "g", "generation_id": 5, "member_id": "x"}, versions=(3, 4)),
        Case("a classic group", JOIN, classic("old"), versions=(3, 3)),
        Case("one of consumers at it", BEAT, joins("a", "one", group="old")),
        Case("described as consumers", DESCRIBE, describe("old")),
    ]  # fmt: skip


def leaving() -> list[Case]:
    return [
        Case("the first leaves", BEAT, beat("a", -1), versions=V1),
        Case("two are left", DESCRIBE, describe("g")),
        Case("the second leaves", BEAT, beat("b", -1), versions=V0),
        Case("the third leaves by an administrator", LEAVE, {"group_id": "g", "members": [
            {"member_id": "c"}, {"member_id": "x"}, {"member_id": "c"}]}, versions=(4, 4)),
        Case("nobody is left", DESCRIBE, describe("g")),
        Case("of no member", COMMIT, commit("", -1), versions=(9, 9)),
        Case("groups", LIST, {}, versions=(5, 5)),
        Case("a group without members", DELETE, {"groups_names": ["g"]}, versions=(2, 2)),
        Case("it is gone", DESCRIBE, describe("g")),
    ]  # fmt: skip


def times_of_groups() -> list[Case]:
    """A group's own interval of heartbeats, and the level of the protocol that it needs."""
    change = script_group_configs.sets(("consumer.heartbeat.interval.ms", 0, "7000"), name="t")

    def is_seven(answer: Any) -> bool:
        return bool(answer["heartbeat_interval_ms"] == 7000)

    def is_unsupported(answer: Any) -> bool:
        return bool(answer["error_code"] == 35)

    return [
        Case("by the broker's interval", BEAT, joins("a", "one", group="t"), versions=V1),
        Case("another interval", script_admin.INCREMENTAL, change, versions=V1),
        Case("by its own interval", BEAT, beat("a", 1, "t"), versions=V1, until=is_seven),
        Case("down, with groups", UPDATE_FEATURES, update((GROUPS, 0), kind=SAFE), versions=V1),
        Case("without the protocol", BEAT, beat("a", 1, "t"), versions=V1, until=is_unsupported),
        Case("without the protocol", LIST, {}, versions=(5, 5)),
    ]


def regular_expressions() -> list[Case]:
    """Looking topics up takes its time, and the next heartbeat shows them."""

    def has_all(answer: Any) -> bool:
        return bool(answer["assignment"] and answer["assignment"]["topic_partitions"])

    r: dict[str, Any] = {"group": "r", "subscribed_topic_names": None}
    return [
        Case("an expression", BEAT, joins("a", **r, subscribed_topic_regex="o.*"), versions=V1),
        Case("its topics", BEAT, beat("a", 1, "r"), versions=V1, until=has_all),
        Case("described", DESCRIBE, describe("r")),
        Case("a member with the same", BEAT, joins("b", **r, subscribed_topic_regex="o.*"),
             versions=V1),
        Case("described with two", DESCRIBE, describe("r")),
        Case("a part of a name", BEAT, joins("c", **r, subscribed_topic_regex="on"), versions=V1),
        Case("none any more", BEAT, beat("b", 3, "r", subscribed_topic_regex=""), versions=V1),
        Case("a wrong one", BEAT, beat("b", 3, "r", subscribed_topic_regex="[a"), versions=V1),
        Case("what RE2 has not", BEAT, beat("b", 3, "r", subscribed_topic_regex="(?=a)"),
             versions=V1),
    ]  # fmt: skip


def static_members() -> list[Case]:
    s = {"group": "s", "instance_id": "i"}
    return [
        Case("a static member", BEAT, joins("a", "one", **s), versions=V1),
        Case("its like while it is there", BEAT, joins("b", "one", **s)),
        Case("it goes away", BEAT, beat("a", -2, **s), versions=V1),
        Case("away", DESCRIBE, describe("s")),
        Case("its like", BEAT, joins("b", "one", **s), versions=V1),
        Case("back", DESCRIBE, describe("s")),
        Case("the former one", BEAT, beat("a", 1, **s)),
        Case("the former one leaves", BEAT, beat("a", -1, **s)),
        Case("one without its instance id", BEAT, beat("b", 1, "s")),
        Case("another instance", BEAT, beat("b", 1, "s", instance_id="j")),
        Case("a former one leaves by an administrator", LEAVE, {"group_id": "s", "members": [
            {"member_id": "a", "group_instance_id": "i"},
            {"member_id": "", "group_instance_id": "j"}]}, versions=(4, 4)),
        Case("its instance leaves by an administrator", LEAVE, {"group_id": "s", "members": [
            {"member_id": "", "group_instance_id": "i"}]}, versions=(4, 4)),
        Case("and joins", BEAT, joins("b", "one", **s), versions=V1),
        Case("it leaves for good", BEAT, beat("b", -1, **s), versions=V1),
        Case("nobody is left", DESCRIBE, describe("s")),
    ]  # fmt: skip


async def ask_both(ours: Side, theirs: Side, cases: list[Case]) -> tuple[int, list[Difference]]:
    try:
        asked = differences.api_versions()
        told = [await side.ask(1, API_VERSIONS, 0, asked) for side in (ours, theirs)]
        return await compare(ours, theirs, Offered(*map(plain, told)), cases)
    finally:
        ours.close()
        theirs.close()


def test_the_answers_are_those_of_apache_kafka(sides: tuple[Side, Side]) -> None:
    cases = [
        *set_up(), *requests(), *members(), *offsets(), *missing_groups(), *movements(),
        *classic_clients(), *leaving(), *static_members(), *regular_expressions(),
        *script_group_configs.cases(), *times_of_groups(),
    ]  # fmt: skip
    asked, found = trio.run(ask_both, *sides, cases)
    known = differences.load(differences.OF_CONSUMER_GROUPS)
    left = [d for d in found if not any(entry.covers(d) for entry in known)]
    assert not left, "\n".join(map(str, left[:60]))
    stale = [entry for entry in known if not any(entry.covers(d) for d in found)]
    assert not stale, stale
    assert asked > 100
