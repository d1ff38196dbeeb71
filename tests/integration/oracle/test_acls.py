"""The answers of each API to clients who may do one thing each: equal to Apache Kafka's.

One broker of each kind, with AclAuthorizer and the same rules.  Each request names a resource on
which its user may be allowed something (`seen`), one on which no user is (`hidden`), and one that
does not exist (`nowhere`); so the answers show what is allowed, what is denied, and what is hidden.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaProducer
from kafka.errors import TopicAuthorizationFailedError
from kazoo.client import KazooClient

from highwater.broker.handlers import HANDLERS
from highwater.kafka.security.acls import Operation
from highwater.kafka.security.links import SecuredNetwork
from highwater.kafka.security.sasl import SaslLogin
from highwater.kafka.security.settings import ListenerSettings
from highwater.kafka.wire.header import api_name
from highwater.world.real.network import RealNetwork
from tests.integration.oracle import differences, script_admin
from tests.integration.oracle.acl_bodies import (
    ALL,
    ALLOW,
    CLUSTER,
    DENY,
    GROUP,
    ID,
    LITERAL,
    PREFIXED,
    THREE,
    TOPIC,
    bodies,
)
from tests.integration.oracle.asking import Case, Difference, Offered, Side, compare
from tests.integration.oracle.rig import APACHE, HIGHWATER, program
from tests.integration.oracle.script_records import batch
from tests.integration.robustness.rig import BrokerProcess, ZooKeeper, fresh_port
from tests.waiting import eventually

pytestmark = [
    pytest.mark.integration, pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(240),
]  # fmt: skip
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"

Rule = tuple[int, str, int, int, int]
"""Type, name, pattern, operation, permission."""


def rights() -> dict[str, list[Rule]]:
    """The rules of each user."""
    users: dict[str, list[Rule]] = {"nobody": []}
    for operation in (3, 4, 5, 6, 7, 8, 10, 11):
        name = Operation(operation).name.lower().replace("_", "-")
        kinds = (TOPIC, GROUP, ID) if operation in (3, 4, 6, 8) else (TOPIC,)
        users[name] = [(kind, "seen", LITERAL, operation, ALLOW) for kind in kinds]
    for operation in (5, 7, 8, 9, 10, 11, 12):
        name = "cluster-" + Operation(operation).name.lower().replace("_", "-")
        users[name] = [(CLUSTER, "kafka-cluster", LITERAL, operation, ALLOW)]
    everything = [(kind, "*", LITERAL, ALL, ALLOW) for kind in (TOPIC, GROUP, ID)]
    everything.append((CLUSTER, "kafka-cluster", LITERAL, ALL, ALLOW))
    users["topics-alone"] = [(TOPIC, "*", LITERAL, ALL, ALLOW)]
    users["by-prefix"] = [(kind, "se", PREFIXED, ALL, ALLOW) for kind in (TOPIC, GROUP, ID)]
    users["all-but"] = [
        *everything,
        *(
            (kind, "se", PREFIXED, operation, DENY)
            for kind in (TOPIC, GROUP)
            for operation in (3, 8)
        ),
    ]
    users["everything"] = everything
    return users


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    made = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    yield made
    made.end()


@pytest.fixture
def brokers(
    zookeeper: ZooKeeper, tmp_path: Path, apache_tool: Callable[..., Any]
) -> Iterator[list[BrokerProcess]]:
    made: list[BrokerProcess] = []
    try:
        made += [
            secured(tmp_path / kind, zookeeper.fresh_path(), kind).start()
            for kind in (HIGHWATER, APACHE)
        ]
        yield [broker.serving() for broker in made]
    finally:
        for broker in made:
            broker.end()


def secured(folder: Path, zookeeper: str, kind: str) -> BrokerProcess:
    """PLAINTEXT between brokers, whose principal is a super user; SASL for the users."""
    sasl = fresh_port()
    users = " ".join(f'user_{user}="{user}-s3cret"' for user in rights())
    broker = BrokerProcess(folder, zookeeper)
    broker.program = program(kind)
    broker.properties |= broker.program.prepare(folder, 1, "test") | {
        "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},SASL://127.0.0.1:{sasl}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f"{LOGIN} {users};",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:nobody-else;User:ANONYMOUS",
        "inter.broker.protocol.version": "2.6",
        "log.retention.hours": "-1",  # the records carry timestamps of 2020
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    return broker


def side(kind: str, broker: BrokerProcess, user: str = "") -> Side:
    """The broker as a user sees it; as the super user by default."""
    made = Side(kind, {1: broker.address}, 1, {"controller": 1})
    if user:
        listener = broker.properties["listeners"].rpartition(":")[2]
        made.addresses = {1: ("127.0.0.1", int(listener))}
        given = {
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.jaas.config": f'{LOGIN} username="{user}" password="{user}-s3cret";',
        }
        login = SaslLogin(ListenerSettings(given, "SASL", "SASL_PLAINTEXT"))
        made.network = SecuredNetwork(RealNetwork(), None, login)
    return made


def set_up() -> list[Case]:
    def found(answer: Any) -> bool:
        return bool(answer["error_code"] == 0)

    topics = [script_admin.new_topic(name, -1, -1, assigned={0: [1]}) for name in THREE[:2]]
    creations = [
        {
            "resource_type": kind, "resource_name": name, "resource_pattern_type": pattern,
            "principal": f"User:{user}", "host": "*", "operation": operation,
            "permission_type": permission,
        }
        for user, rules in rights().items()
        for kind, name, pattern, operation, permission in rules
    ]  # fmt: skip
    return [
        Case("topics", 19, script_admin.create(*topics), versions=(4, 4)),
        Case("group", 10, {"key": "seen", "key_type": 0}, versions=(2, 2), until=found),
        Case("id", 10, {"key": "seen", "key_type": 1}, versions=(2, 2), until=found),
        Case("producer id", 22, {"transactional_id": None}, versions=(1, 1), until=found),
        Case("rules", 30, {"creations": creations}, versions=(3, 3)),
    ]


def cases(offered: Offered) -> Iterator[Case]:
    """Each API in its first and its last version."""

    def keep(api_key: int) -> Callable[[int, Any, dict[str, Any]], None]:
        def note(version: int, answer: Any, facts: dict[str, Any]) -> None:
            if (api_key, version) < (1, 13) or api_key > 1:  # its ids are none here
                facts.setdefault("answers", {})[api_key] = answer

        return note

    more: dict[tuple[int, str], Any] = {
        (1, "as a follower"): {**bodies()[1], "replica_id": 1},
        (3, "all topics"): {**bodies()[3], "topics": None},
        (3, "may create"): {"topics": [{"name": "fresh"}], "allow_auto_topic_creation": True},
        (9, "all topics"): {"group_id": "seen", "topics": None},
        (10, "transactions"): {"key_type": 1, "key": "seen"},
        (22, "without an id"): {"transactional_id": None, "transaction_timeout_ms": 5000},
        (0, "in a transaction"): {
            **bodies()[0],
            "transactional_id": "hidden",
            "topic_data": [
                {"name": "seen", "partition_data": [
                    {"index": 0, "records": batch(producer_id=7, producer_epoch=0,
                                                  base_sequence=0, attributes=0x10)}]}],
        },
    }  # fmt: skip
    more[19, "for real"] = lambda version, facts: script_admin.created(
        f"made-{facts['user']}-{version}"
    )
    first = {0: 3, 3: 4, 9: 1, 19: 1}
    """Earlier versions have other formats, make topics, or read offsets from ZooKeeper."""
    limits = {"all topics": (2, 8), "transactions": (1, 3), "may create": (4, 4)}
    listed = [((key, "the three"), body) for key, body in bodies().items()]
    for (key, name), body in [*listed, *more.items()]:
        versions = offered.common(key)
        low, high = limits.get(name, (first.get(key, 0), 99))
        low, high = max(low, versions[0]), min(high, versions[-1])
        if key == 9 and name == "all topics":
            high = 7
        for version in sorted({low, high}):
            yield Case(name, key, body, versions=(version, version), keep=keep(key), within_s=10)


def stored(brokers: list[BrokerProcess]) -> list[dict[str, Any]]:
    """The rules in ZooKeeper by path, as each kind of broker has written them."""
    found = []
    for broker in brokers:
        host, _, path = broker.properties["zookeeper.connect"].partition("/")
        client = KazooClient(host)
        client.start()
        try:
            found.append(dict(znodes_below(client, f"/{path}", "")))
        finally:
            client.stop()
            client.close()
    return found


def znodes_below(client: KazooClient, root: str, path: str) -> Iterator[tuple[str, Any]]:
    data, _ = client.get(root + path)
    try:
        value = json.loads(data)
        value["acls"] = sorted(value["acls"], key=str)
    except (TypeError, ValueError, KeyError):
        value = data or None
    if path:
        yield path, value
    for name in client.get_children(root + path):
        if path or name.startswith("kafka-acl"):
            yield from znodes_below(client, root, f"{path}/{name}")


async def run(brokers: list[BrokerProcess]) -> tuple[int, list[Difference], dict[str, Any]]:
    admins = [side(kind, broker) for kind, broker in zip((HIGHWATER, APACHE), brokers, strict=True)]
    told = [await s.ask(1, 18, 0, differences.api_versions()) for s in admins]
    offered = Offered(*told)
    asked, found = await compare(admins[0], admins[1], offered, set_up())
    answers: dict[str, Any] = {}
    for user in rights():
        both = [side(kind, b, user) for kind, b in zip((HIGHWATER, APACHE), brokers, strict=True)]
        for one in both:
            one.facts["user"] = user
        n, differ = await compare(both[0], both[1], offered, list(cases(offered)))
        asked += n
        found += [d._replace(case=f"{d.case}, by {user}") for d in differ]
        answers[user] = both[1].facts["answers"]
        for one in both:
            one.close()
    for one in admins:
        one.close()
    return asked, found, answers


def client(broker: BrokerProcess, user: str) -> dict[str, str]:
    """A user's configuration, as librdkafka names it; kcat takes the same by -X."""
    return {
        "bootstrap.servers": broker.properties["listeners"].rpartition("//")[2],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-s3cret",
    }


