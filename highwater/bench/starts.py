"""`highwater bench starts`: the time until a cluster serves, and until a test has its first record.

Theory of operation.  Each round starts everything from nothing, on each side in turn.  First it
times `highwater up --detach`, as its user waits for it, with the CPU that the processes have used
by then.  Then it runs pytest on two tests that need different clusters, which report when their
first record was acknowledged with acks=all.  Finally a cluster takes a load, and the memory of all
its processes is added up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from highwater.agent.client import AgentProcess
from highwater.bench.benchmark import option
from highwater.bench.figures.cpu import cpu_seconds
from highwater.bench.figures.memory import pss_mib
from highwater.bench.figures.rows import Line, Samples, Table
from highwater.bench.figures.sides import BenchFailed, Side, Sides
from highwater.bench.load import Load
from highwater.bench.loads.bench_topics import create_topic
from highwater.bench.loads.load_process import output
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
class Options:
    rounds: int = option(20, least=1)
    seconds: float = option(60.0, "Of load, before the memory is read.", least=1)

    def lines(self) -> list[Line]:
        first = "from the start of pytest to a test's first acknowledged record"
        return [
            Line("up", "highwater up --detach, until three brokers serve", "s"),
            Line("agent", "CPU until then: the agent", "s"),
            Line("zookeeper", "CPU until then: ZooKeeper", "s"),
            Line("brokers", "CPU until then: three brokers", "s"),
            Line("first", first, "s"),
            Line("second", "the same for a second cluster of the run", "s"),
            Line("pss", f"PSS of all processes after {self.seconds:g} s of load", "MiB"),
        ]


async def run(options: Options, sides: Sides) -> Table:
    samples = Samples()
    for number in range(options.rounds):
        for index, side in enumerate(sides.sides):
            found = await trio.to_thread.run_sync(_once, side, side.folder / str(number))
            for line, seconds in found.items():
                samples.add(line, index, seconds)
            said = ", ".join(f"{line} {seconds:.2f} s" for line, seconds in found.items())
            sides.progress(f"round {number + 1} of {options.rounds}, {side.name}: {said}")
    for index, side in enumerate(sides.sides):
        samples.add("pss", index, await _memory(side, options.seconds))
    return sides.table(options.lines(), samples)


def _once(side: Side, folder: Path) -> dict[str, float]:
    folder.mkdir(parents=True)
    cluster = [f"--dir={folder / 'cluster'}"]
    highwater = [sys.executable, "-I", "-m", "highwater.cli.main"]
    port = f"--port={free_ports(3)[0]}"
    began = time.monotonic()
    _done([*highwater, "up", "--detach", port, f"--zookeeper={side.zookeeper}", *cluster], folder)
    found = {"up": time.monotonic() - began}
    state = json.loads((folder / "cluster" / "state.json").read_text())
    pids = {name: process["pid"] for name, process in state["processes"].items()}
    found["agent"] = cpu_seconds([state["supervisor"]["pid"]])
    found["zookeeper"] = cpu_seconds([pids.pop("zookeeper")])
    found["brokers"] = cpu_seconds(list(pids.values()))
    _done([*highwater, "down", "--delete", *cluster], folder)
    (folder / "test_start.py").write_text(_TESTS)
    told = folder / "told"
    words = ["-q", "-p", "no:cacheprovider", f"--kafka-zookeeper={side.zookeeper}"]
    command = [sys.executable, "-m", "pytest", *words, f"--basetemp={folder / 'tmp'}", "."]
    (folder / "pytest.ini").write_text("[pytest]\n")
    _done(command, folder, BENCH_TOLD=str(told), BENCH_BEGAN=str(time.time()))
    found["first"], found["second"] = map(json.loads, told.read_text().splitlines())
    return found


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
        await create_topic(agent.bootstrap, "orders", 3, 3, {})
        load = Load(agent.bootstrap, "orders", 1000, 16384, "all", 0.3, seconds, 40 * seconds)
        await output(load.command())
        return pss_mib(agent.pid)
    finally:
        await trio.to_thread.run_sync(agent.close)
