"""A cluster whose every listener is secured, and clients that may and may not use it."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer

from highwater.kafka.security.jaas import PLAIN, SCRAM
from tests.authority import Authority
from tests.integration.security.conftest import PLAIN_PASSWORD, SECRETS, Secured
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def files(secured: Secured, name: str) -> dict[str, str]:
    """A client's own certificate and the authority's, as librdkafka names them."""
    path = secured.authority.pem(secured.authority.issue("a@b", common_name=name), f"{name}.pem")
    return {
        "ssl.ca.location": str(secured.authority.trust),
        "ssl.certificate.location": str(path),
        "ssl.key.location": str(path),
    }


def librdkafka(secured: Secured, listener: str, **more: str) -> dict[str, Any]:
    given = {name.replace("_", "."): value for name, value in more.items()}
    return {
        "bootstrap.servers": secured.bootstrap(listener),
        "ssl.ca.location": str(secured.authority.trust),
        "socket.timeout.ms": 10_000,
    } | given


def create_topic(config: dict[str, Any], topic: str) -> None:
    client = AdminClient(config)
    client.create_topics([NewTopic(topic, 3, 3)])[topic].result(30)


def round_trip(config: dict[str, Any], topic: str) -> None:
    """Writes records of several sizes with acks=all, and reads them again in a group."""
    sent = {bytes([n]) * (1 if n % 2 else 100_000) for n in range(40)}
    producer = Producer(config | {"acks": "all"})
    for value in sent:
        producer.produce(topic, value)
        producer.poll(0)
    assert producer.flush(30) == 0
    consumer = Consumer(config | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got: set[bytes] = set()

    def read() -> bool:
        for message in consumer.consume(50, 0.5):
            assert message.error() is None, message.error()
            got.add(message.value())
        return len(got) >= len(sent)

    eventually(read, "all records come back", lambda: len(got), 30)
    consumer.close()
    assert got == sent


def refused(config: dict[str, Any]) -> str:
    """The client's own words for why it cannot connect."""
    told: list[str] = []
    client = AdminClient(config | {"error_cb": lambda error: told.append(str(error))})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=1)

    def said() -> bool:
        client.poll(0.1)
        return bool(told)

    eventually(said, "the client says why", within_s=15)
    return "\n".join(told)


def test_mutual_tls_from_end_to_end(secured: Secured) -> None:
    """Every link of this cluster is TLS: three replicas and a group show that all of them work."""
    config = librdkafka(secured, "TLS", security_protocol="SSL") | files(secured, "alice")
    create_topic(config, "mutual")
    round_trip(config, "mutual")
    python = {
        "bootstrap_servers": secured.bootstrap("TLS"),
        "security_protocol": "SSL",
        "ssl_cafile": str(secured.authority.trust),
        "ssl_certfile": config["ssl.certificate.location"],
        "ssl_keyfile": config["ssl.key.location"],
    }
    producer = KafkaProducer(**python, acks="all")
    assert producer.send("mutual", b"from python").get(30).offset >= 0
    producer.close()
    consumer = KafkaConsumer("mutual", **python, auto_offset_reset="earliest")
    eventually(
        lambda: any(
            record.value == b"from python"
            for records in consumer.poll(500).values()
            for record in records
        ),
        "kafka-python reads its own record",
        within_s=30,
    )
    consumer.close()


def test_a_foreign_or_no_certificate(secured: Secured, tmp_path: Path) -> None:
    config = librdkafka(secured, "TLS", security_protocol="SSL")
    assert "certificate" in refused(config)
    foreign = Authority(tmp_path)
    path = foreign.pem(foreign.issue("a@b", common_name="mallory"), "mallory.pem")
    own = {"ssl.certificate.location": str(path), "ssl.key.location": str(path)}
    assert "SSL" in refused(config | own)
    assert "the peer showed no certificate, and one is required" in secured.output()
    assert "the peer's certificate is not accepted" in secured.output()
    # and the other way round: a client that does not know the cluster's authority
    doubtful = config | files(secured, "bob") | {"ssl.ca.location": str(foreign.trust)}
    assert "certificate verify failed" in refused(doubtful)
    assert "the peer does not trust this certificate's authority" in secured.output()


