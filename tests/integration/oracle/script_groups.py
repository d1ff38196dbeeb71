"""Requests of consumer groups: their coordinator, members, offsets, and administration.

Each version uses groups of its own, so that one does not disturb the next.
"""

from __future__ import annotations

from typing import Any

from tests.integration.oracle.asking import Case

COMMIT, FETCH, FIND, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 10, 11, 12, 13, 14
DESCRIBE, LIST, DELETE, DELETE_OFFSETS = 15, 16, 42, 47
Facts = dict[str, Any]
OFFSETS_TOPIC = "__consumer_offsets"
UUID = "11111111-2222-3333-4444-555555555555"


def finds() -> list[Case]:
    def find(key: str, kind: int = 0) -> Any:
        def body(version: int, _: Facts) -> dict[str, Any]:
            if version >= 4:
                return {"key_type": kind, "coordinator_keys": [key]}
            return {"key": key, "key_type": kind}

        return body

    return [
        Case(
            "of a group",
            FIND,
            find("g"),
            until=lambda a: (a.get("coordinators") or [a])[0]["error_code"] == 0,
        ),
        Case("of a group, at the other broker", FIND, find("g"), "2"),
        Case("of no group", FIND, find("")),
        Case("of a kind that is none", FIND, find("g", 9), versions=(1, 99)),
        Case("of a share group", FIND, find("g:t:0", 2), versions=(1, 99)),
        Case("of many", FIND, {"key_type": 0, "coordinator_keys": ["g", "h"]}, versions=(4, 99)),
        Case("of none", FIND, {"key_type": 0, "coordinator_keys": []}, versions=(4, 99)),
    ]


def commit(group: str, topic: str = "two", **more: Any) -> dict[str, Any]:
    place = {
        "partition_index": more.pop("partition", 0),
        "committed_offset": more.pop("offset", 1),
        "committed_leader_epoch": -1,
        "committed_metadata": more.pop("metadata", "m"),
    }
    return {
        "group_id": group,
        "generation_id_or_member_epoch": more.pop("generation", -1),
        "member_id": more.pop("member", ""),
        "topics": [{"name": topic, "partitions": [place]}],
        **more,
    }


def fetched(group: str, topics: Any, **more: Any) -> Any:
    def body(version: int, _: Facts) -> dict[str, Any]:
        wanted = None
        if topics is not None:
            wanted = [{"name": t, "partition_indexes": p} for t, p in topics.items()]
        if version >= 8:
            return {"groups": [{"group_id": group, "topics": wanted}], **more}
        return {"group_id": group, "topics": wanted, **more}

    return body


def doubled(body: dict[str, Any]) -> dict[str, Any]:
    """Its partition twice in its topic, with another offset, and that topic twice."""
    (topic,) = body["topics"]
    place = {**topic["partitions"][0], "committed_offset": 2}
    return {**body, "topics": [{**topic, "partitions": [*topic["partitions"], place]}, topic]}


