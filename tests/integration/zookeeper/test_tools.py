"""Apache Kafka's tools that speak to ZooKeeper, of 3.9 and of 2.6, on the embedded one.

Three brokers of Highwater serve on it.  A client of theirs looks for what a tool has written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from highwater.cluster.ask import ask, metadata
from highwater.cluster.processes import apache
from highwater.cluster.processes.process_settings import Settings
from highwater.kafka.wire import messages
from tests.background import BackgroundCluster
from tests.integration.conftest import Run
from tests.integration.zookeeper.shell_lines import LINES, SHELL, shown
from tests.integration.zookeeper.two_servers import Address, java, server
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.apache, pytest.mark.timeout(300)]
LAST_WITH_ZOOKEEPER = "2.6.3"
"""Of the tools: later ones ask brokers alone."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    settings = Settings(
        tmp_path_factory.mktemp("tools"),
        quick_end=True,
        zookeeper="embedded",
        properties={
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "auto.leader.rebalance.enable": "false",
        },
    )
    with BackgroundCluster.of(settings) as made:
        yield made


@pytest.fixture
def admin(cluster: BackgroundCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


def told(done: object) -> str:
    code, out, err = (getattr(done, name) for name in ("returncode", "stdout", "stderr"))
    assert code == 0, f"{out}{err}"
    return f"{out}{err}"


def old_tool(cluster: BackgroundCluster, name: str, *words: str) -> str:
    """The output of a tool of the last release that has --zookeeper."""
    where = ["--zookeeper", cluster.cluster.zookeeper_connect]
    main = f"kafka.admin.{name}Command"
    return told(apache.tool(main, [*where, *words], version=LAST_WITH_ZOOKEEPER))


def created(admin: AdminClient, topic: str, *places: list[int]) -> None:
    wanted = NewTopic(topic, len(places), replica_assignment=list(places))
    admin.create_topics([wanted])[topic].result(30)


def replicas(admin: AdminClient, topic: str) -> list[list[int]]:
    """Of each partition; empty where there is no such topic."""
    found = admin.list_topics(timeout=30).topics.get(topic)
    return [found.partitions[n].replicas for n in sorted(found.partitions)] if found else []


def setting(admin: AdminClient, kind: ResourceType, name: str, key: str) -> str | None:
    """The value by DescribeConfigs; None where the answer does not name the setting."""
    asked = ConfigResource(kind, name)
    entry = admin.describe_configs([asked])[asked].result(30).get(key)
    return None if entry is None else str(entry.value)


def asked(cluster: BackgroundCluster, request: Any, version: int) -> Any:
    return trio.run(ask, cluster.cluster.address(1), request, version, 30)


def all_at_once(*stories: Callable[[], None]) -> None:
    """Most of each is the start of a JVM."""
    with ThreadPoolExecutor(len(stories)) as pool:
        for done in [pool.submit(story) for story in stories]:
            done.result()


def test_the_shell_shows_what_it_shows_on_java_s(tmp_path: Path, apache_tool: Run) -> None:
    def run(address: Address) -> Any:
        return apache_tool(SHELL, ["-server", "{}:{}".format(*address)], stdin=LINES)

    with server(tmp_path / "ours") as ours, java(tmp_path / "java") as theirs:
        with ThreadPoolExecutor(2) as pool:
            mine, yours = map(shown, pool.map(run, (ours.address, theirs)))
        assert mine == yours
        assert "Created /a/b/c" in mine.err, "where the shell says so"
        assert any("type:NodeCreated path:/a/b/c" in event for event in mine.events)
        assert "Insufficient permission : /of-bob" in mine.err


def test_what_the_shell_changes_is_what_brokers_do(
    cluster: BackgroundCluster, admin: AdminClient, apache_tool: Run
) -> None:
    """A topic is deleted, another one configured, and the controller changed by hand."""
    created(admin, "deleted", [1, 2, 3])
    created(admin, "configured", [1, 2, 3])
    change = '{"version":2,"entity_path":"topics/configured"}'
    config = '{"version":1,"config":{"retention.ms":"123456"}}'
    lines = [
        "ls /brokers/ids", "get /brokers/ids/1", "getAcl /brokers/ids", "stat /controller",
        "create /admin/delete_topics/deleted", f"set /config/topics/configured {config}",
        f"create -s /config/changes/config_change_ {change}",
        "deleteall /controller", "quit",
    ]  # fmt: skip

    def shell(*lines: str) -> str:
        connect = cluster.cluster.zookeeper_connect
        return told(apache_tool(SHELL, ["-server", connect], stdin="\n".join([*lines, ""])))

    def epoch(out: str) -> int:
        return max(int(line) for line in out.splitlines() if line.isdigit())

    out = shell("get /controller_epoch", *lines)
    assert "[1, 2, 3]" in out
    assert '"endpoints":["INTERNAL://' in out
    assert "'world,'anyone\n: cdrwa" in out
    eventually(lambda: not replicas(admin, "deleted"), "the topic is deleted")
    eventually(
        lambda: setting(admin, ResourceType.TOPIC, "configured", "retention.ms") == "123456",
        "the topic is configured",
    )

    def elected() -> bool:
        answers = [trio.run(metadata, cluster.cluster.address(n), []) for n in (1, 2, 3)]
        return len({a.controller_id for a in answers}) == 1 and answers[0].controller_id > 0

    eventually(elected, "all brokers name one controller")
    assert epoch(shell("get /controller_epoch", "quit")) == epoch(out) + 1
    created(admin, "by-the-next", [1, 2, 3])


@pytest.mark.parametrize("version", [apache.VERSION, LAST_WITH_ZOOKEEPER])
def test_kafka_acls(cluster: BackgroundCluster, admin: AdminClient, version: str) -> None:
    topic = f"orders-{version}"
    created(admin, topic, [1, 2, 3])
    where = f"--authorizer-properties=zookeeper.connect={cluster.cluster.zookeeper_connect}"
    rule = ["--deny-principal", "User:*", "--operation", "Read", "--topic", topic]

    def acls(*words: str) -> str:
        return told(apache.tool("kafka.admin.AclCommand", [where, *words], version=version))

    def allowed() -> bool:
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        try:
            consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)
            message = consumer.poll(0.3)
            return message is None or message.error() is None
        except KafkaException:
            return False
        finally:
            consumer.close()

    assert allowed()
    acls("--add", *rule)
    eventually(lambda: not allowed(), "nobody may read it")
    listed = acls("--list", "--topic", topic)
    assert "principal=User:*, host=*, operation=READ, permissionType=DENY" in listed
    acls("--remove", "--force", *rule)
    eventually(allowed, "it can be read again")


