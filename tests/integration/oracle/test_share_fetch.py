"""ShareFetch and ShareAcknowledge on Highwater and on Apache Kafka 4.2: equal answers.

One broker each, which is its own share coordinator.  The state of share-partitions is initialized
by a request, so that no group needs a member.  Deliberate differences are in
differences_of_share_fetches.toml.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import pytest
import trio

from highwater.cluster.processes import apache
from highwater.cluster.processes.process_settings import Settings
from highwater.cluster.processes.programs import ApacheKafka, Highwater
from highwater.cluster.target import QUICK
from highwater.kafka.topic_ids import to_text
from tests.background import BackgroundCluster
from tests.integration.oracle import differences, script_admin
from tests.integration.oracle.asking import Case, Side
from tests.integration.oracle.script_records import PRODUCE, batch, produce
from tests.integration.oracle.test_consumer_groups import GroupSide, ask_both
from tests.integration.oracle.test_topics_by_id import (
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
SHARE_FETCH, ACKNOWLEDGE, INITIALIZE, READ_STATE, DELETE_RECORDS = 78, 79, 83, 84, 21
GAP, ACCEPT, RELEASE_, REJECT, RENEW = range(5)
LOCK_MS = 6000
TOPICS = {"one": 2, "two": 1}
Facts = dict[str, Any]
Body = dict[str, Any]


@pytest.fixture(scope="module")
def sides(
    tmp_path_factory: pytest.TempPathFactory, apache_tool: Callable[..., Any]
) -> Iterator[tuple[Side, Side]]:
    kraft = ApacheKafka(apache.home(RELEASE), jvm=QUICK, version=RELEASE, kraft=True)
    properties = {
        "auto.create.topics.enable": "false",
        "log.retention.ms": "-1",  # the records' times are long ago
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": str(LOCK_MS),
        "group.share.partition.max.record.locks": "100",
        "group.share.delivery.count.limit": "3",
        "group.share.max.share.sessions": "8",
        "group.share.max.size": "8",
    }
    with ExitStack() as stack:
        made = []
        for name, program in (("highwater", Highwater()), ("apache", kraft)):
            settings = Settings(
                tmp_path_factory.mktemp(name) / "cluster", brokers=1, program=program,
                quick_end=True, properties=properties,
                zookeeper="embedded" if name == "highwater" else "",
            )  # fmt: skip
            cluster = stack.enter_context(BackgroundCluster.of(settings))
            made.append(GroupSide(name, {1: cluster.cluster.address(1)}, 1))
        yield made[0], made[1]


# --- requests


def acks(*ranges: tuple[int, int, int | list[int]]) -> list[Body]:
    return [
        {"first_offset": first, "last_offset": last,
         "acknowledge_types": kind if isinstance(kind, list) else [kind]}
        for first, last, kind in ranges
    ]  # fmt: skip


def topics(facts: Facts, places: dict[str, dict[int, list[Body]]]) -> list[Body]:
    return [
        {"topic_id": facts.get(topic, NEVER), "partitions": [
            {"partition_index": p, "acknowledgement_batches": a} for p, a in partitions.items()]}
        for topic, partitions in places.items()
    ]  # fmt: skip


def rests() -> Callable[[Any], bool]:
    """Whether the last answers are the same: what a closed session had is released later."""
    seen: list[Any] = []

    def same(answer: Any) -> bool:
        seen.append(answer)
        return len(seen) > 4 and all(earlier == answer for earlier in seen[-5:])

    return same


class Script:
    """The requests of one version, on a group of their own."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.group = f"g{version}"
        self.cases: list[Case] = []

    def fetch(
        self, name: str, epoch: int, member: str | None = "a", *acked: Any, topic: str = "one",
        partitions: tuple[int, ...] = (0,), until: Any = None, **fields: Any,
    ) -> None:  # fmt: skip
        def body(_: int, facts: Facts) -> Body:
            places = {topic: {p: acks(*acked) for p in partitions}} if partitions else {}
            gone = fields.get("forgotten", ())
            given = {
                "group_id": self.group, "member_id": member, "share_session_epoch": epoch,
                "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "max_records": 500,
                "batch_size": 500, "topics": topics(facts, places), "forgotten_topics_data": [
                    {"topic_id": facts["one"], "partitions": list(gone)}] if gone else [],
            }  # fmt: skip
            return given | {k: v for k, v in fields.items() if k != "forgotten"}

        self._add(name, SHARE_FETCH, body, until)

    def waits(self, name: str, epoch: int, member: str = "a", *acked: Any, **fields: Any) -> None:
        """A fetch that waits for records."""
        self.fetch(name, epoch, member, *acked, **{"max_wait_ms": 10_000, "min_bytes": 1} | fields)

    def acknowledge(
        self, name: str, epoch: int, member: str | None, *acked: Any, topic: str = "one",
        partition: int = 0, **fields: Any,
    ) -> None:  # fmt: skip
        def body(_: int, facts: Facts) -> Body:
            return {
                "group_id": self.group, "member_id": member, "share_session_epoch": epoch,
                "topics": topics(facts, {topic: {partition: acks(*acked)}}), **fields,
            }  # fmt: skip

        self._add(name, ACKNOWLEDGE, body)

    def state(self, name: str, topic: str = "one", partition: int = 0) -> None:
        """What the share coordinator has."""

        def body(_: int, facts: Facts) -> Body:
            places = [{"partition": partition, "leader_epoch": 0}]
            return {
                "group_id": self.group,
                "topics": [{"topic_id": facts[topic], "partitions": places}],
            }

        self.cases.append(
            Case(f"{name} ({self.group})", READ_STATE, body, versions=(0, 0), until=rests())
        )

    def _add(self, name: str, key: int, body: Any, until: Any = None) -> None:
        version = (self.version, self.version)
        self.cases.append(Case(name, key, body, versions=version, until=until))

    # --- the parts of the script

    def refused(self) -> None:
        self.fetch("no session", 1)
        self.fetch("no session to close", -1)
        self.acknowledge("no session", 1, "a", (0, 0, ACCEPT))
        self.acknowledge("no session to close", -1, "a")
        self.acknowledge("that opens a session", 0, "a")
        self.fetch("no group", 0, group_id=None)
        self.fetch("no member", 0, "")
        self.fetch("a null member", 0, None)
        self.fetch("a long member", 0, "m" * 37)
        self.acknowledge("no group", 1, "a", group_id=None)
        self.acknowledge("no member", 1, "")
        self.fetch("acknowledgements that open a session", 0, "a", (0, 0, ACCEPT))

    def members(self) -> None:
        self.waits("whole batches", 0, "a", max_records=5)
        self.fetch("a wrong epoch", 5)
        self.waits("two batches", 1, "a", max_records=11)
        self.fetch("the rest", 2, "a")
        self.fetch("nothing is left", 3, "a")
        self.acknowledge("a part", 4, "a", (0, 4, ACCEPT))
        self.acknowledge("that part again", 5, "a", (0, 4, ACCEPT))
        self.acknowledge("each record", 6, "a", (5, 9, [ACCEPT, RELEASE_, REJECT, GAP, ACCEPT]))
        self.state("stored")
        self.fetch("released", 7, "a")
        self.acknowledge("below the start", 8, "a", (0, 3, ACCEPT))
        self.acknowledge("two batches at once", 9, "a", (10, 14, ACCEPT), (15, 19, REJECT))
        self.fetch("with acknowledgements", 10, "a", (20, 29, ACCEPT), (30, 32, RELEASE_))
        self.waits("what was released", 11, "a")
        self.state("stored later")

    def wrong_acknowledgements(self) -> None:
        b = 12
        wrong: list[tuple[str, tuple[Any, ...]]] = [
            ("backwards", ((5, 4, ACCEPT),)),
            ("no types", ((33, 33, []),)),
            ("too few types", ((33, 35, [ACCEPT, ACCEPT]),)),
            ("an unknown type", ((33, 33, 5),)),
            ("a negative type", ((33, 33, -1),)),
            ("a renewal that is not announced", ((33, 33, RENEW),)),
            ("out of order", ((33, 34, ACCEPT), (31, 32, ACCEPT))),
            ("nobody has them", ((10, 12, ACCEPT),)),
            ("beyond the end", ((200, 210, ACCEPT),)),
            ("over the end", ((34, 210, ACCEPT),)),
            ("one is acknowledged", ((29, 31, ACCEPT),)),
        ]
        for n, (name, acked) in enumerate(wrong):
            self.acknowledge(name, b + n, "a", *acked)
        b += len(wrong)
        self.fetch("wrong, with a fetch", b, "a", (200, 210, ACCEPT))
        self.acknowledge("of an unknown topic", b + 1, "a", (0, 0, ACCEPT), topic="never")
        self.acknowledge("of an unknown partition", b + 2, "a", (0, 0, ACCEPT), partition=9)
        self.acknowledge("of one that was not fetched", b + 3, "a", (0, 0, ACCEPT), partition=1)
        self.acknowledge("nothing", b + 4, "a")
        self.acknowledge("records of another member", 0, "b", (33, 34, ACCEPT))
        self.waits("the other's session", 0, "b", max_wait_ms=10)
        self.acknowledge("records of another member", 1, "b", (33, 34, ACCEPT))
        self.fetch("an unknown topic", 2, "b", topic="never")
        self.fetch("an unknown partition", 3, "b", partitions=(9,))
        self.fetch("they are remembered", 4, "b", partitions=())
        self.fetch("one is forgotten", 5, "b", partitions=(), forgotten=(9,))
        self.acknowledge("the other closes", -1, "b")
        self.fetch("closed", 6, "b")

    def closing(self) -> None:
        self.acknowledge("the last, and closed", -1, "a", (33, 34, ACCEPT))
        self.state("released at the end")
        self.waits("what the session had", 0, "c")
        self.fetch("closed by a fetch", -1, "c", (30, 31, ACCEPT))
        self.state("after a fetch that closes")
        self.waits("the last attempt", 0, "d")
        self.acknowledge("released for the last time", 1, "d", (32, 32, RELEASE_))
        self.state("archived")
        self.fetch("nothing comes again", 2, "d")

    def locks(self) -> None:
        self.waits("another partition", 0, "e", partitions=(1,))
        self.waits("waits for the lock", 0, "f", partitions=(1,), max_wait_ms=3 * LOCK_MS)
        self.acknowledge("too late", 1, "e", (0, 0, ACCEPT), partition=1)
        self.state("after a lock", partition=1)

    def limits(self) -> None:
        self.waits("up to the limit", 0, "h", topic="two", batch_size=20)
        self.fetch("at the limit", 1, "h", partitions=())
        self.acknowledge("some", 2, "h", (20, 39, RELEASE_), topic="two")
        self.waits("those again", 3, "h", partitions=())
        self.acknowledge("the first", 4, "h", (0, 19, ACCEPT), topic="two")
        self.fetch("as many", 5, "h", partitions=(), max_records=7)
        self.acknowledge("all, and closed", -1, "h", topic="two")
        self.waits("a few bytes", 0, "i", topic="two", max_bytes=200)
        self.waits("few records", 1, "i", topic="two", max_records=30)

    def later_versions(self) -> None:
        renews = (40, 49, RENEW)
        two: Any = {"topic": "two", "is_renew_ack": True}
        nothing: Any = {"max_bytes": 0, "min_bytes": 0, "max_records": 0}
        self.acknowledge("a renewal", 2, "i", renews, **two)
        self.fetch("a renewal with records", 3, "i", renews, **two)
        self.fetch("a renewal", 3, "i", renews, **two, **nothing)
        self.acknowledge("closed", -1, "i", topic="two")
        limit: Any = {"topic": "two", "share_acquire_mode": 1}
        self.waits("three records", 0, "j", max_records=3, **limit)
        self.waits("five more", 1, "j", max_records=5, **limit)
        self.acknowledge("of those", 2, "j", (40, 42, ACCEPT), topic="two")
        self.waits("many more", 3, "j", max_records=25, **limit)

    def end(self) -> None:
        for member in "adefhij":
            self.acknowledge(f"the end of {member}", -1, member)

    def sessions(self) -> None:
        for n in range(9):
            self.fetch(f"session {n}", 0, f"s{n}", max_wait_ms=10, topic="two")


