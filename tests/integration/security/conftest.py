"""Three secured brokers and an authority of their own, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from kazoo.client import KazooClient
from scramp import ScramMechanism

from highwater.kafka import znodes
from highwater.kafka.security.jaas import PLAIN, SCRAM
from highwater.kafka.security.scram_users import Credential, encode_credential
from tests.authority import PASSWORD, Authority
from tests.integration.robustness.rig import BrokerProcess, ZooKeeper, fresh_port

BROKERS = (1, 2, 3)
BROKER_PASSWORD, PLAIN_PASSWORD = "broker-s3cret", "plain-s3cret"
SECRETS = (PASSWORD, BROKER_PASSWORD, PLAIN_PASSWORD)


@dataclass(frozen=True)
class Secured:
    """The brokers, the authority, and the clients' files."""

    brokers: list[BrokerProcess]
    authority: Authority
    ports: dict[str, list[int]]

    def bootstrap(self, listener: str) -> str:
        return ",".join(f"localhost:{port}" for port in self.ports[listener])

    def output(self) -> str:
        return "".join(broker.output for broker in self.brokers)


def properties(authority: Authority, ports: dict[str, int]) -> dict[str, str]:
    leaf = authority.issue("localhost", common_name="broker")
    return {
        "listeners": ",".join(f"{name}://localhost:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "BROKERS:SASL_SSL,CONTROL:SSL,TLS:SSL,SASL:SASL_SSL",
        "inter.broker.listener.name": "BROKERS",
        "control.plane.listener.name": "CONTROL",
        "ssl.keystore.location": str(authority.pkcs12(leaf, f"broker-{ports['TLS']}.jks")),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": str(authority.trust),
        "ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.brokers.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.brokers.scram-sha-512.sasl.jaas.config": (
            f'{SCRAM} required username="broker" password="{BROKER_PASSWORD}";'
        ),
        "listener.name.sasl.plain.sasl.jaas.config": (
            f'{PLAIN} required user_alice="{PLAIN_PASSWORD}" user_admin="{PLAIN_PASSWORD}";'
        ),
        "listener.name.sasl.connections.max.reauth.ms": "4000",
        "listener.name.tls.ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/",
    }


def store_user(zookeeper_connect: str) -> None:
    """The brokers' user, as `kafka-configs --zookeeper` writes it before the first start."""
    made = ScramMechanism("SCRAM-SHA-512").make_auth_info(BROKER_PASSWORD)
    user = {"SCRAM-SHA-512": encode_credential(Credential(*made))}
    client = KazooClient(zookeeper_connect.partition("/")[0])
    client.start()
    try:
        path = "/" + zookeeper_connect.partition("/")[2] + znodes.config_path("users", "broker")
        client.create(path, znodes.encode_config(user), makepath=True)
    finally:
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    zookeeper = ZooKeeper(folder / "zookeeper")
    path = zookeeper.fresh_path()
    made: list[BrokerProcess] = []
    names = ("BROKERS", "CONTROL", "TLS", "SASL")
    store_user(path)
    ports: dict[str, list[int]] = {name: [] for name in names}
    try:
        for number in BROKERS:
            own = {name: fresh_port() for name in names}
            for name, port in own.items():
                ports[name].append(port)
            made.append(BrokerProcess(folder / f"broker-{number}", path, number))
            made[-1].properties |= properties(authority, own)
            made[-1].start()
        for broker in made:
            broker.serving()
        yield Secured(made, authority, ports)
    finally:
        for broker in made:
            broker.end()
        zookeeper.end()