def test_topics_and_configs_of_2_6(cluster: BackgroundCluster, admin: AdminClient) -> None:
    def topics() -> None:
        for topic in ("old", "brief"):
            old_tool(cluster, "Topic", "--create", "--topic", topic, "--partitions", "2",
                     "--replication-factor", "3")  # fmt: skip
        eventually(lambda: len(replicas(admin, "old")) == 2, "it is there")
        old_tool(cluster, "Topic", "--alter", "--topic", "old", "--partitions", "5")
        eventually(lambda: len(replicas(admin, "old")) == 5, "it has more partitions")
        eventually(lambda: bool(replicas(admin, "brief")), "the other one is there")
        old_tool(cluster, "Topic", "--delete", "--topic", "brief")
        eventually(lambda: not replicas(admin, "brief"), "it is deleted")
        assert "PartitionCount: 5" in old_tool(cluster, "Topic", "--describe", "--topic", "old")

    def configs() -> None:
        created(admin, "kept", [1, 2, 3])
        of_topic = ["--entity-type", "topics", "--entity-name", "kept"]

        def retention() -> str | None:
            return setting(admin, ResourceType.TOPIC, "kept", "retention.ms")

        usual = retention()
        old_tool(cluster, "Config", "--alter", *of_topic, "--add-config", "retention.ms=123456")
        eventually(lambda: retention() == "123456", "it is set")
        assert "retention.ms=123456" in old_tool(cluster, "Config", "--describe", *of_topic)
        old_tool(cluster, "Config", "--alter", *of_topic, "--delete-config", "retention.ms")
        eventually(lambda: retention() == usual, "it is as before")

    def users() -> None:
        of_user = ["--entity-type", "users", "--entity-name", "alice"]
        login = "SCRAM-SHA-256=[iterations=4096,password=s3cret],producer_byte_rate=1024"
        old_tool(cluster, "Config", "--alter", *of_user, "--add-config", login)
        found = admin.describe_user_scram_credentials(["alice"])["alice"].result(30)
        assert [one.iterations for one in found.scram_credential_infos] == [4096]
        assert quotas() == {"producer_byte_rate": 1024.0}

    def quotas() -> dict[str, float]:
        component = messages.DescribeClientQuotasRequest.ComponentData
        alice = component(entity_type="user", match_type=0, match="alice")
        request = messages.DescribeClientQuotasRequest(components=[alice], strict=False)
        entries = asked(cluster, request, 1).entries
        return {value.key: value.value for entry in entries for value in entry.values}

    all_at_once(topics, configs, users)


