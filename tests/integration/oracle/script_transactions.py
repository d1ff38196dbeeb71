"""Requests of transactional producers, and of administrators of transactions.

One transactional id for each round.  A round sends each API at one version, so that the state it
leaves is known.
"""

from __future__ import annotations

from typing import Any

from highwater.kafka.topic_names import INTERNAL_TOPICS
from highwater.kafka.wire.records import TRANSACTIONAL, Record, build_batch
from tests.integration.oracle import script_admin
from tests.integration.oracle.asking import Case

PRODUCE, OFFSET_FETCH, FIND = 0, 9, 10
INIT, ADD, ADD_OFFSETS, END, MARKERS, COMMIT = 22, 24, 25, 26, 27, 28
PRODUCERS, DESCRIBE, LIST = 61, 65, 66
Facts = dict[str, Any]
ROUNDS = range(5)


def set_up() -> list[Case]:
    state = script_admin.new_topic(
        "__transaction_state", -1, -1, assigned={0: [1]}, configs={"cleanup.policy": "compact"}
    )

    def led(answer: Any) -> bool:
        return bool(answer["topics"][0]["partitions"]) and not answer["topics"][0]["error_code"]

    names = {"topics": [{"name": "__transaction_state"}]}
    return [
        Case("transactions' topic", 19, script_admin.create(state), "controller", (4, 4)),
        *(Case("its leader", 3, names, to, (5, 5), until=led) for to in "12"),
    ]


def keep(number: int) -> Any:
    def kept(_: int, answer: Any, facts: Facts) -> None:
        if not answer["error_code"]:
            facts[f"txn-{number}"] = (answer["producer_id"], answer["producer_epoch"])

    return kept