def offsets() -> list[Case]:
    return [
        Case("a commit without a member", COMMIT, commit("simple"), versions=(2, 99)),
        Case("negative offset", COMMIT, commit("simple", offset=-1, partition=1), versions=(2, 99)),
        Case("long metadata", COMMIT, commit("simple", metadata="x" * 5000), versions=(2, 99)),
        Case("null metadata", COMMIT, commit("simple", metadata=None), versions=(2, 99)),
        Case("unknown topic", COMMIT, commit("simple", "no-such-topic"), versions=(2, 99)),
        Case("unknown partition", COMMIT, commit("simple", partition=9), versions=(2, 99)),
        Case("no group id", COMMIT, commit(""), versions=(2, 99)),
        Case("a partition twice", COMMIT, doubled(commit("simple")), versions=(2, 99)),
        Case("an unknown one twice", COMMIT, doubled(commit("simple", "nosuch")), versions=(2, 99)),
        Case("of no topic", COMMIT, commit("none", "nosuch"), versions=(2, 99)),
        Case("no group was made", DELETE_OFFSETS, _delete_offsets("none", "two", 0)),
        Case("of a bad name", COMMIT, commit("simple", "a b"), versions=(2, 99)),
        Case("of an internal topic", COMMIT, commit("simple", OFFSETS_TOPIC), versions=(2, 99)),
        Case("an unknown member", COMMIT, commit("simple", member="x"), versions=(2, 99)),
        Case(
            "a generation of nobody",
            COMMIT,
            commit("nobody", generation=3, member="x"),
            versions=(2, 99),
        ),
        Case(
            "an unknown static member",
            COMMIT,
            commit("simple", generation=1, member="x", group_instance_id="i"),
            versions=(7, 99),
        ),
        Case("v0: ZooKeeper's", COMMIT, commit("old"), versions=(0, 0)),
        Case("what was committed", FETCH, fetched("simple", {"two": [0, 1]}), versions=(1, 99)),
        Case("all", FETCH, fetched("simple", None), versions=(2, 99)),
        Case("of none", FETCH, fetched("simple", {}), versions=(1, 99)),
        Case("of an unknown group", FETCH, fetched("unknown", {"two": [0]}), versions=(1, 99)),
        Case("of an unknown topic", FETCH, fetched("simple", {"nosuch": [0]}), versions=(1, 99)),
        Case("all of an unknown group", FETCH, fetched("unknown", None), versions=(2, 99)),
        Case("of no group id", FETCH, fetched("", {"two": [0]}), versions=(1, 99)),
        Case(
            "of a group coordinated elsewhere", FETCH, fetched("simple", {"two": [0, 1]}), "2",
            versions=(1, 99),
        ),
        Case("a partition twice", FETCH, fetched("simple", {"two": [0, 0]}), versions=(1, 99)),
        Case(
            "stable", FETCH, fetched("simple", {"two": [0]}, require_stable=True), versions=(7, 99),
        ),
    ]  # fmt: skip


def join(version: int, facts: Facts, **more: Any) -> dict[str, Any]:
    return {
        "group_id": f"members-{version}",
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": facts.get(f"member-{version}", ""),
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
        **more,
    }


def keep_member(version: int, answer: Any, facts: Facts) -> None:
    facts[f"member-{version}"] = answer["member_id"]
    facts[f"generation-{version}"] = answer["generation_id"]


def member(version: int, facts: Facts, **more: Any) -> dict[str, Any]:
    # a version of one API uses the group of the JoinGroup version that is nearest
    version = min(version, 9)
    return {
        "group_id": f"members-{version}",
        "generation_id": facts[f"generation-{version}"],
        "member_id": facts[f"member-{version}"],
        **more,
    }


def joins() -> list[Case]:
    def case(name: str, **more: Any) -> Case:
        return Case(name, JOIN, lambda v, f: {**join(v, {}), **more})

    return [
        case("no group id", group_id=""),
        case("a short session", session_timeout_ms=1),
        case("a long session", session_timeout_ms=100_000_000),
        case("an unknown member", member_id="x-" + UUID),
        case("no protocols", protocols=[]),
        case("no protocol type", protocol_type=""),
        Case("a member", JOIN, join, keep=keep_member),
        Case(
            "a member with its id", JOIN, join, versions=(4, 99), keep=keep_member,
        ),
        Case("another protocol type", JOIN, lambda v, f: {**join(v, {}), "protocol_type": "x"}),
    ]  # fmt: skip


