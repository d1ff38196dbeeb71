"""Each client by each way to log in, the errors on both sides for a bad certificate, and that no
secret was written in all of it."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kafka.errors import KafkaError

from tests.authority import Leaf, key_pem
from tests.integration.security.conftest import PLAIN_PASSWORD, SECRETS, Secured
from tests.integration.security.test_reload import admin_config, renewed, served, set_store
from tests.integration.security.test_secured_cluster import (
    SCRAM_PASSWORD,
    as_user,
    create_topic,
    create_user,
    files,
    librdkafka,
    refused,
)
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
HOUR = timedelta(hours=1)


def of_time(secured: Secured, name: str, begins: timedelta, ends: timedelta) -> Leaf:
    """A certificate that counts from `begins` to `ends`, both from now."""
    now = datetime.now(UTC)
    return secured.authority.ca.issue_cert(
        "localhost", common_name=name, not_before=now + begins, not_after=now + ends
    )


def test_aiokafka(secured: Secured) -> None:
    """Mutual TLS, SCRAM and a signed token; then a wrong password."""
    own = files(secured, "alice")
    create_user(secured, "ada")
    create_topic(as_user(secured, "admin", PLAIN_PASSWORD), "by-aiokafka")

    class Token(AbstractTokenProvider):
        async def token(self) -> str:
            return secured.signer.token("ada")

    def context() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=own["ssl.ca.location"])

    mutual = context()
    mutual.load_cert_chain(own["ssl.certificate.location"])
    scram = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "ada"}
    token = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Token()}

    async def send(listener: str, protocol: str, tls: ssl.SSLContext, **more: Any) -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=secured.bootstrap(listener), security_protocol=protocol,
            ssl_context=tls, acks="all", **more,
        )  # fmt: skip
        try:
            await producer.start()
            sent = await producer.send_and_wait("by-aiokafka", b"x", partition=0)
            return int(sent.offset)
        finally:
            await producer.stop()

    async def all_ways() -> None:
        assert await send("TLS", "SSL", mutual) == 0
        right = scram | {"sasl_plain_password": SCRAM_PASSWORD}
        assert await send("SASL", "SASL_SSL", context(), **right) == 1
        assert await send("TOKENS", "SASL_SSL", context(), **token) == 2
        wrong = scram | {"sasl_plain_password": "guess-s3cret"}
        with pytest.raises(Exception, match="bootstrap"):
            await send("SASL", "SASL_SSL", context(), **wrong)

    asyncio.run(all_ways())
    assert "authentication by SCRAM-SHA-512 failed" in secured.output()


@pytest.mark.parametrize(
    ("name", "begins", "ends", "why"),
    [
        ("late", -2 * HOUR, -HOUR, "certificate has expired"),
        ("early", HOUR, 2 * HOUR, "certificate is not yet valid"),
    ],
)
def test_a_clients_certificate_at_the_wrong_time(
    secured: Secured, name: str, begins: timedelta, ends: timedelta, why: str
) -> None:
    """Expired; and of an hour to come, as where a clock is off."""
    path = secured.authority.pem(of_time(secured, name, begins, ends), f"{name}.pem")
    own = {"ssl.certificate.location": str(path), "ssl.key.location": str(path)}
    assert "SSL" in refused(librdkafka(secured, "TLS", security_protocol="SSL") | own)
    with pytest.raises(KafkaError):
        KafkaProducer(
            bootstrap_servers=secured.bootstrap("TLS"),
            security_protocol="SSL",
            ssl_cafile=str(secured.authority.trust),
            ssl_certfile=str(path),
            bootstrap_timeout_ms=1500,
        )
    assert f"the peer's certificate is not accepted: {why}" in secured.output()


def test_a_brokers_expired_certificate(secured: Secured) -> None:
    """The client says why, and the broker's log that the client refused it."""
    config, admin = admin_config(secured), as_user(secured, "admin", PLAIN_PASSWORD)
    leaf = of_time(secured, "broker", -2 * HOUR, -HOUR)
    only = config | {"bootstrap.servers": f"localhost:{secured.ports['TLS'][2]}"}
    expired = secured.authority.pkcs12(leaf, "expired-broker.p12")
    set_store(admin, 3, expired, listeners=("tls",))
    try:
        eventually(lambda: not _accepted(secured), "the broker shows it", within_s=20)
        before = len(secured.brokers[2].output)
        assert "certificate verify failed" in refused(only)
        told = "the peer says that this certificate has expired"
        eventually(lambda: told in secured.brokers[2].output[before:], told, within_s=10)
    finally:
        set_store(admin, 3, renewed(secured, 3), listeners=("tls",))
    reached = AdminClient(only)
    eventually(lambda: bool(reached.list_topics(timeout=5).brokers), "it serves again", within_s=20)


def _accepted(secured: Secured) -> bool:
    """Whether a client of the standard library takes broker 3's certificate."""
    try:
        served(secured, "TLS", 3)
    except ssl.SSLCertVerificationError:
        return False
    return True


def test_the_wrong_host(secured: Secured) -> None:
    config = admin_config(secured)
    config["bootstrap.servers"] = f"127.0.0.1:{secured.ports['TLS'][0]}"
    assert "certificate verify failed" in refused(config)


@pytest.mark.apache
def test_java_by_mutual_tls(
    secured: Secured,
    apache_tool: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    own = files(secured, "frank")["ssl.certificate.location"]
    create_topic(admin_config(secured), "by-java-tls")
    file = tmp_path / "client.properties"

    def topics(store: str) -> str:
        file.write_text(
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
            f"ssl.truststore.location={secured.authority.trust}\nssl.keystore.location={store}\n"
        )
        where = ["--bootstrap-server", secured.bootstrap("TLS"), "--command-config", str(file)]
        done = apache_tool("org.apache.kafka.tools.TopicCommand", [*where, "--list"])
        return str(done.stdout + done.stderr)

    assert "by-java-tls" in topics(own)
    late = secured.authority.pem(of_time(secured, "late", -2 * HOUR, -HOUR), "late-java.pem")
    assert "SslAuthenticationException" in topics(str(late))


def written(secured: Secured) -> Iterable[Path]:
    """All that the brokers wrote: logs, segments, checkpoints; not the files they are given."""
    for broker in secured.brokers:
        for path in broker.folder.rglob("*"):
            if path.is_file() and path.name != "server.properties":
                yield path


def test_no_file_that_a_broker_wrote_has_a_secret(secured: Secured) -> None:
    """Passwords, guesses, keys and tokens; what was sent before this test is in the scan."""
    token = secured.signer.token("carol")
    leaf = secured.authority.issue("localhost", common_name="scanned")
    key = key_pem(leaf).splitlines()[1]
    for password in (SCRAM_PASSWORD, "guess-s3cret"):
        said = as_user(secured, "alice", password, "PLAIN")
        assert "Authentication failed" in refused(said)
    secrets = [*SECRETS, SCRAM_PASSWORD, "guess-s3cret", token.rpartition(".")[2], key]
    eventually(lambda: len(list(written(secured))) > 10, "the brokers have written", secured.output)
    found = [
        (str(path), secret)
        for path in written(secured)
        for secret in secrets
        if secret.encode() in path.read_bytes()
    ]
    assert found == []
