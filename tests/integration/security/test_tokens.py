"""OAUTHBEARER from end to end: librdkafka, kafka-python and Java, with good tokens and bad ones."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from highwater.kafka.security.jaas import OAUTH
from tests.integration.security.conftest import Secured, Signer
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
TOPIC = "by-token"


def by_token(secured: Secured, make: Callable[[], str], lasts_s: float = 300) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured.bootstrap("TOKENS"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(secured.authority.trust),
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (make(), time.time() + lasts_s),
    }


def test_librdkafka_with_signed_tokens_over_their_end(secured: Secured) -> None:
    """Tokens of five seconds: the client gets new ones and authenticates again."""
    tokens: list[str] = []
    lost: list[str] = []

    def make() -> str:
        tokens.append(secured.signer.token("carol", 5))
        return tokens[-1]

    config = by_token(secured, make, 5) | {"error_cb": lambda error: lost.append(str(error))}
    admin = AdminClient(config)
    admin.poll(0)
    admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(30)
    producer = Producer(config | {"acks": "all"})
    began = time.monotonic()

    def written() -> bool:
        producer.produce(TOPIC, b"x")
        assert producer.flush(10) == 0
        return time.monotonic() - began > 8

    eventually(written, "more than one token's time has gone by", lambda: lost, 30)
    # a session renewed twice within a second is refused, as by Kafka: the client connects again
    assert [line for line in lost if "invalid_token" in line] == []
    assert len(tokens) >= 3
    written_down = secured.output()
    assert [token for token in tokens if token.rpartition(".")[2] in written_down] == []


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda signer: signer.token("carol", -120), "the token expired 120 s ago"),
        (lambda signer: signer.token("carol", aud="else"), "the token does not count: Audience"),
        (lambda signer: signer.token("carol", iss="you"), "the token does not count: Invalid issu"),
    ],
    ids=["expired", "another audience", "another issuer"],
)
def test_librdkafka_with_a_token_that_does_not_count(
    secured: Secured, make: Callable[[Signer], str], why: str
) -> None:
    told: list[str] = []
    token = make(secured.signer)
    config = by_token(secured, lambda: token) | {"error_cb": lambda error: told.append(str(error))}
    client = AdminClient(config)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=1)

    def said() -> bool:
        client.poll(0.1)
        return any("invalid_token" in line for line in told)

    eventually(said, "the client says why", lambda: told, 15)
    assert f"authentication by OAUTHBEARER failed: {why}" in secured.output()
    assert token.rpartition(".")[2] not in secured.output()


def test_a_token_of_a_foreign_key(secured: Secured, tmp_path: Path) -> None:
    foreign = Signer(tmp_path)
    client = AdminClient(by_token(secured, lambda: foreign.token("admin")))
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)
    assert "the token does not count: Signature verification failed" in secured.output()


class Provider(AbstractTokenProvider):
    def __init__(self, text: str) -> None:
        self.text = text

    def token(self) -> str:
        return self.text


def test_kafka_python(secured: Secured) -> None:
    common = {
        "bootstrap_servers": secured.bootstrap("TOKENS"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(secured.authority.trust),
        "sasl_mechanism": "OAUTHBEARER",
    }
    good = Provider(secured.signer.token("dave"))
    producer = KafkaProducer(**common, sasl_oauth_token_provider=good, acks="all")
    assert producer.send("by-python", b"x").get(30).offset == 0
    producer.close()
    late = Provider(secured.signer.token("dave", -500))
    with pytest.raises(KafkaError):
        KafkaProducer(**common, sasl_oauth_token_provider=late, bootstrap_timeout_ms=2000)
    assert "the token expired 500 s ago" in secured.output()


def test_unsecured_tokens_of_librdkafka(secured: Secured) -> None:
    config = {
        "bootstrap.servers": secured.bootstrap("UNSIGNED"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": True,
        "sasl.oauthbearer.config": "principal=erin lifeSeconds=60",
    }
    producer = Producer(config | {"acks": "all"})
    producer.produce("unsigned", b"x")
    assert producer.flush(30) == 0
    consumer = Consumer(config | {"group.id": "unsigned", "auto.offset.reset": "earliest"})
    consumer.subscribe(["unsigned"])
    eventually(lambda: bool(consumer.consume(1, 0.5)), "the record comes back", within_s=30)
    consumer.close()
    # a listener that wants signed ones takes none of them
    tls = {"ssl.ca.location": str(secured.authority.trust), "security.protocol": "SASL_SSL"}
    with pytest.raises(KafkaException):
        AdminClient(config | tls | {"bootstrap.servers": secured.bootstrap("TOKENS")}).list_topics(
            timeout=2
        )


@pytest.mark.apache
def test_java(
    secured: Secured,
    apache_tool: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Apache Kafka's own client: a token that it makes itself, a signed one from a file, and the
    first one where signed ones are wanted."""

    def topics(listener: str, **lines: str) -> str:
        given = {"sasl.mechanism": "OAUTHBEARER", "ssl.truststore.type": "PEM"}
        given["ssl.truststore.location"] = str(secured.authority.trust)
        given |= {name.replace("_", "."): value for name, value in lines.items()}
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        where = ["--bootstrap-server", secured.bootstrap(listener), "--command-config", str(file)]
        done = apache_tool("org.apache.kafka.tools.TopicCommand", [*where, "--list"])
        return str(done.stdout + done.stderr)

    own = f'{OAUTH} required unsecuredLoginStringClaim_sub="frank";'
    topic = f"for-java-{time.time_ns()}"
    admin = AdminClient(by_token(secured, lambda: secured.signer.token("carol")))
    admin.poll(0)
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(30)
    plain = {"security_protocol": "SASL_PLAINTEXT", "sasl_jaas_config": own}
    assert topic in topics("UNSIGNED", **plain)
    told = topics("TOKENS", security_protocol="SASL_SSL", sasl_jaas_config=own)
    assert '{"status":"invalid_token"}' in told
    (tmp_path / "token").write_text(secured.signer.token("frank", scope="any"))
    place = (tmp_path / "token").as_uri()
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={place}"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", allowed)
    package = OAUTH.rpartition(".")[0]
    told = topics(
        "TOKENS",
        security_protocol="SASL_SSL",
        sasl_jaas_config=f"{OAUTH} required;",
        sasl_login_callback_handler_class=f"{package}.OAuthBearerLoginCallbackHandler",
        sasl_oauthbearer_token_endpoint_url=place,
    )
    assert topic in told
