"""Groups with members of both protocols, on Highwater and on Apache Kafka 4.2: equal answers.

A group takes the consumer protocol when its first such member joins, and gives it up when the last
one has gone.  Deliberate differences are in differences_of_consumer_groups.toml.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import trio

from highwater.broker.coordinator.group.consumer.embedded import encode_assignment
from tests.integration.oracle import differences
from tests.integration.oracle.asking import Case, Side
from tests.integration.oracle.test_consumer_groups import (
    BEAT,
    COMMIT,
    DESCRIBE,
    DESCRIBE_OLD,
    FETCH,
    HEARTBEAT,
    JOIN,
    LEAVE,
    LIST,
    SYNC,
    V1,
    Body,
    Facts,
    GroupSide,
    ask_both,
    beat,
    commit,
    describe,
    fetch,
    joins,
    set_up,
    two_sides,
)

pytestmark = [
    pytest.mark.integration, pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(240),
]  # fmt: skip
V3, V5, V9, V5_6 = (3, 3), (5, 5), (9, 9), (5, 6)
ALL = [0, 1, 2, 3]


class MixedSide(GroupSide):
    """A side whose answers have names in place of the ids that it gave to members."""

    def _named(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.facts.get("members", {}).get(value, value)
        return super()._named(value)


@pytest.fixture(scope="module")
def sides(
    tmp_path_factory: pytest.TempPathFactory, apache_tool: Callable[..., Any]
) -> Iterator[tuple[Side, Side]]:
    with ExitStack() as stack:
        yield two_sides(stack, tmp_path_factory, MixedSide, max_size="4")


# --- requests


def named(name: str) -> Callable[[int, Any, Facts], None]:
    """Gives the member that a JoinGroup answers its name."""

    def keep(_: int, answer: Any, facts: Facts) -> None:
        member_id = answer["member_id"]
        assert member_id, (name, answer)
        if member_id == name:
            return  # it is known
        facts[name] = member_id
        facts.setdefault("members", {})[member_id] = name
        answer["member_id"] = name
        answer["leader"] = name if answer["leader"] == member_id else answer["leader"]
        for member in answer["members"]:
            member["member_id"] = name if member["member_id"] == member_id else "?"

    return keep


def subscribed(has: list[int], topic: str = "one", version: int = 1) -> bytes:
    name = topic.encode()
    listed = (1).to_bytes(4) + len(name).to_bytes(2) + name
    parts = encode_assignment([(topic, has)] if has else [], 1)[2:-4]
    return version.to_bytes(2) + listed + b"\xff\xff\xff\xff" + (parts if version else b"")


def classic(member: str = "", group: str = "m", **fields: Any) -> Any:
    """A JoinGroup; a member is named by the name that its side's id has."""
    metadata = fields.pop("metadata", subscribed(fields.pop("has", [])))
    names = fields.pop("names", ["range"])

    def body(_: int, facts: Facts) -> Body:
        return {
            "group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000,
            "member_id": facts.get(member, member), "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": metadata} for name in names], **fields,
        }  # fmt: skip

    return body


def syncs(
    member: str, generation: int, has: list[int] | None = None, *, group: str = "m",
    user_data: bytes = b"", **fields: Any,
) -> Any:  # fmt: skip
    def body(_: int, facts: Facts) -> Body:
        member_id = facts.get(member, member)
        given = []
        if has is not None:
            data = encode_assignment([("one", has)], 1)
            data = data[:-4] + len(user_data).to_bytes(4) + user_data if user_data else data
            given = [{"member_id": member_id, "assignment": data}]
        return {
            "group_id": group, "generation_id": generation, "member_id": member_id,
            "protocol_type": "consumer", "protocol_name": "range", "assignments": given, **fields,
        }  # fmt: skip

    return body


def alive(member: str, generation: int, group: str = "m", **fields: Any) -> Any:
    def body(_: int, facts: Facts) -> Body:
        member_id = facts.get(member, member)
        return {
            "group_id": group, "generation_id": generation, "member_id": member_id, **fields,
        }  # fmt: skip

    return body


def leaves(group: str, *members: tuple[str, str | None]) -> Any:
    def body(_: int, facts: Facts) -> Body:
        named_ones = [
            {"member_id": facts.get(m, m), "group_instance_id": instance} for m, instance in members
        ]
        return {"group_id": group, "members": named_ones}

    return body


def by_member(of: Callable[..., Body], member: str, *rest: Any) -> Any:
    return lambda _, facts: of(facts.get(member, member), *rest)


