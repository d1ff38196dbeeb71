"""Three secured brokers and an authority of their own, for all tests of this folder."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from kazoo.client import KazooClient
from scramp import ScramMechanism

from highwater.kafka import znodes
from highwater.kafka.security.jaas import OAUTH, PLAIN, SCRAM
from highwater.kafka.security.scram_users import Credential, encode_credential
from tests.authority import PASSWORD, Authority
from tests.integration.robustness.rig import BrokerProcess, ZooKeeper, fresh_port

BROKERS = (1, 2, 3)
BROKER_PASSWORD, PLAIN_PASSWORD = "broker-s3cret", "plain-s3cret"
SECRETS = (PASSWORD, BROKER_PASSWORD, PLAIN_PASSWORD)


class Signer:
    """Signs tokens, and has a JWKS file with the key for it."""

    def __init__(self, folder: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        self.file = folder / "jwks.json"
        self.file.write_text(json.dumps({"keys": [{**public, "kid": "one"}]}))

    def token(self, user: str, lasts_s: float = 300, **claims: object) -> str:
        now = time.time()
        given = {"sub": user, "iat": now - 1000, "exp": now + lasts_s, "iss": "me", "aud": "kafka"}
        return jwt.encode(given | claims, self._key, "ES256", headers={"kid": "one"})


@dataclass(frozen=True)
class Secured:
    """The brokers, the authority, and the clients' files."""

    brokers: list[BrokerProcess]
    authority: Authority
    ports: dict[str, list[int]]
    signer: Signer

    def bootstrap(self, listener: str) -> str:
        return ",".join(f"localhost:{port}" for port in self.ports[listener])

    def output(self) -> str:
        return "".join(broker.output for broker in self.brokers)


def properties(authority: Authority, signer: Signer, ports: dict[str, int]) -> dict[str, str]:
    leaf = authority.issue("localhost", common_name="broker")
    return {
        "listeners": ",".join(f"{name}://localhost:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "BROKERS:SASL_SSL,CONTROL:SSL,TLS:SSL,SASL:SASL_SSL,"
        "TOKENS:SASL_SSL,UNSIGNED:SASL_PLAINTEXT",
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
        "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.tokens.oauthbearer.sasl.jaas.config": f"{OAUTH} required;",
        "listener.name.tokens.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": signer.file.as_uri(),
        "sasl.oauthbearer.expected.issuer": "me",
        "sasl.oauthbearer.expected.audience": "kafka",
        "listener.name.unsigned.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.unsigned.oauthbearer.sasl.jaas.config": f"{OAUTH} required;",
        "listener.name.unsigned.sasl.oauthbearer.jwks.endpoint.url": "",
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
    authority, signer = Authority(folder), Signer(folder)
    zookeeper = ZooKeeper(folder / "zookeeper")
    path = zookeeper.fresh_path()
    made: list[BrokerProcess] = []
    names = ("BROKERS", "CONTROL", "TLS", "SASL", "TOKENS", "UNSIGNED")
    store_user(path)
    ports: dict[str, list[int]] = {name: [] for name in names}
    try:
        for number in BROKERS:
            own = {name: fresh_port() for name in names}
            for name, port in own.items():
                ports[name].append(port)
            made.append(BrokerProcess(folder / f"broker-{number}", path, number))
            made[-1].properties |= properties(authority, signer, own)
            made[-1].start()
        for broker in made:
            broker.serving()
        yield Secured(made, authority, ports, signer)
    finally:
        for broker in made:
            broker.end()
        zookeeper.end()
