"""One script of requests to a Highwater cluster and to one of Apache Kafka: equal answers.

Two brokers each.  Deliberate differences are in differences.toml, each with its reason.  Any other
difference fails, and so does an entry that is not needed.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from highwater.broker.membership.agreement import FOLLOWED
from highwater.broker.membership.marker_fence import PURPOSE as MARKERS
from highwater.kafka.client.connection import ClientConnection, ConnectionLost
from highwater.kafka.config.property_row import State, Update, text_of
from highwater.kafka.config.property_table import ALIASES, BROKER, KEPT, TOPIC
from highwater.kafka.config.security_rows import SECURITY
from highwater.kafka.config.sources import profile_properties
from highwater.kafka.config.unserved import inert, refused, unserved
from highwater.kafka.config.zookeeper_rows import ZOOKEEPER_ROWS
from highwater.kafka.wire.codec import decode_response, encode_request
from highwater.kafka.wire.header import request_header
from tests.integration.oracle import (
    differences,
    script_admin,
    script_groups,
    script_records,
    script_times,
    script_transactions,
)
from tests.integration.oracle.asking import Case, Difference, Offered, Side, compare
from tests.integration.oracle.bodies import plain, request
from tests.integration.oracle.made_batches import DECLARED
from tests.integration.oracle.rig import APACHE, HIGHWATER, Mixed
from tests.unit.broker.handlers import test_produce_validation

pytestmark = [
    pytest.mark.integration, pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(240),
]  # fmt: skip
API_VERSIONS = 18
LIMITS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
DESCRIBE_CONFIGS = 32
WRITE_TXN_MARKERS = 27
ALTER_QUOTAS = 49
OF_TODAY = ("group.share.", "share.")
"""Properties that Apache Kafka does not have with ZooKeeper."""


@pytest.fixture(scope="module")
def sides(
    tmp_path_factory: pytest.TempPathFactory, apache_tool: Callable[..., Any]
) -> Iterator[tuple[Side, Side]]:
    properties = {
        # by the file, because one of them has a profile
        **{k: v for k, v in profile_properties("test", 2).items() if not k.startswith(OF_TODAY)},
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.min.session.timeout.ms": "6000",
        "auto.create.topics.enable": "false",
        "num.partitions": "3",
        "min.insync.replicas": "1",
        "log.retention.hours": "-1",
    }
    with ExitStack() as stack:
        made = []
        for name in (HIGHWATER, APACHE):
            folder = tmp_path_factory.mktemp(name) / "cluster"
            cluster = Mixed(folder, {1: name, 2: name}, properties)
            stack.enter_context(cluster.background)
            made.append(cluster)
        yield Side.of(HIGHWATER, made[0]), Side.of(APACHE, made[1])


def set_up() -> list[Case]:
    """Topics in known places; `moved` had another leader before."""
    new = script_admin.new_topic
    topics = [
        new("two", -1, -1, assigned={0: [1, 2], 1: [2, 1]}),
        new("one", -1, -1, assigned={0: [1]}),
        new("empty", -1, -1, assigned={0: [1, 2]}),
        new("altered", -1, -1, assigned={0: [1]}),
        new("old", -1, -1, assigned={0: [1]}),
        new("small", -1, -1, assigned={0: [1]}, configs={"max.message.bytes": "500"}),
        new("compacted", -1, -1, assigned={0: [1]}, configs={"cleanup.policy": "compact"}),
        new(
            "stamped", -1, -1, assigned={0: [1]},
            configs={"message.timestamp.type": "LogAppendTime"},
        ),
        new("moved", -1, -1, assigned={0: [1, 2]}),
        new("zipped", -1, -1, assigned={0: [1]}, configs={"compression.type": "gzip"}),
        new("recent", -1, -1, assigned={0: [1]}, configs={LIMITS[0]: "86400000"}),
        new("not-ahead", -1, -1, assigned={0: [1]}, configs={LIMITS[1]: "0"}),
        # so that broker 1 coordinates all groups
        new(
            "__consumer_offsets", -1, -1, assigned={0: [1]},
            configs={"cleanup.policy": "compact", "compression.type": "producer"},
        ),
    ]  # fmt: skip
    names = [{"name": t["name"]} for t in topics]

    def led(answer: Any) -> bool:
        places = [p for t in answer["topics"] for p in t["partitions"]]
        return len(places) == 14 and all(
            p["leader_id"] > 0 and len(p["isr_nodes"]) == len(p["replica_nodes"]) for p in places
        )

    def moved(answer: Any) -> bool:
        return answer["topics"][0]["partitions"][0]["leader_id"] == 2

    other_order = {
        "timeout_ms": 9000,
        "topics": [{"name": "moved", "partitions": [{"partition_index": 0, "replicas": [2, 1]}]}],
    }
    elect = {"election_type": 0, "topic_partitions": None, "timeout_ms": 5000}
    seen = [
        Case("moved", 3, {"topics": [{"name": "moved"}]}, to, (5, 5), until=moved) for to in "12"
    ]
    return [
        Case("set up", 19, script_admin.create(*topics), "controller", (4, 4)),
        *(Case("whole", 3, {"topics": names}, to, (5, 5), until=led) for to in "12"),
        Case("reorder", 45, other_order, "controller", (0, 0)),
        Case("elect", 43, elect, "controller", (1, 1), until=lambda a: a["error_code"] == 0),
        *seen,
    ]


async def run(ours: Side, theirs: Side) -> tuple[int, list[Difference]]:
    try:
        told = [
            await side.ask(1, API_VERSIONS, 0, differences.api_versions())
            for side in (ours, theirs)
        ]
        offered = Offered(*told)
        cases = [
            *set_up(), *script_groups.finds(), *script_records.cases(), *script_groups.cases(),
            *script_transactions.cases(), *script_times.cases(), *script_admin.cases(),
        ]  # fmt: skip
        asked, found = await compare(ours, theirs, offered, cases)
        return asked, [*differences.of_versions(offered), *found]
    finally:
        ours.close()
        theirs.close()


def test_the_answers_are_the_same(sides: tuple[Side, Side]) -> None:
    asked, found = trio.run(run, *sides)
    assert asked > 1500
    known = differences.load()
    left = [d for d in found if not any(entry.covers(d) for entry in known)]
    assert not left, "\n".join(map(str, left[:60]))
    scripted = [entry for entry in known if not entry.shown_by]
    stale = [entry for entry in scripted if not any(entry.covers(d) for d in found)]
    assert not stale, stale
    elsewhere = {entry.shown_by for entry in known if entry.shown_by}
    assert elsewhere <= globals().keys() | DECLARED.keys() | vars(test_produce_validation).keys()
    assert DECLARED.keys() <= elsewhere


async def own_properties(side: Side) -> dict[str, str | None]:
    """The properties of broker 1, with the values that it shows."""
    asked = script_admin.describe(script_admin.BROKER, "1")
    answer = await side.ask(1, DESCRIBE_CONFIGS, 1, request(DESCRIBE_CONFIGS, 1, asked))
    return {entry["name"]: entry["value"] for entry in answer["results"][0]["configs"]}


Told = dict[str, Any]


async def described(side: Side, kind: int, name: str) -> dict[str, Told]:
    """A resource's properties with their synonyms, by name."""
    asked = script_admin.describe(kind, name, include_synonyms=True)
    answer = await side.ask(1, DESCRIBE_CONFIGS, 4, request(DESCRIBE_CONFIGS, 4, asked))
    return {entry["name"]: entry for entry in answer["results"][0]["configs"]}