def shown(what: str, group: str = "m") -> list[Case]:
    return [
        Case(what, DESCRIBE, describe(group), versions=V1),
        Case(
            what,
            DESCRIBE_OLD,
            {"groups": [group], "include_authorized_operations": True},
            versions=V5_6,
        ),
        Case(what, LIST, {}, versions=V5),
    ]


# --- the script


def upgrade() -> list[Case]:
    return [
        Case("a classic member", JOIN, classic(), versions=V3, keep=named("k1")),
        Case("it assigns all to itself", SYNC, syncs("k1", 1, ALL), versions=V5),
        Case("it is alive", HEARTBEAT, alive("k1", 1), versions=(4, 4)),
        *shown("classic"),
        Case("an unknown member of consumers", BEAT, beat("c", 1, "m")),
        Case("one leaves that was not here", BEAT, beat("c", -1, "m")),
        Case("a consumer joins", BEAT, joins("c", "one", group="m"), versions=V1),
        *shown("one of each"),
        Case("told to join", HEARTBEAT, alive("k1", 1), versions=(4, 4)),
        Case("a later generation", HEARTBEAT, alive("k1", 2), versions=(4, 4)),
        Case("one of consumers", HEARTBEAT, alive("c", 2), versions=(4, 4)),
        Case("an unknown one", HEARTBEAT, alive("x", 2), versions=(4, 4)),
        Case("told to join", SYNC, syncs("k1", 1), versions=V5),
        Case("one of consumers", SYNC, syncs("c", 2), versions=V5),
        Case("it must give up", JOIN, classic("k1", has=ALL), versions=V9, keep=named("k1")),
        Case("what it keeps", SYNC, syncs("k1", 1), versions=V5),
        Case("another protocol", SYNC, syncs("k1", 1, protocol_name="sticky"), versions=V5),
        Case("another type", SYNC, syncs("k1", 1, protocol_type="connect"), versions=V5),
        Case("it has to join again", HEARTBEAT, alive("k1", 1), versions=(4, 4)),
        *shown("one must give up"),
        Case("it has given up", JOIN, classic("k1", has=[0, 1]), versions=V9, keep=named("k1")),
        Case("what it has", SYNC, syncs("k1", 2), versions=V5),
        Case("it is there", HEARTBEAT, alive("k1", 2), versions=(4, 4)),
        Case("the other gets it", BEAT, beat("c", 2, "m"), versions=V1),
        *shown("two of two kinds"),
    ]  # fmt: skip


def offsets() -> list[Case]:
    return [
        Case("of a classic member", COMMIT, by_member(commit, "k1", 2, "m"), versions=(2, 9)),
        Case("its generation before", COMMIT, by_member(commit, "k1", 1, "m"), versions=(7, 9)),
        Case("of no member", COMMIT, commit("", -1, "m"), versions=(7, 9)),
        Case("of a classic member", FETCH, by_member(fetch, "k1", 2, "m"), versions=V9),
        Case("its generation before", FETCH, by_member(fetch, "k1", 1, "m"), versions=V9),
    ]


def joining() -> list[Case]:
    return [
        Case("without an id", JOIN, classic(), versions=V9, keep=named("k2")),
        Case(
            "with its id",
            JOIN,
            classic("k2", metadata=subscribed([], "two")),
            versions=V9,
            keep=named("k2"),
        ),
        Case("what it has", SYNC, syncs("k2", 3), versions=V5),
        Case("it waits", HEARTBEAT, alive("k2", 3), versions=(4, 4)),
        *shown("three"),
        Case("of another type", JOIN, classic("y", protocol_type="connect"), versions=V9),
        Case("without protocols", JOIN, classic("y", names=[]), versions=V9),
        Case("of another protocol", JOIN, classic("y", names=["sticky"]), versions=V9),
        Case("too short a session", JOIN, classic("y", session_timeout_ms=1), versions=V9),
        Case("damaged", JOIN, classic("y", metadata=b"?"), versions=V9),
        Case("it leaves", LEAVE, leaves("m", ("k2", None), ("x", None)), versions=V5),
        Case("two again", BEAT, beat("c", 2, "m"), versions=V1),
    ]


