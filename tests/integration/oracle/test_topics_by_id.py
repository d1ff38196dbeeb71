"""Requests that came after Apache Kafka 3.9, to Highwater and to Apache Kafka 4.2: equal answers.

They name topics by their ids, change features, and end transactions with a new epoch.

One broker each, as nothing here depends on more.  Apache Kafka runs in KRaft mode, where topics
have ids.  Deliberate differences are in differences_by_id.toml.
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
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import build_batch
from tests.background import BackgroundCluster
from tests.integration.oracle import differences, script_admin, script_epoch_bumps, script_features
from tests.integration.oracle.asking import Case, Difference, Offered, Side, compare
from tests.integration.oracle.bodies import plain

pytestmark = [
    pytest.mark.integration, pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(240),
]  # fmt: skip
RELEASE = "4.2.0"
PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH = 0, 1, 2, 3, 8, 9
API_VERSIONS, CREATE, DELETE, FIND_COORDINATOR, DESCRIBE = 18, 19, 20, 10, 75
BY_ID = (13, 99)
NEVER, ZERO = UUID(int=9), UUID(int=0)
GROUP = "by-id"
TOPICS = ("known", "other", "again")
Facts = dict[str, Any]


class NamedSide(Side):
    """A side whose answers have names in place of ids, so that they can be compared."""

    async def ask(
        self, number: int, api_key: int, version: int, message: Any, *more: Any, **other: Any
    ) -> Any:
        answer = await super().ask(number, api_key, version, message, *more, **other)
        if api_key == METADATA and message.topics[0].name:
            return answer  # from which ids are kept
        return self._named(answer)

    def _named(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._named(item) for item in value]
        if not isinstance(value, dict):
            return value
        found = {key: self._named(item) for key, item in value.items()}
        if (topic_id := value.get("topic_id")) is not None and not value.get("name"):
            names = {known: name for name, known in self.facts.items() if name in TOPICS}
            found["topic"] = names.get(topic_id, "of nothing" if topic_id == NEVER else "another")
        return found


@pytest.fixture(scope="module")
def sides(
    tmp_path_factory: pytest.TempPathFactory, apache_tool: Callable[..., Any]
) -> Iterator[tuple[Side, Side]]:
    kraft = ApacheKafka(apache.home(RELEASE), jvm=QUICK, version=RELEASE, kraft=True)
    properties = {
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    with ExitStack() as stack:
        made = []
        for name, program in (("highwater", Highwater()), ("apache", kraft)):
            folder = tmp_path_factory.mktemp(name) / "cluster"
            settings = Settings(
                folder, brokers=1, program=program, quick_end=True, properties=properties,
                zookeeper="embedded" if name == "highwater" else "",
            )  # fmt: skip
            cluster = stack.enter_context(BackgroundCluster.of(settings))
            made.append(NamedSide(name, {1: cluster.cluster.address(1)}, 1))
        yield made[0], made[1]


# --- requests


def metadata(*ids: Any, names: tuple[str, ...] = ()) -> dict[str, Any]:
    topics = [{"name": None, "topic_id": i} for i in ids] + [{"name": n} for n in names]
    return {"topics": topics, "allow_auto_topic_creation": False}


def fetch(topic_id: Any, offset: int = 0, partition: int = 0, **more: Any) -> dict[str, Any]:
    place = {
        "partition": partition, "current_leader_epoch": more.pop("leader_epoch", -1),
        "fetch_offset": offset, "last_fetched_epoch": -1, "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }  # fmt: skip
    return {
        "max_wait_ms": 50, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0,
        "session_id": 0, "session_epoch": -1,
        "topics": [{"topic_id": topic_id, "partitions": [place]}],
        "forgotten_topics_data": [], "rack_id": "", **more,
    }  # fmt: skip


def produce(*ids: Any) -> dict[str, Any]:
    records = bytes(build_batch([Record(b"k", b"v", 1_700_000_000_000)]))
    data = [{"topic_id": i, "partition_data": [{"index": 0, "records": records}]} for i in ids]
    return {"transactional_id": None, "acks": -1, "timeout_ms": 5000, "topic_data": data}


def commit(*ids: Any) -> dict[str, Any]:
    place = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
    return {"group_id": GROUP, "topics": [{"topic_id": i, "partitions": [place]} for i in ids]}


def fetch_offsets(*ids: Any, everything: bool = False) -> dict[str, Any]:
    topics = [{"topic_id": i, "partition_indexes": [0, 1]} for i in ids]
    return {"groups": [{"group_id": GROUP, "topics": None if everything else topics}]}


def list_offsets(timestamp: int) -> dict[str, Any]:
    place = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    topics = [{"name": "known", "partitions": [place]}]
    return {"replica_id": -1, "isolation_level": 0, "topics": topics}


def describe(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    begin = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    topics = [{"name": name} for name in names]
    return {"topics": topics, "response_partition_limit": limit, "cursor": begin}


def delete(**topic: Any) -> dict[str, Any]:
    return {"topics": [{"name": None, **topic}], "timeout_ms": 5000}


def of(make: Callable[..., Any], *names: str, **more: Any) -> Callable[[int, Facts], Any]:
    """A request that names these topics by the ids that they have on its side."""
    return lambda _, facts: make(*(facts.get(name, NEVER) for name in names), **more)


def keep_ids(_: int, answer: Any, facts: Facts) -> None:
    facts.update({t["name"]: t["topic_id"] for t in answer["topics"] if t["name"]})


def keep_session(_: int, answer: Any, facts: Facts) -> None:
    facts["session"] = answer.get("session_id", 0)


def within(epoch: int, *names: str, **more: Any) -> Callable[[int, Facts], Any]:
    def body(version: int, facts: Facts) -> Any:
        made = fetch(NEVER, session_id=facts["session"], session_epoch=epoch, **more)
        made["topics"] = [t for n in names for t in fetch(facts.get(n, NEVER))["topics"]]
        return made

    return body


# --- the script


def cases() -> list[Case]:
    new = script_admin.new_topic
    topics = [new(n, -1, -1, assigned={p: [1] for p in range(3)}) for n in ("known", "other")]
    again = new("again", -1, -1, assigned={0: [1]})
    names = metadata(names=("known", "other", "again"))

    def led(answer: Any) -> bool:
        places = [p for t in answer["topics"] for p in t["partitions"]]
        return len(places) == 7 and all(p["leader_id"] > 0 for p in places)

    def coordinated(answer: Any) -> bool:
        return all(c["error_code"] == 0 for c in answer["coordinators"])

    def gone(answer: Any) -> bool:
        return all(t["error_code"] == 3 for t in answer["topics"])

    def led_again(answer: Any) -> bool:
        return all(
            t["partitions"] and t["partitions"][0]["leader_id"] > 0 for t in answer["topics"]
        )

    def committed(answer: Any) -> bool:
        return all(p["error_code"] == 0 for t in answer["topics"] for p in t["partitions"])

    one = metadata(names=("again",))
    return [
        Case("a topic that is only validated", CREATE,
             {**script_admin.create(topics[0]), "validate_only": True}, versions=(7, 7)),
        Case("topics are made", CREATE, script_admin.create(*topics, again), versions=(7, 7)),
        Case("ids", METADATA, names, versions=(12, 12), keep=keep_ids, until=led),
        Case("by names", METADATA, names, versions=(10, 13)),
        Case("by ids", METADATA, of(metadata, "known", "other"), versions=(12, 13)),
        Case("an id of nothing", METADATA, metadata(NEVER), versions=(12, 13)),
        Case("one of two", METADATA, of(metadata, "known", "-"), versions=(12, 13)),
        Case("an id twice", METADATA, of(metadata, "known", "known"), versions=(12, 13)),
        # records
        Case("by id", PRODUCE, of(produce, "known"), versions=BY_ID),
        Case("an id of nothing", PRODUCE, produce(NEVER), versions=BY_ID),
        Case("one of two", PRODUCE, of(produce, "other", "-"), versions=BY_ID),
        Case("no id", PRODUCE, produce(ZERO), versions=BY_ID),
        Case("from the start", FETCH, of(fetch, "known"), versions=BY_ID),
        Case("from the end", FETCH, of(fetch, "known", offset=1), versions=BY_ID),
        Case("beyond the end", FETCH, of(fetch, "known", offset=99), versions=BY_ID),
        Case("an id of nothing", FETCH, fetch(NEVER), versions=BY_ID),
        Case("no id", FETCH, fetch(ZERO), versions=BY_ID),
        Case("no such partition", FETCH, of(fetch, "known", partition=9), versions=BY_ID),
        Case("a new leader epoch", FETCH, of(fetch, "known", leader_epoch=9), versions=BY_ID),
        Case("an isolation level that is none", FETCH, of(fetch, "known", isolation_level=7),
             versions=BY_ID),
        # sessions
        Case("a session begins", FETCH, of(fetch, "known", session_epoch=0), versions=(16, 16),
             keep=keep_session),
        Case("nothing changed", FETCH, within(1), versions=(16, 16)),
        Case("by names in a session of ids", FETCH, within(2), versions=(12, 12)),
        Case("an id of nothing comes in", FETCH, within(2, "-"), versions=(16, 16)),
        Case("it is named once more", FETCH, within(3), versions=(16, 16)),
        Case("and goes", FETCH, within(4, forgotten_topics_data=[
            {"topic_id": NEVER, "partitions": [0]}]), versions=(16, 16)),
        Case("a wrong epoch", FETCH, within(77), versions=(16, 16)),
        Case("it ends", FETCH, within(-1), versions=(16, 16)),
        # a topic that is made anew
        Case("its session begins", FETCH, of(fetch, "again", session_epoch=0), versions=(17, 17),
             keep=keep_session),
        Case("by its id", DELETE, lambda _, f: delete(topic_id=f["again"]), versions=(6, 6)),
        Case("it is gone", METADATA, one, versions=(12, 12), until=gone),
        Case("the id of a topic that is gone", METADATA, of(metadata, "again"), versions=(12, 13)),
        Case("the id of a topic that is gone", FETCH, of(fetch, "again"), versions=BY_ID),
        Case("the topic of the session is gone", FETCH, within(1), versions=(17, 17)),
        Case("an id of nothing", DELETE, delete(topic_id=NEVER), versions=(6, 6)),
        Case("name and id", DELETE, delete(topic_id=NEVER, name="known"), versions=(6, 6)),
        Case("neither", DELETE, delete(), versions=(6, 6)),
        Case("it is made anew", CREATE, script_admin.create(again), versions=(7, 7)),
        Case("it is led", METADATA, one, versions=(12, 12), until=led_again),
        Case("by the id of before", FETCH, of(fetch, "again"), versions=BY_ID),
        Case("by the id of before", PRODUCE, of(produce, "again"), versions=BY_ID),
        Case("the topic of the session is another", FETCH, within(2), versions=(17, 17)),
        Case("ids anew", METADATA, one, versions=(12, 12), keep=keep_ids),
        Case("by the new id", PRODUCE, of(produce, "again"), versions=BY_ID),
        Case("by the new id", FETCH, of(fetch, "again"), versions=BY_ID),
        # offsets
        Case("coordinator", FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [GROUP]},
             versions=(4, 4), until=coordinated),
        Case("by ids", OFFSET_COMMIT, of(commit, "known", "other"), versions=(10, 10),
             until=committed),
        Case("an id of nothing", OFFSET_COMMIT, of(commit, "known", "-"), versions=(10, 10)),
        Case("no id", OFFSET_COMMIT, commit(ZERO), versions=(10, 10)),
        Case("by ids", OFFSET_FETCH, of(fetch_offsets, "known", "other"), versions=(10, 10)),
        Case("an id of nothing", OFFSET_FETCH, of(fetch_offsets, "known", "-"), versions=(10, 10)),
        Case("no id", OFFSET_FETCH, fetch_offsets(ZERO), versions=(10, 10)),
        Case("all", OFFSET_FETCH, fetch_offsets(everything=True), versions=(10, 10)),
        *(Case(f"timestamp {time}", LIST_OFFSETS, list_offsets(time), versions=(7, 11))
          for time in range(-8, 0)),
        # descriptions
        Case("all", DESCRIBE, describe("known", "other")),
        Case("a part", DESCRIBE, describe("other", "known", limit=4)),
        Case("where it ends with a topic", DESCRIBE, describe("other", "known", limit=3)),
        Case("none of them", DESCRIBE, describe("other", "known", limit=0)),
        Case("goes on", DESCRIBE, describe("other", "known", cursor=("other", 1))),
        Case("goes on with the next", DESCRIBE, describe("other", "known", cursor=("l", 1))),
        Case("goes on behind the last partition", DESCRIBE, describe("known", cursor=("known", 9))),
        Case("a cursor below 0", DESCRIBE, describe("known", cursor=("known", -1))),
        Case("of nothing", DESCRIBE, describe("known", "nobody", "?")),
        Case("twice", DESCRIBE, describe("known", "known")),
    ]  # fmt: skip


async def run(ours: Side, theirs: Side) -> tuple[int, list[Difference]]:
    try:
        asked = differences.api_versions()
        told = [await side.ask(1, API_VERSIONS, 0, asked) for side in (ours, theirs)]
        both = [*script_features.cases(), *cases(), *script_epoch_bumps.cases()]
        return await compare(ours, theirs, Offered(*map(plain, told)), both)
    finally:
        ours.close()
        theirs.close()


def test_the_answers_are_those_of_a_cluster_with_ids(sides: tuple[Side, Side]) -> None:
    asked, found = trio.run(run, *sides)
    assert asked > 100

    known = differences.load(differences.BY_ID)
    left = [d for d in found if not any(entry.covers(d) for entry in known)]
    assert not left, "\n".join(map(str, left[:60]))
    stale = [entry for entry in known if not any(entry.covers(d) for d in found)]
    assert not stale, stale
