"""Properties that ask for security, or for anything else that is not built: none is ignored."""

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
        ("principal.builder.class=com.example.Builder", "principals"),
        ("ssl.cipher.suites=TLS_AES_256_GCM_SHA384", "TLS"),
        ("ssl.engine.factory.class=com.example.Factory", "TLS"),
        ("sasl.login.class=com.example.Login", "SASL"),
        ("sasl.server.callback.handler.class=com.example.Handler", "SASL"),
        ("zookeeper.ssl.crl.enable=true", "ZooKeeper"),
        ("zookeeper.metadata.migration.enable=true", "KRaft"),
        ("create.topic.policy.class.name=com.example.Policy", "policies"),
        ("remote.log.storage.system.enable=true", "tiered storage"),
        ("listener.name.external.ssl.cipher.suites=TLS_AES_256_GCM_SHA384", "TLS"),
        ("listener.name.external.sasl.login.class=com.example.Login", "SASL"),
        ("listener.name.external.plain.sasl.server.callback.handler.class=com.example.H", "SASL"),
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
    ("line", "words"),
    [
        ("authorizer.class.name=com.example.Authorizer", "use kafka.security.authorizer.Acl"),
        ("super.users=User:a;admin", "'admin' is not TYPE:NAME"),
        ("allow.everyone.if.no.acl.found=perhaps", "neither true nor false"),
    ],
)
def test_an_authorizer_that_is_asked_for_wrongly(line: str, words: str) -> None:
    [told] = complaints(line)
    assert words in told


@pytest.mark.parametrize(
    "name",
    [
        "ssl.my.engines.own",
        "password.encoder.secret", "password.encoder.old.secret",
        "zookeeper.ssl.engine.own.password",
    ],
)  # fmt: skip
def test_no_secret_is_shown(name: str) -> None:
    [told] = complaints(f"{name}=hunter2")
    assert told.startswith(f"{name}=[hidden]: ")
    assert "hunter2" not in told
    assert is_secret(name) or "own" in name


@pytest.mark.parametrize(
    "name",
    [
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.certificates",
        "ssl.truststore.password",
        "zookeeper.ssl.keystore.password",
        "zookeeper.ssl.truststore.password",
        "delegation.token.master.key",
        "delegation.token.secret.key",
        "sasl.jaas.config",
        "listener.name.a.ssl.keystore.password",
        "listener.name.a.scram-sha-256.sasl.jaas.config",
    ],
)
def test_no_secret_that_is_taken_is_shown(name: str) -> None:
    taken = loaded(f"{name}=hunter2")
    assert taken.config.originals[name] == "hunter2"
    assert "hunter2" not in repr(taken)
    assert is_secret(name)


def test_a_listeners_own_form_is_checked_as_the_general_one() -> None:
    text = "listener.name.a.ssl.client.auth=all\nssl.enabled.protocols=SSLv3\n"
    assert complaints(text) == [
        "listener.name.a.ssl.client.auth=all: not one of its values; "
        "use one of required, requested, none",
        "ssl.enabled.protocols=SSLv3: 'SSLv3' is not a value of it; use TLSv1.2 or TLSv1.3",
    ]


def test_each_property_has_a_line_and_all_come_at_once() -> None:
    text = (
        "authorizer.class.name=A\nsuper.users=a\nzookeeper.ssl.crl.enable=yes\nnum.io.threads=0\n"
    )
    assert [line.partition("=")[0] for line in complaints(text)] == [
        "zookeeper.ssl.crl.enable", "authorizer.class.name", "super.users", "num.io.threads",
    ]  # fmt: skip


def test_kafkas_defaults_are_accepted_without_a_word() -> None:
    text = """
authorizer.class.name=
super.users=
security.inter.broker.protocol=PLAINTEXT
ssl.client.auth=none
ssl.enabled.protocols=TLSv1.2, TLSv1.3
ssl.keystore.location=
sasl.enabled.mechanisms=GSSAPI
password.encoder.iterations=04096
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


def test_kerberos_is_kept_without_effect() -> None:
    name = "sasl.kerberos.service.name"
    taken = loaded(f"{name}=kafka\nlistener.name.a.{name}=kafka")
    assert taken.warnings == (f"without effect here: {name}",)
    assert taken.config.originals[name] == "kafka"


def test_the_environment_is_looked_at_too() -> None:
    environment = {
        "KAFKA_AUTHORIZER_CLASS_NAME": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "KAFKA_CFG_SUPER_USERS": "admin",
        "KAFKA_LISTENER_NAME_EXTERNAL_SSL_MY_OWN": "hunter2",
    }
    told = complaints("", environment)
    assert len(told) == 3
    assert "hunter2" not in "".join(told)


def test_what_a_listener_has_of_its_own_besides_security_stays_a_warning() -> None:
    [warning] = loaded("listener.name.plaintext.queued.max.requests=5\n").warnings
    assert warning == "listener.name.plaintext.queued.max.requests: unknown property, ignored"
    assert refused({"my.ssl.note": "x", "allow.everyone.if.no.acl.found": "true"}) == {}


def test_a_listeners_own_limits_of_connections_are_read_and_checked() -> None:
    name = "listener.name.plaintext.max.connection"
    read = loaded(f"{name}s=5\n{name}.creation.rate=6\n")
    assert not read.warnings
    assert read.config.max_connections > 5, "that of the whole broker stays as it is"
    [told] = complaints(f"{name}s=many\n")
    assert "not a whole number" in told