def set_up() -> list[Case]:
    new = script_admin.new_topic
    made = [new(n, -1, -1, assigned={p: [1] for p in range(c)}) for n, c in TOPICS.items()]

    def led(answer: Any) -> bool:
        places = [p for t in answer["topics"] for p in t["partitions"]]
        return len(places) == sum(TOPICS.values()) and all(p["leader_id"] > 0 for p in places)

    def coordinated(answer: Any) -> bool:
        return all(c["error_code"] == 0 for c in answer["coordinators"])

    def coordinator(_: int, facts: Facts) -> Body:
        topic_id = UUID(facts["one"])
        return {"key_type": 2, "coordinator_keys": [f"g1:{to_text(topic_id.bytes)}:0"]}

    def initialize(group: str) -> Any:
        def body(_: int, facts: Facts) -> Body:
            return {"group_id": group, "topics": [
                {"topic_id": facts[topic], "partitions": [
                    {"partition": p, "state_epoch": 0, "start_offset": 0} for p in range(count)]}
                for topic, count in TOPICS.items()]}  # fmt: skip

        return body

    def stored(answer: Any) -> bool:
        return all(p["error_code"] == 0 for t in answer["results"] for p in t["partitions"])

    records = [
        Case(f"records of {topic}-{p}, {count}", PRODUCE, produce(batch(count), topic, p),
             versions=(9, 9))
        for topic, p, counts in (("one", 0, [10, 10, 10, 5]), ("one", 1, [5]), ("two", 0, [20] * 8))
        for count in counts
    ]  # fmt: skip
    return [
        Case("topics are made", CREATE, script_admin.create(*made), versions=(4, 4)),
        Case("ids", METADATA, metadata(names=tuple(TOPICS)), versions=(12, 12), keep=keep_ids,
             until=led),
        Case("coordinator", FIND_COORDINATOR, coordinator, versions=(6, 6), until=coordinated),
        *(Case(f"state of {g}", INITIALIZE, initialize(g), versions=(0, 0), until=stored)
          for g in ("g1", "g2")),
        *records,
    ]  # fmt: skip


def test_the_answers_are_those_of_apache_kafka(sides: tuple[Side, Side]) -> None:
    cases = set_up()
    for version in (1, 2):
        script = Script(version)
        script.refused()
        script.members()
        script.wrong_acknowledgements()
        script.closing()
        script.locks()
        script.limits()
        if version > 1:
            script.later_versions()
        script.end()
        if version > 1:
            script.sessions()
        cases += script.cases
    asked, found = trio.run(ask_both, *sides, cases)
    known = differences.load(differences.OF_SHARE_FETCHES)
    left = [d for d in found if not any(entry.covers(d) for entry in known)]
    assert not left, "\n".join(map(str, left[:60]))
    stale = [entry for entry in known if not any(entry.covers(d) for d in found)]
    assert not stale, stale
    assert asked > 150