def test_a_client_without_tls(secured: Secured) -> None:
    plain = librdkafka(secured, "TLS", security_protocol="PLAINTEXT")
    assert refused(plain)
    assert "the peer does not speak TLS; set its security.protocol" in secured.output()


def test_half_a_handshake_holds_up_nobody(secured: Secured) -> None:
    config = librdkafka(secured, "TLS", security_protocol="SSL") | files(secured, "alice")
    half = [socket.create_connection(("localhost", secured.ports["TLS"][0])) for _ in range(300)]
    for number, connection in enumerate(half):
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[: number % 11 + 1])
    create_topic(config, "beside-halves")
    round_trip(config, "beside-halves")
    for connection in half:
        connection.close()


SCRAM_PASSWORD, ERINS_PASSWORD = "scram,=s3cret", "java-s3cret"
MECHANISMS = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}


def as_user(secured: Secured, user: str, password: str, mechanism: str = "PLAIN") -> dict[str, Any]:
    return librdkafka(
        secured,
        "SASL",
        security_protocol="SASL_SSL",
        sasl_mechanism=mechanism,
        sasl_username=user,
        sasl_password=password,
    )


def create_user(secured: Secured, user: str) -> None:
    """As `kafka-configs --alter --entity-type users` does it; every broker knows it afterwards."""
    admin = AdminClient(as_user(secured, "admin", PLAIN_PASSWORD))
    changes = [
        UserScramCredentialUpsertion(
            user, ScramCredentialInfo(mechanism, 4096), SCRAM_PASSWORD.encode()
        )
        for mechanism in MECHANISMS.values()
    ]
    for changed in admin.alter_user_scram_credentials(changes).values():
        changed.result(30)
    found = admin.describe_user_scram_credentials([user])[user].result(30)
    assert {(i.mechanism, i.iterations) for i in found.scram_credential_infos} == {
        (mechanism, 4096) for mechanism in MECHANISMS.values()
    }

    def known() -> bool:
        for port in secured.ports["SASL"]:
            one = as_user(secured, user, SCRAM_PASSWORD, "SCRAM-SHA-512")
            one["bootstrap.servers"] = f"localhost:{port}"
            try:
                AdminClient(one).list_topics(timeout=3)
            except KafkaException:
                return False
        return True

    eventually(known, "every broker knows the user", secured.output, 30)


def test_plain_and_scram_from_end_to_end(secured: Secured) -> None:
    """The brokers themselves log in to each other by SCRAM: each topic has three replicas."""
    create_topic(as_user(secured, "alice", PLAIN_PASSWORD), "plain")
    round_trip(as_user(secured, "alice", PLAIN_PASSWORD), "plain")
    create_user(secured, "carol")
    for mechanism in MECHANISMS:
        topic = mechanism.lower()
        create_topic(as_user(secured, "carol", SCRAM_PASSWORD, mechanism), topic)
        round_trip(as_user(secured, "carol", SCRAM_PASSWORD, mechanism), topic)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafka_python(secured: Secured, mechanism: str) -> None:
    user, password = "alice", PLAIN_PASSWORD
    if mechanism != "PLAIN":
        user, password = "dave", SCRAM_PASSWORD
        create_user(secured, user)
    producer = KafkaProducer(
        bootstrap_servers=secured.bootstrap("SASL"),
        security_protocol="SASL_SSL",
        ssl_cafile=str(secured.authority.trust),
        sasl_mechanism=mechanism,
        sasl_plain_username=user,
        sasl_plain_password=password,
        acks="all",
    )
    assert producer.send(f"python-{mechanism}", b"x").get(30).offset == 0
    producer.close()


