"""Chaos runs on other clusters than Highwater's: a release of Apache Kafka without ZooKeeper, and a
cluster that runs already."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from highwater.child_processes import StartError
from highwater.cluster.ask import metadata
from highwater.cluster.interface import ClusterError, broker
from highwater.cluster.leader_moves import addresses
from highwater.cluster.processes import apache
from highwater.cluster.processes.process_cluster import process_cluster
from highwater.cluster.processes.process_settings import Settings
from highwater.cluster.remote.remote_cluster import (
    AddressTarget,
    Commands,
    brokers_at,
    remote_cluster,
)
from highwater.cluster.remote.secured_target import network_of
from highwater.cluster.run_topics import NewTopic, create_new

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
CLIENTS = """
import json, sys
import psutil
from confluent_kafka import Producer
from kafka import KafkaConsumer

bootstrap = sys.argv[1]
producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
for number in range(30):
    producer.produce("orders", str(number), partition=number % 3)
assert producer.flush(60) == 0
consumer = KafkaConsumer(
    "orders", bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest",
    consumer_timeout_ms=60000,
)
values = []
for record in consumer:
    values.append(int(record.value))
    if len(values) == 30:
        break
ports = {c.raddr.port for c in psutil.Process().net_connections("tcp") if c.raddr}
print(json.dumps({"values": sorted(values), "ports": sorted(ports)}))
"""


@pytest.mark.apache
@pytest.mark.parametrize("mode", ["kraft", pytest.param("apart", marks=pytest.mark.rare)])
def test_a_planted_loss_is_seen_on_apache_kafka_in_kraft_mode(mode: str, tmp_path: Path) -> None:
    """The leader dies alone with records of acks=1, and the controller before it."""
    out, faults = tmp_path / "run", tmp_path / "faults.json"
    schedule: list[dict[str, object]] = [
        {"name": "wait", "until": "healthy"},
        {"name": "lose_unreplicated"},
    ]
    if mode == "apart":
        schedule.insert(1, {"name": "kill", "target": "controller-101", "for": 1})
    faults.write_text(json.dumps(schedule))
    command = [sys.executable, "-I", "-m", "highwater.cli.main", "chaos", f"--out={out}"]
    options = [f"--target=apache:{apache.VERSION}-{mode}", f"--faults={faults}", "--seed=3"]
    more = ["--duration=3", "--rate=20", "--engine=duckdb"]
    done = subprocess.run([*command, *options, *more], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "zookeeper (there is no ZooKeeper)" in done.stderr
    verdict = json.loads((out / "verdict.json").read_text())
    assert verdict["verdict"] == "valid"
    assert verdict["expected_losses"] > 0
    assert verdict["seen"]["leader_changes"] > 0
    assert verdict["checks"]["R10"]["status"] == "idle", "what was not examined has not passed"


async def test_a_cluster_with_tls_and_login_is_broken_through_plain_proxies(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "own", quick_end=True, security="sasl_ssl")
    async with process_cluster(settings) as own:
        await create_new(own, [NewTopic("orders", 3, 3)], exists_ok=False)
        for number in own.brokers:
            (tmp_path / f"pid-{number}").write_text(str(own.pid(broker(number))))
        kill = Commands(kill=f"kill -KILL $(cat {tmp_path}/pid-{{id}})")
        with pytest.raises(StartError, match="give --target-config FILE"):
            await brokers_at(own.bootstrap)
        network = network_of(own.folder / "secure" / "admin.properties")
        known = await brokers_at(own.bootstrap, network)
        assert set(known.values()) == set(addresses(own.bootstrap)), "the secured listeners"
        target = AddressTarget(own.bootstrap, known, kill, network=network)
        async with target.open(tmp_path / "run", {}) as cluster:
            done = await trio.run_process(
                [sys.executable, "-c", CLIENTS, cluster.bootstrap],
                capture_stdout=True, capture_stderr=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr.decode()[-3000:]
            told = json.loads(done.stdout)
            assert told["values"] == list(range(30))
            proxies = {port for _, port in addresses(cluster.bootstrap)}
            assert proxies <= set(told["ports"]), "each broker leads a partition"
            plain = addresses(cluster.direct_bootstrap)
            answer = await metadata(plain[0], [], timeout_s=20)
            assert {(b.host, b.port) for b in answer.brokers} == set(plain), "without the faults"
            beyond = {port for _, port in (*known.values(), *plain)}
            assert not beyond & set(told["ports"]), "a client got past the proxies"
            await cluster.kill("broker-2")
            assert not cluster.running("broker-2")


async def test_no_client_gets_past_the_proxies_of_a_cluster_that_runs(tmp_path: Path) -> None:
    async with process_cluster(Settings(tmp_path / "own", quick_end=True)) as own:
        await create_new(own, [NewTopic("orders", 3, 3)], exists_ok=False)
        pids = {n: own.pid(broker(n)) for n in own.brokers}
        for number, pid in pids.items():
            (tmp_path / f"pid-{number}").write_text(str(pid))
        commands = Commands(kill=f"kill -KILL $(cat {tmp_path}/pid-{{id}})")
        direct = {port for _, port in addresses(own.direct_bootstrap)}
        known = await brokers_at(own.direct_bootstrap)
        async with remote_cluster(known, commands) as cluster:
            done = await trio.run_process(
                [sys.executable, "-c", CLIENTS, cluster.bootstrap],
                capture_stdout=True, capture_stderr=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr.decode()[-3000:]
            told = json.loads(done.stdout)
            proxies = {port for _, port in addresses(cluster.bootstrap)}
            assert told["values"] == list(range(30))
            assert not direct & set(told["ports"]), "a client got past the proxies"
            assert proxies <= set(told["ports"]), "each broker leads a partition"

            await cluster.kill("broker-2")
            assert not cluster.running("broker-2")
            with pytest.raises(ClusterError, match="give --start-command"):
                await cluster.start("broker-2")
            with pytest.raises(ClusterError, match="give --pause-command"):
                await cluster.pause("broker-1")