def test_configs_of_3_9_before_a_broker_starts(
    cluster: BackgroundCluster, admin: AdminClient, apache_tool: Run
) -> None:
    """What its tool still writes by itself: logins, and settings of a broker that is not there."""
    where = ["--zookeeper", cluster.cluster.zookeeper_connect, "--alter"]
    of_broker = ["--entity-type", "brokers", "--entity-name", "3"]
    value = ["--add-config", "log.cleaner.backoff.ms=16000"]

    def of_a_user() -> None:
        login = ["--add-config", "SCRAM-SHA-512=[iterations=8192,password=s3cret]"]
        user = ["--entity-type", "users", "--entity-name", "bob"]
        told(apache_tool("kafka.admin.ConfigCommand", [*where, *user, *login]))
        found = admin.describe_user_scram_credentials(["bob"])["bob"].result(30)
        assert [one.iterations for one in found.scram_credential_infos] == [8192]

    def of_a_stopped_broker() -> None:
        cluster.stop(3)
        try:
            told(apache_tool("kafka.admin.ConfigCommand", [*where, *of_broker, *value]))
        finally:
            cluster.start(3)
        assert setting(admin, ResourceType.BROKER, "3", "log.cleaner.backoff.ms") == "16000"

    refused = apache_tool("kafka.admin.ConfigCommand", [*where, *of_broker, *value])
    assert "only supported if the affected broker(s) are not running" in refused.stderr
    all_at_once(of_a_user, of_a_stopped_broker)


def test_reassignments_and_elections_of_2_6(
    cluster: BackgroundCluster, admin: AdminClient, tmp_path: Path
) -> None:
    def reassigned() -> None:
        created(admin, "moved", [1, 2], [2, 3])
        plan = tmp_path / "plan.json"
        wanted = [{"topic": "moved", "partition": 0, "replicas": [3, 2]}]
        plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
        file = ("--reassignment-json-file", str(plan))
        old_tool(cluster, "ReassignPartitions", "--execute", *file, "--throttle", "10000000")
        eventually(lambda: replicas(admin, "moved") == [[3, 2], [2, 3]], "it is moved")
        eventually(lambda: throttled() == "10000000", "its throttle is there")
        out = old_tool(cluster, "ReassignPartitions", "--verify", *file)
        assert "Reassignment of partition moved-0 is complete" in out
        eventually(lambda: throttled() is None, "--verify takes the throttle away")

    def throttled() -> str | None:
        return setting(admin, ResourceType.BROKER, "2", "leader.replication.throttled.rate")

    def elected() -> None:
        created(admin, "led", [2, 1, 3])
        cluster.restart(2)
        eventually(lambda: len(cluster.isr_of("led", 0)) == 3, "it is in sync again")
        assert cluster.leader_of("led", 0) != 2
        chosen = tmp_path / "chosen.json"
        chosen.write_text(json.dumps({"partitions": [{"topic": "led", "partition": 0}]}))
        name = "PreferredReplicaLeaderElection"
        old_tool(cluster, name, "--path-to-json-file", str(chosen))
        eventually(lambda: cluster.leader_of("led", 0) == 2, "the preferred replica leads")

    reassigned()
    elected()
