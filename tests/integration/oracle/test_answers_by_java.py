"""Each error that the verb `answer` puts into an answer is that error to Java's client.

Every API of the list, in each of its versions, with each of Kafka's errors: made instead of the
broker's answer, and put into one.  Kafka's own classes decode the bytes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from highwater.cluster.links.error_answers import error_answer, with_error
from highwater.cluster.processes.zookeeper_process import find_java
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.header import parse_request_header, response_body_position
from tests.integration.process.app_runs import compiled, streams_libs
from tests.unit.highwater.cluster.links.test_error_answers import request, versions

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

APIS = (
    "Produce", "Fetch", "Metadata", "OffsetCommit", "JoinGroup", "FindCoordinator", "EndTxn",
    "ListOffsets", "OffsetFetch", "SyncGroup", "Heartbeat", "LeaveGroup", "InitProducerId",
    "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "CreateTopics", "DeleteTopics",
)  # fmt: skip
UNSUPPORTED = "unsupported"


def made(key: int, version: int, error: ErrorCode) -> list[bytes]:
    """The bodies of the answer instead of the broker's, and of the broker's with the error."""
    frame = request(key, version)
    header = parse_request_header(frame)
    body = memoryview(frame)[header.body_position :]
    fine = error_answer(header, body, ErrorCode.NONE)
    instead = error_answer(header, body, error)
    within = with_error(key, version, fine, error) if fine is not None else None
    return [a[response_body_position(key, version, a) :] for a in (instead, within) if a]


def test_java_finds_the_error(tmp_path: Path) -> None:
    asked: list[tuple[str, ErrorCode, str]] = []
    for param in versions(*APIS):
        key, version = param.values
        for error in ErrorCode:
            if error is ErrorCode.NONE:
                continue
            asked += [
                (str(param.id), error, f"{key} {version} {bytes(answer).hex()}")
                for answer in made(key, version, error)
            ]
    classes = compiled(Path(__file__).with_name("Decode.java"), tmp_path / "classes")
    java = [find_java(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    done = subprocess.run(
        [*java, "-cp", f"{streams_libs()}/*:{classes}", "Decode"],
        input="\n".join(line for *_, line in asked), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    told = done.stdout.splitlines()
    assert len(told) == len(asked)
    read = [(api, e, found) for (api, e, _), found in zip(asked, told, strict=True)
            if found != UNSUPPORTED]  # fmt: skip
    wrong = [(api, e.name, found) for api, e, found in read if found != e.name]
    assert wrong == [], f"{len(wrong)} of {len(read)}"
    assert {api.partition(" ")[0] for api, *_ in read} == set(APIS)
    assert len(read) > 10_000
