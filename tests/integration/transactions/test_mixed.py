"""Transactions in a cluster of both kinds: the coordinator moves between them, and so do leaders.

Each kind loads the other's files (__transaction_state, .txnindex), and goes on from them; markers
and verifications go from each to the other.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from highwater.cluster.processes import apache
from highwater.cluster.processes.process_settings import Settings
from tests.background import BackgroundCluster
from tests.integration.transactions.test_transactions import (
    PARTITIONS,
    WITHIN_S,
    confluent,
    eventually,
    read,
    transact,
)

pytestmark = [
    pytest.mark.integration, pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(300),
]  # fmt: skip
Run = Callable[..., "subprocess.CompletedProcess[str]"]
STATE = "__transaction_state"
APACHE = 1
TURNS = 3
"""Each kind coordinates after the other."""


@pytest.fixture
def mixed(tmp_path: Path, apache_tool: Run) -> Iterator[BackgroundCluster]:
    settings = Settings(
        tmp_path / "cluster",
        proxies=True,
        quick_end=True,
        zookeeper="embedded",
        programs={APACHE: apache.program()},
        properties={
            "group.initial.rebalance.delay.ms": "0",
            "transaction.state.log.num.partitions": "1",
            "offsets.topic.num.partitions": "1",
        },
    )
    with BackgroundCluster.of(settings) as cluster:
        yield cluster


def dumped(cluster: BackgroundCluster, apache_tool: Run, folder: str, *more: str) -> str:
    """The output of Apache's tool for a file of broker 2."""
    files = sorted((cluster.folder / "broker-2").glob(f"**/{folder}"))
    assert files, folder
    done = apache_tool("kafka.tools.DumpLogSegments", ["--files", ",".join(map(str, files)), *more])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_coordinators_and_leaders_of_both_kinds(mixed: BackgroundCluster, apache_tool: Run) -> None:
    admin = AdminClient({"bootstrap.servers": mixed.bootstrap_servers})
    config = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    state = NewTopic(STATE, 1, replica_assignment=[[APACHE, 2, 3]], config=config)
    for made in admin.create_topics([state]).values():
        made.result(WITHIN_S)
    mixed.create_topic("mixed", partitions=PARTITIONS)
    producer = confluent(mixed, "mixed")
    producer.init_transactions(WITHIN_S)
    committed: list[str] = []
    coordinators: dict[bool, None] = {}
    for turn in range(TURNS):
        for n in range(4):
            name = f"{turn}.{n}"
            if transact(producer, "mixed", name, commit=n != 2):
                committed.append(name)
        coordinator = mixed.leader_of(STATE, 0)
        coordinators[coordinator == APACHE] = None
        producer.begin_transaction()
        producer.produce("mixed", f"{turn}.over".encode(), partition=0)
        assert producer.flush(WITHIN_S) == 0
        mixed.kill(coordinator)  # the first of the others leads: Apache's broker every other time
        producer.commit_transaction(WITHIN_S)
        mixed.mend()
        for topic in (STATE, "mixed"):
            eventually(
                lambda t=topic: len(mixed.isr_of(t, 0)) == 3,  # type: ignore[misc]
                f"{topic} in sync",
            )
    assert coordinators.keys() == {True, False}, "both kinds coordinated"
    found = read(mixed, "mixed", len(committed) * PARTITIONS + TURNS)
    for partition in range(PARTITIONS):
        assert [v for p, v in found if p == partition and "over" not in v] == committed
    assert [v for _, v in found if "over" in v] == [f"{turn}.over" for turn in range(TURNS)]
    mixed.stop(2)
    states = dumped(mixed, apache_tool, f"{STATE}-0/*.log", "--transaction-log-decoder")
    assert re.search(r"transactionalId=mixed", states)
    assert re.search(r"state=PrepareCommit.*state=CompleteCommit", states, re.DOTALL)
    aborted = dumped(mixed, apache_tool, "mixed-0/*.txnindex")
    assert len(re.findall(r"producerId: \d+", aborted)) == TURNS, aborted