def default_told(entry: Told) -> str:
    """The default (5) among an entry's synonyms; "" if there is none."""
    of_itself = (s for s in entry["synonyms"] if s["source"] == 5 and s["name"] == entry["name"])
    return next((s["value"] or "" for s in of_itself), "")


def test_the_table_of_configuration_is_what_apache_kafka_describes(
    sides: tuple[Side, Side],
) -> None:
    theirs = trio.run(described, sides[1], script_admin.BROKER, "1")
    ours = trio.run(described, sides[0], script_admin.BROKER, "1")
    assert len(theirs) > 290
    assert set(theirs) <= set(BROKER)
    missing = [BROKER[name] for name in set(theirs) - set(ours)]
    secret = (*SECURITY, *ZOOKEEPER_ROWS)  # some are passwords; none of them is described
    hidden = {row.name for row in secret}
    assert {row.name for row in missing if row.state is State.BUILT} <= set(ALIASES) | hidden
    assert not [name for name in set(ours) - set(theirs) if BROKER[name].state is not State.BUILT]
    for name, entry in theirs.items():
        if name.startswith("group.share."):
            continue  # they are 4.2's
        row, wrong = BROKER[name], set()
        if entry["config_type"] != row.kind:
            wrong.add("type")
        if default_told(entry) != text_of(row.default):
            wrong.add("default")
        if row.state is State.BUILT and entry["read_only"] != (row.update is Update.READ_ONLY):
            wrong.add("update")
        assert wrong <= set(row.differs), (row, entry)
        if name in KEPT:
            assert ours[name]["config_type"] == entry["config_type"], name