def statics() -> list[Case]:
    i: dict[str, Any] = {"group_instance_id": "i"}
    return [
        Case("a static one", JOIN, classic(**i), versions=V9, keep=named("s1")),
        Case("its next process", JOIN, classic(**i), versions=V9, keep=named("s2")),
        Case("the former one", JOIN, classic("s1", **i), versions=V9),
        Case("the former one", HEARTBEAT, alive("s1", 5, **i), versions=(4, 4)),
        Case("the former one", SYNC, syncs("s1", 5, **i), versions=V5),
        Case("no such instance", JOIN, classic("s2", group_instance_id="j"), versions=V9),
        Case("no such instance", HEARTBEAT, alive("s2", 5, group_instance_id="j"),
             versions=(4, 4)),
        Case("its topics are others", JOIN,
             classic("s2", metadata=subscribed([], "two"), **i), versions=V9, keep=named("s2")),
        *shown("with a static one"),
        Case("by its instance id", LEAVE, leaves("m", ("", "i")), versions=V5),
    ]  # fmt: skip


def downgrade() -> list[Case]:
    return [
        Case("before it goes", BEAT, beat("c", -1, "m"), versions=V1),
        Case("it is gone", BEAT, beat("c", 2, "m"), versions=V1),
        Case("it has gone", DESCRIBE, describe("m"), versions=V1),
        Case("classic again", LIST, {}, versions=V5),
        Case("classic again", DESCRIBE_OLD, {"groups": ["m"]}, versions=V5_6),
        Case("of an epoch before", HEARTBEAT, alive("k1", 2), versions=(4, 4)),
        Case("it joins", JOIN, classic("k1"), versions=V9, keep=named("k1")),
    ]


def static_moves() -> list[Case]:
    w: dict[str, Any] = {"group": "w"}
    i: dict[str, Any] = {"group_instance_id": "i"}
    return [
        Case("alone and static", JOIN, classic(**w, **i), versions=V9, keep=named("w1")),
        Case("all to itself", SYNC, syncs("w1", 1, ALL, **w, **i), versions=V5),
        Case("as a consumer", BEAT, joins("w2", "one", **w, instance_id="i"), versions=V1),
        *shown("a consumer in its place", "w"),
        Case("the former one", HEARTBEAT, alive("w1", 1, **w, **i), versions=(4, 4)),
        Case("it goes away", BEAT, beat("w2", -2, "w", instance_id="i"), versions=V1),
        Case("classic again", JOIN, classic(**w, **i), versions=V9, keep=named("w3")),
        *shown("a classic one in its place", "w"),
        Case("the consumer", BEAT, beat("w2", 2, "w", instance_id="i"), versions=V1),
    ]


def refusals() -> list[Case]:
    return [
        Case("with data of its own", JOIN, classic(group="u"), versions=V3, keep=named("u1")),
        Case("with data of its own", SYNC, syncs("u1", 1, ALL, group="u", user_data=b"mine"),
             versions=V5),
        Case("data would be lost", BEAT, joins("c", "one", group="u"), versions=V1),
        Case("damaged", JOIN, classic(group="d", metadata=b"?"), versions=V3, keep=named("d1")),
        Case("what is damaged cannot move", BEAT, joins("c", "one", group="d"), versions=V1),
        Case("no consumers", JOIN, classic(group="n", protocol_type="connect"), versions=V3,
             keep=named("n1")),
        Case("no consumers", BEAT, joins("c", "one", group="n"), versions=V1),
        Case("not synced", JOIN, classic(group="p"), versions=V3, keep=named("p1")),
        Case("one that has not synced", BEAT,  # uniform deals by ids, which are random here
             joins("c", "one", group="p", server_assignor="range"), versions=V1),
        *shown("from the middle of a rebalance", "p"),
        Case("it must join again", SYNC, syncs("p1", 1, ALL, group="p"), versions=V5),
        Case("the oldest bytes", JOIN, classic("p1", group="p", metadata=subscribed([], version=0)),
             versions=V3, keep=named("p1")),
        Case("in the oldest bytes", SYNC, syncs("p1", 2, group="p"), versions=V5),
    ]  # fmt: skip


def test_mixed_groups_answer_as_those_of_apache_kafka(sides: tuple[Side, Side]) -> None:
    cases = [
        *set_up(), *upgrade(), *offsets(), *joining(), *statics(), *downgrade(),
        *static_moves(), *refusals(),
    ]  # fmt: skip
    asked, found = trio.run(ask_both, *sides, cases)
    known = differences.load(differences.OF_MIXED_GROUPS)
    covered = (*known, *differences.load(differences.OF_CONSUMER_GROUPS))
    left = [d for d in found if not any(entry.covers(d) for entry in covered)]
    assert not left, "\n".join(map(str, left[:60]))
    stale = [entry for entry in known if not any(entry.covers(d) for d in found)]
    assert not stale, stale
    assert asked > 80
