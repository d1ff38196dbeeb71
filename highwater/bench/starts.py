"""`highwater bench starts`: the time until a cluster serves, and until a test has its first record.

Theory of operation.  Each round starts everything from nothing, on each side in turn: `highwater
up --detach`, timed as its user waits for it, with the CPU that its processes have used by then; and
a pytest run of two tests that ask for different clusters, which tell when their first record was
acknowledged with acks=all.  At last a cluster takes a load, and the memory of all its processes is
added up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import trio

from highwater.agent.client import AgentProcess
from highwater.bench.figures.memory import pss_mib
from highwater.bench.figures.rows import Row
from highwater.bench.figures.sides import BenchFailed, Progress, Side
from highwater.bench.load import Load
from highwater.bench.loads.bench_topics import create_topic
from highwater.bench.loads.load_process import ended
from highwater.cluster.ports import free_ports

WITHIN_S = 120
_TESTS = """\
import json
import os
import time

import pytest
from confluent_kafka import Producer


def first_record(kafka, orders, began):
    failed = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all"})
    producer.produce(orders, b"1", on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(60) == 0
    assert not failed
    with open(os.environ["BENCH_TOLD"], "a") as told:
        told.write(json.dumps(time.time() - began) + "\\n")


def test_first(kafka, topic):
    first_record(kafka, topic("orders"), float(os.environ["BENCH_BEGAN"]))
    global ended
    ended = time.time()


@pytest.mark.kafka(config={"num.partitions": 4})
def test_second(kafka, topic):
    first_record(kafka, topic("orders"), ended)
"""


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 20
    load_s: float = 60.0


@dataclass(slots=True)
class Found:
    up_s: list[float] = field(default_factory=list)
    agent_cpu_s: list[float] = field(default_factory=list)
    zookeeper_cpu_s: list[float] = field(default_factory=list)
    brokers_cpu_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    second_s: list[float] = field(default_factory=list)
    pss_mib: list[float] = field(default_factory=list)


async def run(plan: Plan, sides: Sequence[Side], progress: Progress) -> list[Row]:
    found = [Found() for _ in sides]
    for number in range(plan.rounds):
        for side, results in zip(sides, found, strict=True):
            await trio.to_thread.run_sync(_once, side, side.folder / str(number), results)
            progress(
                f"round {number + 1} of {plan.rounds}, {side.name}: up {results.up_s[-1]:.2f} s,"
                f" a test's first record {results.first_s[-1]:.2f} s, the second cluster's"
                f" {results.second_s[-1]:.2f} s"
            )
    for side, results in zip(sides, found, strict=True):
        results.pss_mib.append(await _memory(side, plan.load_s))
        progress(f"{side.name}: {results.pss_mib[-1]:.0f} MiB")
    rows = (
        ("highwater up --detach, until three brokers serve", "s", "up_s"),
        ("CPU until then: the agent", "s", "agent_cpu_s"),
        ("CPU until then: ZooKeeper", "s", "zookeeper_cpu_s"),
        ("CPU until then: three brokers", "s", "brokers_cpu_s"),
        ("from the start of pytest to a test's first acknowledged record", "s", "first_s"),
        ("the same for a second cluster of the run", "s", "second_s"),
        (f"PSS of all processes after {plan.load_s:g} s of load", "MiB", "pss_mib"),
    )
    ours, *rest = found
    return [
        Row(
            what,
            unit,
            tuple(getattr(ours, name)),
            tuple(getattr(rest[0], name)) if rest else (),
            smaller_is_better=True,
        )
        for what, unit, name in rows
    ]


def _once(side: Side, folder: Path, found: Found) -> None:
    folder.mkdir(parents=True)
    cluster = [f"--dir={folder / 'cluster'}"]
    highwater = [sys.executable, "-I", "-m", "highwater.cli.main"]
    port = f"--port={free_ports(3)[0]}"
    began = time.monotonic()
    _done([*highwater, "up", "--detach", port, f"--zookeeper={side.zookeeper}", *cluster], folder)
    found.up_s.append(time.monotonic() - began)
    state = json.loads((folder / "cluster" / "state.json").read_text())
    found.agent_cpu_s.append(_cpu_s(state["supervisor"]))
    processes = state["processes"]
    found.zookeeper_cpu_s.append(_cpu_s(processes.pop("zookeeper")))
    found.brokers_cpu_s.append(sum(map(_cpu_s, processes.values())))
    _done([*highwater, "down", "--delete", *cluster], folder)
    (folder / "test_start.py").write_text(_TESTS)
    told = folder / "told"
    options = ["-q", "-p", "no:cacheprovider", f"--kafka-zookeeper={side.zookeeper}"]
    command = [sys.executable, "-m", "pytest", *options, f"--basetemp={folder / 'tmp'}", "."]
    (folder / "pytest.ini").write_text("[pytest]\n")
    _done(command, folder, BENCH_TOLD=str(told), BENCH_BEGAN=str(time.time()))
    first, second = map(json.loads, told.read_text().splitlines())
    found.first_s.append(first)
    found.second_s.append(second)


def _cpu_s(raw: dict[str, Any]) -> float:
    times = psutil.Process(raw["pid"]).cpu_times()
    return times.user + times.system


def _done(command: Sequence[str], folder: Path, **variables: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    if done.returncode:
        raise BenchFailed(f"{' '.join(command)}: {(done.stdout + done.stderr)[-600:]}")


async def _memory(side: Side, seconds: float) -> float:
    settings = {"folder": str(side.folder / "memory"), "zookeeper": side.zookeeper}
    agent = await trio.to_thread.run_sync(AgentProcess.start, settings)
    try:
        await trio.to_thread.run_sync(
            create_topic, agent.bootstrap, "orders", 3, 3, dict[str, str]()
        )
        load = Load(agent.bootstrap, "orders", 1000, 16384, "all", 0.3, seconds, 40 * seconds)
        done = await ended(load.command())
        if done.returncode:
            raise BenchFailed(f"the load failed: {done.stderr.decode()[-300:]}")
        return pss_mib(agent.pid)
    finally:
        await trio.to_thread.run_sync(agent.close)
