"""`highwater trace`: every step of one Produce, and connections as they come and go."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from highwater.cluster.ask import ask
from highwater.cluster.ports import free_ports
from highwater.kafka.wire.messages import MetadataRequest, ProduceRequest
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import build_batch
from tests import guarded

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
HIGHWATER = [sys.executable, "-I", guarded.__file__]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*HIGHWATER, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    folder = tmp_path_factory.mktemp("trace") / "cluster"
    free = free_ports(30)
    port = next(p for p in free if {p + 1, p + 2} <= set(free))
    try:
        run("up", "--detach", "--no-proxies", f"--port={port}", f"--dir={folder}")
        yield folder, port
    finally:
        run("down", f"--dir={folder}")


def test_one_produce_from_socket_to_socket(cluster: tuple[Path, int]) -> None:
    done = run("trace", f"--dir={cluster[0]}", "--send-to=traced")
    steps = re.findall(r"^ *(\d+) us  broker (\d)  (\S+) +(.*)$", done.stdout, re.MULTILINE)
    names = [name for _, _, name, _ in steps]
    said = f"following the next Produce request, a record to traced at 127.0.0.1:{cluster[1]},"
    assert done.stderr.startswith(said)
    assert names == ["processor", "handler", "log", "purgatory", "HW", "response", "times"]
    assert len({broker for _, broker, _, _ in steps}) == 1, "the leader's"
    moments = [int(us) for us, _, _, _ in steps]
    assert moments == sorted(moments)
    told = {name: text for _, _, name, text in steps}
    assert "'highwater-trace'" in told["processor"]
    assert re.search(r"offset 0 appended; LEO 1, HW 0, ISR \[", told["log"])
    assert re.search(r"HW 0 -> 1 by broker \d's fetch", told["HW"])
    times = {n: int(us) for n, us in re.findall(r"([a-z ]+?) (\d+)(?:,| \()", told["times"])}
    total = times.pop(" total")
    assert sum(times.values()) == pytest.approx(total, abs=4)


def test_a_produce_that_names_its_topic_by_the_id(cluster: tuple[Path, int]) -> None:
    folder, port = cluster
    run("topic", "create", "by-id", "--partitions=1", f"--dir={folder}")
    topics = [MetadataRequest.MetadataRequestTopic(name="by-id")]
    answer = trio.run(ask, ("127.0.0.1", port), MetadataRequest(topics=topics), 12)
    (topic,) = answer.topics
    leader = next(b for b in answer.brokers if b.node_id == topic.partitions[0].leader_id)
    records = bytes(build_batch([Record(None, b"v", 1_700_000_000_000)]))
    data = ProduceRequest.TopicProduceData(
        topic_id=topic.topic_id,
        partition_data=[
            ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=records)
        ],
    )
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=5000, topic_data=[data])
    command = [*HIGHWATER, "trace", "--wait", f"--dir={folder}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        while watching.poll() is None:  # one of them comes when it has begun to follow
            trio.run(ask, (leader.host, leader.port), request, 13)
        told, _ = watching.communicate(timeout=60)
    assert "Produce v13" in told
    assert re.search(r"by-id-0: offset (\d+) appended; LEO \d+, HW \1, ISR \[", told), told
    assert re.search(r"by-id-0: HW \d+ -> \d+ by broker \d's fetch", told), told


def test_who_opens_and_closes_connections(cluster: tuple[Path, int], tmp_path: Path) -> None:
    folder, port = cluster
    told = tmp_path / "told"
    command = [*HIGHWATER, "trace", "--connections", "--seconds=6", f"--dir={folder}"]
    with told.open("w") as out, subprocess.Popen(command, stdout=out) as watching:
        while watching.poll() is None and not re.search(r"opened .* on EXTERNAL", told.read_text()):
            with socket.create_connection(("127.0.0.1", port), timeout=60):
                pass  # clients come and go until one has been seen from its beginning
        assert watching.wait(60) == 0
    lines = told.read_text().splitlines()
    opened = [m[1] for line in lines if (m := re.search(r"opened +(\S+) on EXTERNAL", line))]
    closed = [m[1] for line in lines if (m := re.search(r"closed +(\S+) .*by the client", line))]
    assert opened
    assert set(opened[:-1]) <= set(closed), "each that came has gone again"
    order = [line for line in lines if opened[0] in line]
    assert ["opened" in line for line in order] == [True, False]


def test_without_a_cluster_in_the_folder_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [*HIGHWATER, "trace", f"--dir={tmp_path}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"no cluster runs in {tmp_path}" in done.stderr