@pytest.fixture
def broker(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[BrokerProcess]:
    made = secured(tmp_path, zookeeper.fresh_path(), HIGHWATER)
    try:
        yield made.serving()
    finally:
        made.end()


def test_what_real_clients_are_told(
    broker: BrokerProcess,
    apache_tool: Callable[..., Any],
    kcat: Callable[..., Any],
) -> None:
    """kafka-acls gives a right, which librdkafka sees; kcat and kafka-python are told what is
    denied to them, before and after."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("letters", 1, 1)])["letters"].result(30)
    nobody = client(broker, "nobody")
    options = [part for name, value in nobody.items() for part in ("-X", f"{name}={value}")]

    def sent() -> str:
        done = kcat("-P", "-t", "letters", *options, "-X", "message.timeout.ms=3000", stdin="a\n")
        return str(done.stderr)

    python: Any = KafkaProducer(
        bootstrap_servers=nobody["bootstrap.servers"],
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="nobody",
        sasl_plain_password="nobody-s3cret",
        enable_idempotence=False,
    )
    assert "Topic authorization failed" in sent()
    with pytest.raises(TopicAuthorizationFailedError):
        python.send("letters", b"b").get(10)
    where = ("--bootstrap-server", broker.bootstrap)
    given = apache_tool(
        "kafka.admin.AclCommand",
        [*where, "--add", "--allow-principal", "User:nobody", "--producer", "--topic", "letters"],
    )
    assert given.returncode == 0, given.stdout + given.stderr
    assert sent() == ""
    assert python.send("letters", b"b").get(10).offset == 1
    python.close()
    asked = AclBindingFilter(
        ResourceType.TOPIC, "letters", ResourcePatternType.MATCH, "User:nobody", None,
        AclOperation.ANY, AclPermissionType.ALLOW,
    )  # fmt: skip
    found = {binding.operation for binding in admin.describe_acls(asked).result(30)}
    assert found == {AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE}
    consumer = Consumer(client(broker, "topics-alone") | {"group.id": "not-mine"})
    consumer.subscribe(["letters"])

    def told() -> bool:
        message = consumer.poll(1)
        return message is not None and "Group authorization failed" in str(message.error())

    eventually(told, "the consumer is told that its group is not allowed", within_s=20)
    consumer.close()
    listed = apache_tool("kafka.admin.AclCommand", [*where, "--list", "--topic", "letters"])
    assert "principal=User:nobody, host=*, operation=WRITE, permissionType=ALLOW" in listed.stdout
    removed = admin.delete_acls([asked])[asked].result(30)
    assert {binding.operation for binding in removed} == found
    assert "Topic authorization failed" in sent()


def test_what_each_api_answers(brokers: list[BrokerProcess]) -> None:
    asked, found, answers = trio.run(run, brokers)
    assert asked > 1500
    known = differences.load()
    left = [d for d in found if not any(entry.covers(d) for entry in known)]
    assert not left, f"{len(left)} of {asked}\n" + "\n".join(map(str, left[:80]))
    trees = stored(brokers)
    ours, theirs = ({p: v for p, v in t.items() if "acl_changes_" not in p} for t in trees)
    assert ours == theirs
    announced = [{str(v) for p, v in t.items() if "acl_changes_" in p} for t in trees]
    assert announced[0] == announced[1]
    assert any("TRANSACTIONAL_ID:" in told for told in announced[0])
    assert any("/prefixed/Topic/se" in path for path in ours)
    # tokens: test_delegation_tokens.py; DescribeTopicPartitions, which Apache Kafka 3.9 has not in
    # ZooKeeper mode: broker/handlers/test_topics_by_id.py; nor has it features or the consumer
    # protocol or share groups there: broker/handlers/test_features.py, test_consumer_groups.py and
    # test_share_*.py
    whose_it_is = {39, 40, 41, 57, 68, 69, 75, 76, 77, 78, 79, *range(83, 88), 90, 91, 92}
    guarded = {module.API.key for module in HANDLERS} - {17, 18, 36} - whose_it_is
    alike = [k for k in guarded if answers["nobody"].get(k) == answers["everything"].get(k)]
    assert not alike, f"everybody gets one answer from {[api_name(k) for k in alike]}"
