"""Apache Kafka's tools that speak to ZooKeeper, of 3.9 and of 2.6, on the embedded one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from highwater.cluster.processes import apache
from highwater.cluster.processes.process_settings import Settings
from tests.background import BackgroundCluster
from tests.integration.conftest import Run
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.apache, pytest.mark.timeout(300)]
SHELL = "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka"
LAST_WITH_ZOOKEEPER = "2.6.3"
"""Of the tools: later ones ask brokers alone."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    settings = Settings(tmp_path_factory.mktemp("tools"), quick_end=True, zookeeper="embedded")
    with BackgroundCluster.of(settings) as made:
        yield made


def told(done: object) -> str:
    code, out, err = (getattr(done, name) for name in ("returncode", "stdout", "stderr"))
    assert code == 0, f"{out}{err}"
    return f"{out}{err}"


def test_zookeeper_shell(cluster: BackgroundCluster, apache_tool: Run) -> None:
    address = cluster.cluster.zookeeper_connect
    lines = ["create /shell one", "set -s /shell two", "get -s /shell", "ls -R /brokers/ids",
             "setAcl /shell world:anyone:r", "getAcl /shell", "set /shell three",
             "whoami", "deleteall /config/changes", "quit"]  # fmt: skip
    out = told(apache_tool(SHELL, ["-server", address], stdin="\n".join(lines) + "\n"))
    assert "Created /shell" in out
    assert "dataVersion = 1" in out
    assert "/brokers/ids/3" in out
    assert "'world,'anyone\n: r" in out
    assert "Insufficient permission : /shell" in out


def test_kafka_acls(cluster: BackgroundCluster, apache_tool: Run) -> None:
    where = f"--authorizer-properties=zookeeper.connect={cluster.cluster.zookeeper_connect}"
    acls = "kafka.admin.AclCommand"
    who = ["--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders"]
    told(apache_tool(acls, [where, "--add", *who]))
    assert "principal=User:alice" in told(apache_tool(acls, [where, "--list"]))


def test_the_tools_of_2_6(cluster: BackgroundCluster, tmp_path: Path, apache_tool: Run) -> None:
    where = ["--zookeeper", cluster.cluster.zookeeper_connect]

    def tool(name: str, *words: str) -> str:
        main = f"kafka.admin.{name}Command"
        return told(apache.tool(main, [*where, *words], version=LAST_WITH_ZOOKEEPER))

    tool("Topic", "--create", "--topic", "old", "--partitions", "2", "--replication-factor", "3")
    tool("Config", "--alter", "--entity-type", "topics", "--entity-name", "old",
         "--add-config", "retention.ms=123456")  # fmt: skip
    moved = {"topic": "old", "partition": 0, "replicas": [2, 3]}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    tool("ReassignPartitions", "--execute", "--reassignment-json-file", str(plan))

    def done() -> bool:
        out = tool("Topic", "--describe", "--topic", "old")
        return "retention.ms=123456" in out and "Replicas: 2,3\t" in out

    eventually(done, "the topic is as it was made", lambda: tool("Topic", "--describe"), 60)