def test_the_table_of_topics_is_what_apache_kafka_describes(sides: tuple[Side, Side]) -> None:
    async def made(side: Side) -> dict[str, Told]:
        return await described(side, script_admin.TOPIC, "two")

    theirs, ours = trio.run(made, sides[1]), trio.run(made, sides[0])
    assert set(theirs) == set(ours) == set(TOPIC)
    for name, entry in theirs.items():
        assert ours[name]["config_type"] == entry["config_type"] == TOPIC[name].kind, name
        synonyms = [s["name"] for s in entry["synonyms"] if s["name"] != name]
        assert set(synonyms) <= set(TOPIC[name].synonyms), entry


def test_kafkas_defaults_of_what_is_not_built_stop_no_broker(sides: tuple[Side, Side]) -> None:
    found = trio.run(own_properties, sides[1])
    asking = {name: value or "" for name, value in found.items() if unserved(name) or inert(name)}
    assert len(asking) > 50
    assert refused(asking) == {}


@pytest.mark.parametrize("version", range(5))
def test_what_is_told_beside_the_versions(sides: tuple[Side, Side], version: int) -> None:
    body = {"client_software_name": "a", "client_software_version": "1"}

    async def told(side: Side) -> dict[str, Any]:
        return await side.ask(1, API_VERSIONS, version, request(API_VERSIONS, version, body))

    ours, theirs = trio.run(told, sides[0]), trio.run(told, sides[1])
    later = "api_keys", "supported_features", "finalized_features", "finalized_features_epoch"
    assert {**ours, **dict.fromkeys(later)} == {**theirs, **dict.fromkeys(later)}


def frame(api_key: int, version: int, body: bytes) -> bytes:
    data = request_header(api_key, version, 7, "frames") + body
    return struct.pack(">i", len(data)) + data


def named(client_id: bytes, api_key: int, version: int, body: bytes) -> bytes:
    data = struct.pack(">hhih", api_key, version, 7, len(client_id)) + client_id + body
    return struct.pack(">i", len(data)) + data


