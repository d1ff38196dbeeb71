"""What a test may ask of the fixture: what is misspelled is refused."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from highwater.chaos.clusters.api import ClusterError
from highwater.chaos.clusters.background import BackgroundCluster
from highwater.chaos.history import LineLog, read_lines
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


Ask = Callable[[BackgroundCluster], object]
MEMBERS = "no member 'brokr-2': there are zookeeper, broker-1, broker-2, broker-3"


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda c: c.cut("brokr-2", 1), f"{MEMBERS}, clients"),
        (lambda c: c.cut(1, 7), "no member 'broker-7'"),
        (lambda c: c.cut(1, 1), "both are broker-1"),
        (lambda c: c.kill("brokr-2"), MEMBERS),
        (lambda c: c.stop("brokr-2"), MEMBERS),
        (lambda c: c.start("brokr-2"), MEMBERS),
        (lambda c: c.start(7), "no member 'broker-7'"),
        (lambda c: c.start(1), "broker-1 runs already"),
        (lambda c: c.pause("brokr-2"), MEMBERS),
        (lambda c: c.resume("brokr-2"), MEMBERS),
        (lambda c: c.resume(1), "broker-1 is not paused; what is: nothing"),
        (lambda c: c.kill("clients"), "no member 'clients'"),
        (lambda c: c.create_topic("far", replication_factor=4), "INVALID_REPLICATION_FACTOR"),
        (lambda c: c.create_topic("no/name"), "INVALID_TOPIC_EXCEPTION"),
        (lambda c: c.create_topic("none", partitions=0), "INVALID_PARTITIONS"),
    ],
)
def test_what_cannot_be_is_one_line_at_once(
    highwater_cluster: BackgroundCluster, ask: Ask, said: str
) -> None:
    began = time.monotonic()
    with pytest.raises(ClusterError) as error:
        ask(highwater_cluster)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert time.monotonic() - began < 30, "it was asked again, though no retry mends it"


@pytest.mark.parametrize("verb", ["kill", "stop", "pause", "resume"])
def test_who_is_dead_is_not_taken_away_again(
    highwater_cluster: BackgroundCluster, verb: str
) -> None:
    highwater_cluster.kill(2)
    with pytest.raises(ClusterError) as error:
        getattr(highwater_cluster, verb)(2)
    assert str(error.value) == "broker-2 does not run; what runs is zookeeper, broker-1, broker-3"


def test_a_topic_that_exists_otherwise_is_refused(highwater_cluster: BackgroundCluster) -> None:
    highwater_cluster.create_topic("three", partitions=3)
    highwater_cluster.create_topic("three", partitions=3)
    with pytest.raises(ClusterError, match="three exists with 3 partitions"):
        highwater_cluster.create_topic("three", partitions=2)


def test_when_a_process_was_down_or_stood_still_is_written_down(
    highwater_cluster: BackgroundCluster, tmp_path: Path
) -> None:
    """To the moment, and beside the registration: a report draws it."""
    cluster = highwater_cluster
    lives = cluster.cluster.lives
    log = LineLog(tmp_path / "processes.jsonl")
    lives.write_to(log)
    did: list[tuple[str, int, int]] = []

    def do(state: str, verb: Callable[[int], object]) -> None:
        began = time.monotonic_ns()
        verb(2)
        did.append((state, began, time.monotonic_ns()))

    do("paused", cluster.pause)
    do("up", cluster.resume)
    do("down", cluster.kill)
    do("up", cluster.start)
    do("down", cluster.stop)
    do("up", cluster.start)
    pid = cluster.cluster.pid("broker-2")
    do("down", lambda number: _end_by_itself(cluster, pid))
    lives.write_to(None)
    log.close()
    lines = [x for x in read_lines(tmp_path / "processes.jsonl") if x["member"] == "broker-2"]
    assert [line["state"] for line in lines] == ["up", *(state for state, _, _ in did)]
    for line, (_, began, ended) in zip(lines[1:], did, strict=True):
        assert began <= line["t_ns"] <= ended


def _end_by_itself(cluster: BackgroundCluster, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not cluster.cluster.running("broker-2"), "it has ended")
    cluster.cluster.lives.look(cluster.cluster.running)
