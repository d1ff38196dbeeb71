"""The fixture's secured clusters, as tests of users see them: each protocol, and link faults over
TLS."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from highwater.pytest_plugin import Chaos, Fault, FixtureError, History, Kafka, Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def send(config: dict[str, Any], topic: str, within_s: float = 30) -> list[str | None]:
    """The outcome of one record: [None] where it was acknowledged."""
    told: list[str | None] = []
    producer = Producer(config | {"acks": "all"})
    producer.produce(topic, b"x", on_delivery=lambda e, _: told.append(e and e.name()))
    producer.flush(within_s)
    return told


def nothing_secret_is_written(kafka: Kafka) -> None:
    """Passwords are in files of clients and brokers alone, which their owner alone reads."""
    passwords = json.loads((kafka.folder / "secure" / "users.json").read_text()).values()
    files = [path for path in kafka.folder.rglob("*") if path.is_file()]
    holding = [p for p in files if any(w.encode() in p.read_bytes() for w in passwords)]
    assert [p for p in holding if p.stat().st_mode & 0o077] == []
    assert {p.parent.name if p.parent.name == "secure" else p.name for p in holding} == {
        "secure",
        "server.properties",
    }
    told = [json.dumps(kafka.status())]
    for member in kafka.status()["members"].values():
        if address := member["metrics"]:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
                told.append(answer.read().decode(errors="replace"))
    told += [" ".join(of.info["cmdline"] or []) for of in psutil.process_iter(["cmdline"])]
    assert not any(word in text for word in passwords for text in told)
    assert any("kafka_" in text for text in told)


def check_clients(kafka: Kafka, topic: str, mechanism: Any) -> None:
    """Each Python library reaches the cluster by what the fixture tells it."""
    assert send(kafka.client_config(mechanism=mechanism), topic) == [None]
    python = KafkaProducer(**kafka.client_config("kafka-python", mechanism=mechanism), acks="all")
    assert python.send(topic, b"x").get(30).offset >= 0
    python.close()

    async def by_aiokafka() -> None:
        settings = kafka.client_config("aiokafka", mechanism=mechanism)
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"x")

    asyncio.run(by_aiokafka())


@pytest.mark.kafka(brokers=1, security="ssl")
def test_certificates_say_who_a_client_is(kafka: Kafka, topic: Topics) -> None:
    letters = topic("letters")
    check_clients(kafka, letters, "PLAIN")
    assert send(kafka.client_config(user="alice"), letters) == ["TOPIC_AUTHORIZATION_FAILED"]
    without = kafka.client_config()
    del without["ssl.certificate.location"], without["ssl.key.location"]
    with pytest.raises(KafkaException):
        AdminClient(without).list_topics(timeout=2)


def log_each_request(kafka: Kafka) -> None:
    """From here on the broker writes each request down."""
    admin = KafkaAdminClient(**kafka.client_config("kafka-python"))
    level = {"kafka.request.logger": "DEBUG"}
    admin.alter_configs([ConfigResource(ConfigResourceType.BROKER_LOGGER, "1", level)])
    admin.close()


@pytest.mark.kafka(brokers=1, security="sasl_plaintext")
def test_logins_without_tls(kafka: Kafka, topic: Topics, chaos: Chaos) -> None:
    log_each_request(kafka)
    letters = topic("letters")
    check_clients(kafka, letters, "SCRAM-SHA-256")
    assert send(kafka.client_config(user="alice"), letters) == ["TOPIC_AUTHORIZATION_FAILED"]
    assert "SASL_AUTHENTICATE" in (kafka.folder / "broker-1" / "output.log").read_text()
    nothing_secret_is_written(kafka)
    with chaos.hold("Produce", source="clients"):  # where messages can be seen
        assert send(kafka.client_config(), letters, within_s=1) == []


@pytest.mark.kafka(security="sasl_ssl")
def test_link_faults_reach_clients_over_tls(
    kafka: Kafka, topic: Topics, chaos: Chaos, history: History
) -> None:
    letters = topic("letters")
    check_clients(kafka, letters, "SCRAM-SHA-512")
    leader = kafka.leader(letters)
    config = kafka.client_config()
    with pytest.raises(FixtureError, match="hold: clients come over TLS, where no message"):
        chaos.hold("Produce", source="clients")
    faults: list[Callable[[], Fault]] = [
        lambda: chaos.cut("clients", leader),
        lambda: chaos.latency("clients", leader, latency_ms=50),
        lambda: chaos.reset_peer("clients", leader),
    ]
    with history.producing(letters, rate=20):
        for begin in faults:
            told: list[str | None] = []
            producer = Producer(config | {"acks": "all"})
            producer.produce(letters, b"x", on_delivery=lambda e, _, told=told: told.append(e))
            assert producer.flush(30) == 0
            with begin() as fault:
                producer.produce(letters, b"y", on_delivery=lambda e, _, told=told: told.append(e))
                left = producer.flush(1)
                assert left == (fault.name == "cut"), fault.name
            assert producer.flush(30) == 0
            assert told == [None, None]
    history.check(letters)