FRAMES = {
    "an API that there is not": frame(999, 0, b""), "a negative API": frame(-1, 0, b""),
    "Produce in a version that there is not": frame(0, 99, b""),
    "Metadata in a negative version": frame(3, -1, b"\0\0\0\0"),
    "ApiVersions in a version that there is not": frame(API_VERSIONS, 99, b""),
    "a client id that is not UTF-8": named(b"\xff\xfe", 3, 4, b"\0\0\0\0\0"),
    "a topic that is not UTF-8": frame(3, 4, b"\0\0\0\1\0\2\xff\xfe\0"),
    "no body": frame(3, 4, b""), "a body cut short": frame(3, 4, b"\0\0\0\5\0\1"),
    "a body that is too long": frame(3, 4, b"\0\0\0\0\1" + b"junk"),
    "a header cut short": struct.pack(">i", 3) + b"\0\3\0", "a size of 0": struct.pack(">i", 0),
    "a size of -5": struct.pack(">i", -5), "a size of 2 GiB": struct.pack(">i", 0x7FFFFFFF),
    "another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 512,
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMES)
def test_what_is_no_request_has_the_same_end(sides: tuple[Side, Side], name: str) -> None:
    ends = []
    for side in sides:
        with socket.create_connection(side.addresses[1], timeout=60) as sock:
            sock.sendall(FRAMES[name])
            sock.settimeout(3)
            try:
                size = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL) or b"\xff" * 4)[0]
                ends.append("closed" if size < 0 else f"answered {sock.recv(6).hex()}")
            except TimeoutError:
                ends.append("silence")
            except ConnectionResetError:
                ends.append("closed")
    assert ends[0] == ends[1]


async def markers_over_both(side: Side) -> list[str]:
    """Markers of one coordinator over its newer connection, then over its older one."""
    marker = {
        "producer_id": 1, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0,
        "topics": [{"name": "missing", "partition_indexes": [0]}],
    }  # fmt: skip
    body = encode_request(request(WRITE_TXN_MARKERS, 1, {"markers": [marker]}), 1)
    host, port = side.addresses[1]
    client = f"broker-2-{MARKERS}"
    ends = []
    older, newer = [await ClientConnection.open(side.network, host, port, client) for _ in range(2)]
    for connection in (newer, older):
        try:
            raw = await connection.call_raw(WRITE_TXN_MARKERS, 1, [body], 60)
            answer = plain(decode_response(WRITE_TXN_MARKERS, 1, raw))
            partition = answer["markers"][0]["topics"][0]["partitions"][0]
            ends.append(f"error {partition['error_code']}")
        except ConnectionLost:
            ends.append("closed")
        connection.close()
    return ends


def test_an_older_connection_of_a_coordinator(sides: tuple[Side, Side]) -> None:
    unknown = "error 3"
    assert trio.run(markers_over_both, sides[0]) == [unknown, "closed"]
    assert trio.run(markers_over_both, sides[1]) == [unknown, unknown]


async def followed(side: Side, broker: int) -> str:
    """What the broker tells other brokers of its kind: the last change that it has applied."""
    asked = script_admin.describe(script_admin.BROKER, str(broker), FOLLOWED)
    answer = await side.ask(broker, DESCRIBE_CONFIGS, 1, request(DESCRIBE_CONFIGS, 1, asked))
    return "".join(entry["value"] for entry in answer["results"][0]["configs"])


def test_a_change_is_answered_when_every_broker_has_it(sides: tuple[Side, Side]) -> None:
    async def changed(side: Side) -> list[str]:
        found = []
        for rate in (1e9, 2e9, 3e9):
            entity = [{"entity_type": "client-id", "entity_name": "told"}]
            ops = [{"key": "producer_byte_rate", "value": rate, "remove": False}]
            body = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
            answer = await side.ask(1, ALTER_QUOTAS, 0, request(ALTER_QUOTAS, 0, body))
            assert answer["entries"][0]["error_code"] == 0
            found.append(await followed(side, 2))
        return found

    assert len(set(trio.run(changed, sides[0]))) == 3
    assert trio.run(changed, sides[1]) == ["", "", ""]


def test_the_page_is_made_of_the_file() -> None:
    page = Path(__file__).parents[3] / "docs" / "differences.md"
    assert page.read_text() == differences.render(), (
        "python -m tests.integration.oracle.differences"
    )