def members() -> list[Case]:
    def sync(version: int, facts: Facts) -> dict[str, Any]:
        mine = [{"member_id": facts[f"member-{version}"], "assignment": b"mine"}]
        named = {"protocol_type": "consumer", "protocol_name": "range"}
        return member(version, facts, assignments=mine, **named)

    def with_more(make: Any = member, **more: Any) -> Any:
        return lambda v, f: {**make(v, f), **more}

    def commits(version: int, facts: Facts) -> dict[str, Any]:
        known = member(version, facts)
        return commit(
            known["group_id"], generation=known["generation_id"], member=known["member_id"]
        )

    def leave(version: int, facts: Facts) -> dict[str, Any]:
        known = member(version, facts)
        if version >= 3:
            return {
                "group_id": known["group_id"],
                "members": [{"member_id": known["member_id"], "group_instance_id": None}],
            }
        return {"group_id": known["group_id"], "member_id": known["member_id"]}

    x = "x-" + UUID
    return [
        Case("sync: an unknown member", SYNC, with_more(sync, member_id=x)),
        Case("sync: a wrong generation", SYNC, with_more(sync, generation_id=77)),
        Case("sync: no group id", SYNC, with_more(sync, group_id="")),
        Case(
            "sync: another protocol",
            SYNC,
            with_more(sync, protocol_name="other"),
            versions=(5, 99),
        ),
        *(
            Case(f"sync: no {name}", SYNC, with_more(sync, **{name: None}), versions=(5, 99))
            for name in ("protocol_type", "protocol_name")
        ),
        Case("sync", SYNC, sync),
        Case("heartbeat", HEARTBEAT, member),
        Case("heartbeat: an unknown member", HEARTBEAT, with_more(member_id=x)),
        Case("heartbeat: a wrong generation", HEARTBEAT, with_more(generation_id=77)),
        Case("heartbeat: an unknown group", HEARTBEAT, with_more(group_id="unknown")),
        Case("heartbeat: no group id", HEARTBEAT, with_more(group_id="")),
        Case(
            "heartbeat: an unknown static member",
            HEARTBEAT,
            with_more(group_instance_id="i"),
            versions=(3, 99),
        ),
        Case("commit of a member", COMMIT, commits, versions=(2, 9)),
        Case(
            "commit of an old generation",
            COMMIT,
            lambda v, f: {**commits(v, f), "generation_id_or_member_epoch": 0},
            versions=(2, 9),
        ),
        *_asked(),
        Case("leave", LEAVE, leave),
        Case("leave again", LEAVE, leave),
        Case("leave: no group id", LEAVE, lambda v, f: {**leave(v, f), "group_id": ""}),
        Case("describe when it left", DESCRIBE, lambda v, f: {"groups": [f"members-{v}"]}),
        Case("delete", DELETE, lambda v, f: {"groups_names": [f"members-{v}"]}),
        Case("delete two", DELETE, {"groups_names": ["simple", "unknown"]}),
    ]


def _asked() -> list[Case]:
    """Requests while the members are there."""
    return [
        Case("describe", DESCRIBE, lambda v, f: {"groups": [f"members-{v}"]}),
        Case("describe: unknown", DESCRIBE, {"groups": ["unknown"]}),
        Case("describe: empty", DESCRIBE, {"groups": ["simple"]}),
        Case("describe: no group id", DESCRIBE, {"groups": [""]}),
        Case(
            "describe: operations",
            DESCRIBE,
            {"groups": ["simple"], "include_authorized_operations": True},
            versions=(3, 99),
        ),
        Case("list", LIST, {}),
        Case("list: stable ones", LIST, {"states_filter": ["Stable"]}, versions=(4, 99)),
        Case("list: a state in capitals", LIST, {"states_filter": ["EMPTY"]}, versions=(4, 99)),
        Case("list: a state that is none", LIST, {"states_filter": ["nosuch"]}, versions=(4, 99)),
        Case("list: classic ones", LIST, {"types_filter": ["classic"]}, versions=(5, 99)),
        Case("list: a type that is none", LIST, {"types_filter": ["nosuch"]}, versions=(5, 99)),
        Case("delete: it has members", DELETE, {"groups_names": ["members-5"]}),
        Case("delete: unknown", DELETE, {"groups_names": ["unknown"]}),
        Case("delete: no group id", DELETE, {"groups_names": [""]}),
        Case("offsets: of a topic in use", DELETE_OFFSETS, _delete_offsets("members-5", "two", 0)),
        Case("offsets: delete", DELETE_OFFSETS, _delete_offsets("simple", "two", 0)),
        Case("offsets: unknown topic", DELETE_OFFSETS, _delete_offsets("simple", "nosuch", 0)),
        Case("offsets: twice", DELETE_OFFSETS, _delete_offsets("simple", "two", 0, 0)),
        Case("offsets: unknown group", DELETE_OFFSETS, _delete_offsets("unknown", "two", 0)),
    ]


def _delete_offsets(group: str, topic: str, *partitions: int) -> dict[str, Any]:
    place = {"name": topic, "partitions": [{"partition_index": p} for p in partitions]}
    return {"group_id": group, "topics": [place]}


def cases() -> list[Case]:
    return [*finds(), *offsets(), *joins(), *members()]
