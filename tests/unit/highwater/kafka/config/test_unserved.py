"""Properties that ask for security, or for anything else that is not built: none is passed over."""

from __future__ import annotations

import pytest

from highwater.kafka.config.checks import ConfigError, is_secret
from highwater.kafka.config.sources import Loaded, load
from highwater.kafka.config.unserved import refused

ZK = "zookeeper.connect=localhost:2181\nbroker.id=1\n"


def loaded(text: str = "", environment: dict[str, str] | None = None, *flags: str) -> Loaded:
    return load([("server.properties", ZK + text)], environment, flags)


def complaints(text: str = "", environment: dict[str, str] | None = None, *flags: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(text, environment, *flags)
    return caught.value.lines


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "authorization"),
        ("super.users=User:admin", "authorization"),
        ("principal.builder.class=com.example.Builder", "authorization"),
        ("security.inter.broker.protocol=SSL", "PLAINTEXT"),
        ("ssl.client.auth=required", "TLS"),
        ("ssl.keystore.location=/etc/kafka/keystore.jks", "TLS"),
        ("ssl.endpoint.identification.algorithm=", "TLS"),
        ("sasl.enabled.mechanisms=SCRAM-SHA-512", "SASL"),
        ("connections.max.reauth.ms=60000", "SASL"),
        ("delegation.token.max.lifetime.ms=1", "delegation tokens"),
        ("zookeeper.ssl.client.enable=true", "ZooKeeper"),
        ("zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty", "ZooKeeper"),
        ("zookeeper.set.acl=true", "znodes"),
        ("zookeeper.metadata.migration.enable=true", "KRaft"),
        ("create.topic.policy.class.name=com.example.Policy", "policies"),
        ("remote.log.storage.system.enable=true", "tiered storage"),
        ("listener.name.external.ssl.client.auth=required", "TLS"),
        ("listener.name.external.sasl.enabled.mechanisms=PLAIN", "SASL"),
        ("listener.name.external.plain.connections.max.reauth.ms=1", "SASL"),
    ],
)
def test_anything_but_kafkas_default_stops_the_start(line: str, problem: str) -> None:
    [told] = complaints(line)
    assert told.startswith(f"{line}: ")
    assert problem in told
    assert told.endswith("; remove it")
    name, _, value = line.partition("=")
    assert complaints("", None, f"{name}={value}") == [told]


@pytest.mark.parametrize(
    "name",
    [
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.certificates",
        "ssl.truststore.password",
        "ssl.my.engines.own",
        "sasl.jaas.config",
        "listener.name.a.scram-sha-256.sasl.jaas.config",
        "listener.name.a.ssl.keystore.password",
        "delegation.token.master.key",
        "delegation.token.secret.key",
        "password.encoder.iterations",
        "password.encoder.secret",
        "password.encoder.old.secret",
        "zookeeper.ssl.keystore.password",
        "zookeeper.ssl.truststore.password",
    ],
)
def test_no_secret_is_shown(name: str) -> None:
    [told] = complaints(f"{name}=hunter2")
    assert told.startswith(f"{name}=[hidden]: ")
    assert "hunter2" not in told
    assert is_secret(name) or "own" in name


def test_each_property_has_a_line_and_all_come_at_once() -> None:
    text = "authorizer.class.name=A\nsuper.users=User:a\nzookeeper.set.acl=yes\nnum.io.threads=0\n"
    assert [line.partition("=")[0] for line in complaints(text)] == [
        "authorizer.class.name",
        "super.users",
        "zookeeper.set.acl",
        "num.io.threads",
    ]


def test_kafkas_defaults_are_accepted_without_a_word() -> None:
    text = """
authorizer.class.name=
super.users=
security.inter.broker.protocol=PLAINTEXT
ssl.client.auth=none
ssl.enabled.protocols=TLSv1.2, TLSv1.3
ssl.keystore.location=
sasl.enabled.mechanisms=GSSAPI
sasl.login.refresh.window.factor=0.80
sasl.server.max.receive.size=524288
delegation.token.expiry.time.ms=86400000
password.encoder.key.length=128
zookeeper.set.acl=False
zookeeper.ssl.client.enable=false
remote.log.storage.system.enable=false
listener.name.plaintext.ssl.keystore.type=JKS
listener.name.plaintext.plain.sasl.jaas.config=
"""
    assert loaded(text).warnings == ()


def test_the_environment_is_looked_at_too() -> None:
    environment = {
        "KAFKA_AUTHORIZER_CLASS_NAME": "kafka.security.authorizer.AclAuthorizer",
        "KAFKA_CFG_SUPER_USERS": "User:admin",
        "KAFKA_LISTENER_NAME_EXTERNAL_SSL_KEY_PASSWORD": "hunter2",
    }
    told = complaints("", environment)
    assert len(told) == 3
    assert "hunter2" not in "".join(told)


def test_what_a_listener_has_of_its_own_besides_security_stays_a_warning() -> None:
    [warning] = loaded("listener.name.plaintext.max.connections=5\n").warnings
    assert warning == "listener.name.plaintext.max.connections: unknown property, ignored"
    assert refused({"my.ssl.note": "x", "allow.everyone.if.no.acl.found": "true"}) == {}
