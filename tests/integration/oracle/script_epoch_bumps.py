"""Transactions of version 2: producers that add no partition, and get an epoch with each end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from highwater.kafka.wire.records import TRANSACTIONAL, Record, build_batch
from tests.integration.oracle.asking import Case

PRODUCE, FIND, INIT, END, MARKERS, COMMIT, DESCRIBE = 0, 10, 22, 26, 27, 28, 65
NAME, GROUP = "bumping", "bumping-group"
COORDINATORS = {NAME: 1, GROUP: 0}
Facts = dict[str, Any]


def keep(at: str) -> Callable[[int, Any, Facts], None]:
    def kept(_: int, answer: Any, facts: Facts) -> None:
        if not answer["error_code"]:
            facts[at] = (answer["producer_id"], answer["producer_epoch"])

    return kept


def other(id_by: int = 0, epoch_by: int = 0) -> Callable[[tuple[int, int]], tuple[int, int]]:
    return lambda who: (who[0] + id_by, who[1] + epoch_by)


def same(who: tuple[int, int]) -> tuple[int, int]:
    return who


def end(
    what: str, at: str, commit: bool, *, version: int = 5, who: Any = same, **more: Any
) -> Case:
    def body(_: int, facts: Facts) -> dict[str, Any]:
        pid, epoch = who(facts[at])
        return {
            "transactional_id": NAME, "producer_id": pid, "producer_epoch": epoch,
            "committed": commit,
        }  # fmt: skip

    return Case(what, END, body, versions=(version, version), **more)


def send(what: str, at: str, sequence: int, *, version: int = 12, who: Any = same) -> Case:
    def body(_: int, facts: Facts) -> dict[str, Any]:
        pid, epoch = who(facts[at])
        batch = build_batch(
            [Record(None, b"v", 1_700_000_000_000)], producer_id=pid, producer_epoch=epoch,
            base_sequence=sequence, attributes=TRANSACTIONAL,
        )  # fmt: skip
        data = {"index": 0, "records": bytes(batch)}
        topic = {"name": "other", "partition_data": [data]}
        return {"transactional_id": NAME, "acks": -1, "timeout_ms": 5000, "topic_data": [topic]}

    return Case(what, PRODUCE, body, versions=(version, version))


def offsets(what: str, at: str, *, version: int = 5, who: Any = same, **more: Any) -> Case:
    def body(_: int, facts: Facts) -> dict[str, Any]:
        pid, epoch = who(facts[at])
        place = {
            "partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1,
            "committed_metadata": "",
        }  # fmt: skip
        return {
            "transactional_id": NAME, "group_id": GROUP, "producer_id": pid,
            "producer_epoch": epoch, "generation_id": -1, "member_id": "",
            "group_instance_id": None, "topics": [{"name": "other", "partitions": [place]}],
        }  # fmt: skip

    return Case(what, COMMIT, body, versions=(version, version), **more)


def init(what: str, at: str, kept: str, expected: bool = True, **more: Any) -> Case:
    def body(_: int, facts: Facts) -> dict[str, Any]:
        pid, epoch = facts[at] if expected else (-1, -1)
        return {
            "transactional_id": NAME, "transaction_timeout_ms": 60_000, "producer_id": pid,
            "producer_epoch": epoch,
        }  # fmt: skip

    return Case(what, INIT, body, versions=(5, 5), keep=keep(kept), **more)


def marker(what: str, at: str, *, who: Any = same) -> Case:
    def body(_: int, facts: Facts) -> dict[str, Any]:
        pid, epoch = who(facts[at])
        one = {
            "producer_id": pid, "producer_epoch": epoch, "transaction_result": True,
            "topics": [{"name": "other", "partition_indexes": [0]}], "coordinator_epoch": 99,
            "transaction_version": 2,
        }  # fmt: skip
        return {"markers": [one]}

    return Case(what, MARKERS, body, versions=(2, 2))


def described(what: str, state: str) -> Case:
    def shown(answer: Any) -> bool:
        return bool(answer["transaction_states"][0]["transaction_state"] == state)

    body = {"transactional_ids": [NAME]}
    return Case(what, DESCRIBE, body, versions=(0, 0), until=shown)


def cases() -> list[Case]:
    finds = [
        Case(f"coordinator of {name}", FIND, {"key_type": kind, "coordinator_keys": [name]},
             versions=(4, 4), until=lambda a: a["coordinators"][0]["error_code"] == 0)
        for name, kind in COORDINATORS.items()
    ]  # fmt: skip
    taken: dict[str, Any] = {"until": lambda a: a["error_code"] == 0}

    def committed(answer: Any) -> bool:
        return bool(answer["topics"][0]["partitions"][0]["error_code"] == 0)

    return [
        *finds,
        init("a producer", "-", "first", expected=False, **taken),
        end("a commit of nothing", "first", True), send("not added", "first", 0, version=11),
        offsets("not added", "first", version=4),
        send("a later epoch", "first", 0, who=other(0, 1)),
        send("another id", "first", 0, who=other(7000)),
        send("the first batch", "first", 0), send("the second batch", "first", 1),
        described("begun by a batch", "Ongoing"),
        end("another id", "first", True, who=other(7000)),
        end("a later epoch", "first", True, who=other(0, 1)),
        end("the end", "first", True, keep=keep("second")), described("ended", "CompleteCommit"),
        end("the end again", "first", True), end("the other end", "first", False),
        end("by an earlier version", "first", True, version=4),
        send("late", "first", 2), offsets("late", "first"),
        offsets("offsets begin", "second", until=committed),
        end("late, in the next one", "first", True),
        end("late, in the next one, the other", "first", False),
        send("a batch joins", "second", 0), marker("a marker that is late", "second"),
        marker("a marker that is later", "first"),
        end("an abort", "second", False, keep=keep("third")),
        described("aborted", "CompleteAbort"),
        end("the abort again", "second", False), end("the other end of it", "second", True),
        end("an abort of nothing", "third", False, keep=keep("fourth")),
        described("aborted again", "CompleteAbort"),
        end("it again", "third", False), end("a commit of nothing again", "fourth", True),
        # another producer comes, and the first one finds out
        send("left open", "fourth", 0),
        init("it is fenced", "-", "-", expected=False), described("it is aborted", "CompleteAbort"),
        end("a commit of what was fenced", "fourth", True),
        end("its abort by an earlier version", "fourth", False, version=4),
        end("its abort", "fourth", False, keep=keep("fifth")),
        init("its old identity", "fourth", "fifth", **taken), send("it goes on", "fifth", 0),
        end("by an earlier version, in order", "fifth", True, version=4),
        described("in the same epoch", "CompleteCommit"),
        end("by v5, the same epoch", "fifth", True),
        end("an abort by v5", "fifth", False, keep=keep("sixth")),
        described("once more", "CompleteAbort"),
        init("the end", "-", "last", expected=False, **taken),
    ]  # fmt: skip