def test_a_client_that_stays_authenticates_again(secured: Secured) -> None:
    """connections.max.reauth.ms is 4 s here: librdkafka renews its sessions before they end."""
    config = as_user(secured, "alice", PLAIN_PASSWORD)
    lost: list[str] = []
    producer = Producer(config | {"acks": "all", "error_cb": lambda error: lost.append(str(error))})
    create_topic(config, "stays")
    began = time.monotonic()

    def written() -> bool:
        producer.produce("stays", b"x")
        assert producer.flush(10) == 0
        return time.monotonic() - began > 9

    eventually(written, "nine seconds have gone by", within_s=30)
    assert lost == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password(secured: Secured, mechanism: str) -> None:
    told = refused(as_user(secured, "alice", "guess-s3cret", mechanism))
    assert "Authentication failed" in told
    assert f"authentication by {mechanism} failed" in secured.output()
    assert "guess-s3cret" not in secured.output()


def test_a_client_of_another_mechanism_or_without_sasl(
    secured: Secured, capfd: pytest.CaptureFixture[str]
) -> None:
    token = {"sasl.oauthbearer.config": "principal=a", "enable.sasl.oauthbearer.unsecure.jwt": True}
    with pytest.raises(KafkaException):
        AdminClient(as_user(secured, "alice", "x", "OAUTHBEARER") | token).list_topics(timeout=1)
    assert "Unsupported SASL mechanism" in capfd.readouterr().err
    assert "SASL mechanism 'OAUTHBEARER' is not enabled" in secured.output()
    client = AdminClient(librdkafka(secured, "SASL", security_protocol="SSL"))
    with pytest.raises(KafkaException):
        client.list_topics(timeout=1)
    told: list[str] = []

    def closed() -> bool:
        client.poll(0.1)
        told.append(capfd.readouterr().err)
        return "closed by peer" in "".join(told)

    eventually(closed, "the client says what happened", lambda: "".join(told), within_s=15)
    assert "request during SASL handshake" in secured.output()


@pytest.mark.apache
def test_apaches_own_tools(
    secured: Secured,
    apache_tool: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    """The Java client: kafka-configs makes a user, who then lists topics by SCRAM."""

    def run(tool: str, user: str, password: str, *arguments: str) -> str:
        module, mechanism = (PLAIN, "PLAIN") if user == "admin" else (SCRAM, "SCRAM-SHA-512")
        path = tmp_path / "client.properties"
        path.write_text(
            "security.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={secured.authority.trust}\nsasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={module} required username="{user}" password="{password}";\n'
        )
        where = ["--bootstrap-server", secured.bootstrap("SASL"), "--command-config", str(path)]
        done = apache_tool(tool, [*where, *arguments])
        return str(done.stdout + done.stderr)

    erin = ("--entity-type", "users", "--entity-name", "erin")
    made = f"SCRAM-SHA-512=[iterations=4096,password={ERINS_PASSWORD}]"
    configs = "kafka.admin.ConfigCommand"
    told = run(configs, "admin", PLAIN_PASSWORD, "--alter", "--add-config", made, *erin)
    assert "Completed updating config for user erin" in told
    assert "iterations=4096" in run(configs, "admin", PLAIN_PASSWORD, "--describe", *erin)
    create_topic(as_user(secured, "alice", PLAIN_PASSWORD), "seen-by-java")
    topics = "org.apache.kafka.tools.TopicCommand"
    assert "seen-by-java" in run(topics, "erin", ERINS_PASSWORD, "--list")
    assert "SaslAuthenticationException" in run(topics, "erin", "guess-s3cret", "--list")
    assert ERINS_PASSWORD not in secured.output()


def test_nothing_secret_is_ever_written(secured: Secured) -> None:
    written = secured.output()
    for secret in (*SECRETS, SCRAM_PASSWORD, "stored_key", "user_alice"):
        assert secret not in written
    admin = AdminClient(as_user(secured, "admin", PLAIN_PASSWORD))
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    shown = str(admin.describe_configs([resource])[resource].result(30))
    for secret in SECRETS:
        assert secret not in shown
