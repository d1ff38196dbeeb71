"""Certificates are renewed while brokers run, as kafka-configs does it: AlterConfigs of a
listener's key store, to the same file or to another."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from cryptography import x509

from tests.authority import Authority
from tests.integration.security.conftest import Secured
from tests.integration.security.test_secured_cluster import create_topic, files, librdkafka
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
LISTENERS = ("brokers", "control", "tls")


def admin_config(secured: Secured) -> dict[str, Any]:
    return librdkafka(secured, "TLS", security_protocol="SSL") | files(secured, "alice")


def served(secured: Secured, listener: str, broker: int) -> int:
    """The serial number of the certificate that a new connection is shown."""
    own = files(secured, "alice")
    context = ssl.create_default_context(cafile=own["ssl.ca.location"])
    context.load_cert_chain(own["ssl.certificate.location"])
    port = secured.ports[listener][broker - 1]
    with (
        socket.create_connection(("localhost", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        shown = secure.getpeercert(binary_form=True)
        assert shown is not None
        return x509.load_der_x509_certificate(shown).serial_number


def set_store(
    config: dict[str, Any],
    broker: int,
    path: Path,
    what: str = "keystore",
    listeners: tuple[str, ...] = LISTENERS,
) -> None:
    names = [f"listener.name.{name}.ssl.{what}.location" for name in listeners]
    changes = [
        ConfigEntry(name, str(path), incremental_operation=AlterConfigOpType.SET) for name in names
    ]
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=changes)
    admin = AdminClient(config)
    admin.incremental_alter_configs([resource])[resource].result(30)


def renewed(secured: Secured, broker: int) -> Path:
    """A new certificate in the broker's own file."""
    leaf = secured.authority.issue("localhost", common_name="broker")
    return secured.authority.pkcs12(leaf, f"broker-{secured.ports['TLS'][broker - 1]}.jks")


def test_certificates_are_renewed_under_load(secured: Secured) -> None:
    """Every listener of every broker, and the connections between them; nothing is lost, and a
    connection that was there goes on."""
    config = admin_config(secured)
    create_topic(config, "renewed")
    lost: list[str] = []
    producer = Producer(config | {"acks": "all", "error_cb": lambda e: lost.append(str(e))})

    def written() -> None:
        for partition in range(3):
            producer.produce("renewed", b"x", partition=partition)
        assert producer.flush(30) == 0

    written()
    for broker in (1, 2, 3):
        before = {name: served(secured, name.upper(), broker) for name in LISTENERS}
        set_store(config, broker, renewed(secured, broker))
        for name in LISTENERS:
            eventually(
                lambda name=name, broker=broker, before=before: (  # type: ignore[misc]
                    served(secured, name.upper(), broker) != before[name]
                ),
                f"{name} of broker {broker} shows the new certificate",
                secured.output,
                30,
            )
        written()
    assert lost == []
    create_topic(config, "after-renewal")  # the controller's connections, too
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    admin = AdminClient(config)
    shown = admin.describe_configs([resource])[resource].result(30)
    entry = shown["listener.name.tls.ssl.keystore.location"]
    assert entry.source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
    assert "key and trust stores were read again" in secured.output()


def test_a_store_that_cannot_be_used_is_refused(secured: Secured, tmp_path: Path) -> None:
    config = admin_config(secured)
    before = served(secured, "TLS", 1)
    (tmp_path / "broken.pem").write_text(
        "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"
    )
    with pytest.raises(KafkaException, match=r"ssl\.keystore\.location=.*cannot be read"):
        set_store(config, 1, tmp_path / "broken.pem")
    with pytest.raises(KafkaException, match="No such file or directory"):
        set_store(config, 1, tmp_path / "none.pem")
    assert served(secured, "TLS", 1) == before


def test_another_authority_of_clients(secured: Secured, tmp_path: Path) -> None:
    """A listener's trust store changes, too, and comes back."""
    config = admin_config(secured)
    foreign = Authority(tmp_path)
    path = foreign.pem(foreign.issue("a@b", common_name="mallory"), "mallory.pem")
    other = config | {"ssl.certificate.location": str(path), "ssl.key.location": str(path)}
    other["bootstrap.servers"] = f"localhost:{secured.ports['TLS'][2]}"

    def reaches() -> bool:
        try:
            AdminClient(other).list_topics(timeout=3)
        except KafkaException:
            return False
        return True

    assert not reaches()
    both = tmp_path / "both.pem"
    both.write_text(secured.authority.certificates + foreign.certificates)
    set_store(config, 3, both, "truststore")
    eventually(reaches, "a client of the other authority gets in", secured.output, 30)
    set_store(config, 3, secured.authority.trust, "truststore")
    eventually(lambda: not reaches(), "it does no longer", secured.output, 30)