class Round:
    """The requests of one transactional id."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.id = f"txn-{number}"

    def who(self, facts: Facts) -> tuple[int, int]:
        found = facts.get(self.id, (-1, -1))
        return found[0], found[1]

    def case(self, what: str, api: int, body: Any, version: int, **more: Any) -> Case:
        return Case(f"{self.id}: {what}", api, body, versions=(version, version), **more)

    def init(self, what: str, version: int, **more: Any) -> Case:
        expected = more.pop("expected", None)
        timeout = more.pop("timeout_ms", 60_000)

        def body(version: int, facts: Facts) -> dict[str, Any]:
            fields = {"transactional_id": self.id, "transaction_timeout_ms": timeout}
            if version >= 3:
                pid, epoch = expected(self.who(facts)) if expected else (-1, -1)
                fields |= {"producer_id": pid, "producer_epoch": epoch}
            return fields

        return self.case(what, INIT, body, version, **more)

    def add(self, what: str, version: int, **more: Any) -> Case:
        change = more.pop("who", lambda who: who)
        topics = more.pop("topics", {"two": [0]})

        def body(_: int, facts: Facts) -> dict[str, Any]:
            pid, epoch = change(self.who(facts))
            return {
                "v3_and_below_transactional_id": more.get("named", self.id),
                "v3_and_below_producer_id": pid,
                "v3_and_below_producer_epoch": epoch,
                "v3_and_below_topics": [{"name": t, "partitions": p} for t, p in topics.items()],
            }

        return self.case(what, ADD, body, version)

    def verify(self, what: str, version: int, **more: Any) -> Case:
        change = more.pop("who", lambda who: who)
        topics = more.pop("topics", {"two": [0]})

        def body(_: int, facts: Facts) -> dict[str, Any]:
            pid, epoch = change(self.who(facts))
            return {
                "transactions": [
                    {
                        "transactional_id": more.get("named", self.id),
                        "producer_id": pid,
                        "producer_epoch": epoch,
                        "verify_only": True,
                        "topics": [{"name": t, "partitions": p} for t, p in topics.items()],
                    }
                ]
            }

        return self.case(what, ADD, body, version)

    def end(self, what: str, version: int, commit: bool, **more: Any) -> Case:
        change = more.pop("who", lambda who: who)

        def body(_: int, facts: Facts) -> dict[str, Any]:
            pid, epoch = change(self.who(facts))
            return {
                "transactional_id": self.id,
                "producer_id": pid,
                "producer_epoch": epoch,
                "committed": commit,
            }

        return self.case(what, END, body, version, **more)

    def send(self, what: str, sequence: int, version: int = 7) -> Case:
        def body(_: int, facts: Facts) -> dict[str, Any]:
            pid, epoch = self.who(facts)
            batch = build_batch(
                [Record(None, b"v", 1_700_000_000_000)], producer_id=pid, producer_epoch=epoch,
                base_sequence=sequence, attributes=TRANSACTIONAL,
            )  # fmt: skip
            data = {"index": 0, "records": bytes(batch)}
            return {
                "transactional_id": self.id,
                "acks": -1,
                "timeout_ms": 5000,
                "topic_data": [{"name": "two", "partition_data": [data]}],
            }

        return self.case(what, PRODUCE, body, version)

    def offsets(self, what: str, version: int, **more: Any) -> Case:
        def body(_: int, facts: Facts) -> dict[str, Any]:
            pid, epoch = self.who(facts)
            topic = more.get("topic", "two")
            place = {
                "partition_index": 0,
                "committed_offset": 7,
                "committed_leader_epoch": -1,
                "committed_metadata": more.get("metadata", ""),
            }
            return {
                "transactional_id": self.id, "group_id": f"g-{self.id}", "producer_id": pid,
                "producer_epoch": epoch, "generation_id": more.get("generation", -1),
                "member_id": more.get("member", ""), "group_instance_id": None,
                "topics": [{"name": topic, "partitions": [place] * more.get("times", 1)}],
            }  # fmt: skip

        return self.case(what, COMMIT, body, version)

    def add_offsets(self, what: str, version: int) -> Case:
        def body(_: int, facts: Facts) -> dict[str, Any]:
            pid, epoch = self.who(facts)
            return {
                "transactional_id": self.id,
                "producer_id": pid,
                "producer_epoch": epoch,
                "group_id": f"g-{self.id}",
            }

        return self.case(what, ADD_OFFSETS, body, version)

    def offset(self, what: str, **more: Any) -> Case:
        topics = [{"name": "two", "partition_indexes": [0]}]
        body = {"group_id": f"g-{self.id}", "topics": topics, "require_stable": True}
        return self.case(what, OFFSET_FETCH, body, 7, **more)

    def described(self, what: str) -> Case:
        return self.case(what, DESCRIBE, {"transactional_ids": [self.id, "nobody", ""]}, 0)

    def cases(self) -> list[Case]:
        n = self.number
        add, end, commit = min(n, 3), n, min(n, 4)
        done = {"until": lambda a: a["error_code"] == 0}
        other_epoch = {"who": lambda who: (who[0], who[1] + 1)}
        other_id = {"who": lambda who: (who[0] + 10_000, who[1])}
        return [
            self.init("no time-out", n, timeout_ms=0),
            self.init("too long a time-out", n, timeout_ms=2**31 - 1), self.described("before"),
            self.init("a new one", n, keep=keep(n), **done), self.described("empty"),
            self.end("nothing to end", end, True), self.send("not added", 0),
            self.add("an unknown topic", add, topics={"two": [0], "nosuch": [0]}),
            self.add("a higher epoch", add, **other_epoch), self.add("another id", add, **other_id),
            self.add("nobody's", add, named="nobody"), self.add("no name", add, named=""),
            *(self.add(f"{t}", add, topics={"two": [0], t: [0]}) for t in sorted(INTERNAL_TOPICS)),
            self.add("a bad name", add, topics={"a b": [0]}), self.add("no topics", add, topics={}),
            self.add("one", add), self.add("again", add),
            self.add("it twice", add, topics={"two": [0, 0]}), self.verify("added", 4),
            self.verify("added", 5), self.verify("not added", 5, topics={"two": [1]}),
            self.verify("a higher epoch", 5, **other_epoch),
            self.verify("an internal topic", 5, topics={"__consumer_offsets": [0]}),
            self.verify("another id", 4, **other_id), self.verify("nobody's", 5, named="nobody"),
            self.send("first", 0), self.send("second", 1), self.send("first again", 0),
            self.send("out of order", 7), self.offsets("offsets not added", commit),
            self.add_offsets("offsets", min(n, 3)), self.offsets("offsets added", commit),
            self.offsets("unknown topic", commit, topic="nosuch"),
            self.offsets("twice", commit, times=2),
            self.offsets("long metadata", commit, metadata="x" * 5000),
            self.offsets("a generation of nobody", max(commit, 3), generation=3, member="x"),
            self.offset("not yet"), self.end("a higher epoch", end, True, **other_epoch),
            self.end("another id", end, True, **other_id), self.end("it", end, n % 2 == 0),
            self.end("it, again", end, n % 2 == 0, **done),
            self.end("the other way", end, n % 2 == 1), self.described("after"),
            self.offset("now", until=lambda a: a["topics"][0]["partitions"][0]["error_code"] == 0),
            self.send("late", 2), self.init("goes on", max(n, 3), expected=lambda who: who),
            self.init("goes on, a retry", max(n, 3), expected=lambda who: who, keep=keep(n)),
            self.init("was fenced", max(n, 3), expected=lambda who: (who[0], who[1] + 7)),
            self.init("another's", max(n, 3), expected=lambda who: (who[0] + 10_000, 0)),
            self.add("the next", add), self.init("a hijack", n, **done),
            self.end("of the zombie", end, True), self.add("of the zombie", add),
            self.described("fenced"),
        ]  # fmt: skip


def others() -> list[Case]:
    def marker(what: str, topic: str, partition: int, pid: int = 9_999_999) -> Case:
        body = {
            "markers": [
                {
                    "producer_id": pid,
                    "producer_epoch": 0,
                    "transaction_result": False,
                    "topics": [{"name": topic, "partition_indexes": [partition]}],
                    "coordinator_epoch": 3,
                }
            ]
        }
        return Case(f"a marker, {what}", MARKERS, body, versions=(1, 1))

    listing = {"state_filters": ["Empty", "Odd"], "producer_id_filters": [], "duration_filter": -1}
    producers = {"topics": [{"name": "nosuch", "partition_indexes": [0]}]}
    return [
        Case(
            "of a transactional id",
            FIND,
            lambda v, _: (
                {"key_type": 1, "coordinator_keys": ["x"]}
                if v >= 4
                else {"key": "x", "key_type": 1}
            ),
            versions=(1, 99),
            until=lambda a: (a.get("coordinators") or [a])[0]["error_code"] == 0,
        ),
        marker("for nothing open", "two", 0),
        marker("to an unknown topic", "nosuch", 0),
        marker("to an unknown partition", "two", 9),
        marker("to a follower", "two", 1),
        Case("no markers", MARKERS, {"markers": []}, versions=(1, 1)),
        Case("of the other broker", LIST, listing, "2"),
        Case("ids of nobody", LIST, {**listing, "producer_id_filters": [77]}),
        Case("of an unknown topic", PRODUCERS, producers),
        Case("at the wrong broker", DESCRIBE, {"transactional_ids": ["txn-0"]}, "2"),
    ]


def cases() -> list[Case]:
    return [*set_up(), *others(), *(case for n in ROUNDS for case in Round(n).cases())]
