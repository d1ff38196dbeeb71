"""Properties that ask for what is not built: security, the migration to KRaft, tiered storage.

A broker that passed over an authorizer or a key store would be open to everyone, against the will
of whoever configured it.  So each of these properties is accepted with Kafka's default alone; any
other value stops the start, and none can be set while a broker runs.  This holds for a listener's
own form, too (`listener.name.N.ssl.…`, `listener.name.N.MECHANISM.sasl.…`).

Source: the defaults of org.apache.kafka.common.config.internals.BrokerSecurityConfigs, SslConfigs,
SaslConfigs, DelegationTokenManagerConfigs, PasswordEncoderConfigs, ZkConfigs; `super.users` belongs
to AclAuthorizer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from highwater.kafka.config.checks import HIDDEN, complaint

_AUTHORIZATION = "authorization is not built yet, so that every client could do everything"
_TLS = "TLS is not built yet"
_SASL = "SASL is not built yet"
_PROTOCOL = "brokers speak PLAINTEXT alone"
_TOKENS = "delegation tokens are not built yet"
_PASSWORDS = "the encoding of dynamic passwords is not built yet"
_ZOOKEEPER_TLS = "TLS towards ZooKeeper is not built yet"
_ZOOKEEPER_ACL = "ACLs of znodes are not built yet"
_POLICY = "policies of this kind are Java classes, which cannot be loaded"
_MIGRATION = "the migration to KRaft is not built"
_TIERED = "tiered storage is not built"

_FAMILIES: Mapping[str, str] = {
    "ssl.": _TLS,
    "sasl.": _SASL,
    "delegation.token.": _TOKENS,
    "password.encoder.": _PASSWORDS,
    "zookeeper.ssl.": _ZOOKEEPER_TLS,
}
"""By its beginning every name of these asks for the same, an engine's or a login's own included."""

_OTHERS: Mapping[str, str] = {
    "authorizer.class.name": _AUTHORIZATION,
    "super.users": _AUTHORIZATION,
    "principal.builder.class": _AUTHORIZATION,
    "security.inter.broker.protocol": _PROTOCOL,
    "security.providers": _TLS,
    "connections.max.reauth.ms": _SASL,
    "create.topic.policy.class.name": _POLICY,
    "alter.config.policy.class.name": _POLICY,
    "zookeeper.clientCnxnSocket": _ZOOKEEPER_TLS,
    "zookeeper.set.acl": _ZOOKEEPER_ACL,
    "zookeeper.metadata.migration.enable": _MIGRATION,
    "remote.log.storage.system.enable": _TIERED,
}

_DEFAULTS: Mapping[str, str] = {
    "principal.builder.class": (
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    ),
    "security.inter.broker.protocol": "PLAINTEXT",
    "connections.max.reauth.ms": "0",
    "zookeeper.set.acl": "false",
    "zookeeper.metadata.migration.enable": "false",
    "remote.log.storage.system.enable": "false",
    "ssl.allow.dn.changes": "false",
    "ssl.allow.san.changes": "false",
    "ssl.client.auth": "none",
    "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    "ssl.endpoint.identification.algorithm": "https",
    "ssl.keymanager.algorithm": "SunX509",
    "ssl.keystore.type": "JKS",
    "ssl.principal.mapping.rules": "DEFAULT",
    "ssl.protocol": "TLSv1.3",
    "ssl.trustmanager.algorithm": "PKIX",
    "ssl.truststore.type": "JKS",
    "sasl.enabled.mechanisms": "GSSAPI",
    "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
    "sasl.kerberos.min.time.before.relogin": "60000",
    "sasl.kerberos.principal.to.local.rules": "DEFAULT",
    "sasl.kerberos.ticket.renew.jitter": "0.05",
    "sasl.kerberos.ticket.renew.window.factor": "0.8",
    "sasl.login.refresh.buffer.seconds": "300",
    "sasl.login.refresh.min.period.seconds": "60",
    "sasl.login.refresh.window.factor": "0.8",
    "sasl.login.refresh.window.jitter": "0.05",
    "sasl.login.retry.backoff.max.ms": "10000",
    "sasl.login.retry.backoff.ms": "100",
    "sasl.mechanism.controller.protocol": "GSSAPI",
    "sasl.mechanism.inter.broker.protocol": "GSSAPI",
    "sasl.oauthbearer.clock.skew.seconds": "30",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "3600000",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "10000",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "100",
    "sasl.oauthbearer.scope.claim.name": "scope",
    "sasl.oauthbearer.sub.claim.name": "sub",
    "sasl.server.max.receive.size": "524288",
    "delegation.token.expiry.check.interval.ms": "3600000",
    "delegation.token.expiry.time.ms": "86400000",
    "delegation.token.max.lifetime.ms": "604800000",
    "password.encoder.cipher.algorithm": "AES/CBC/PKCS5Padding",
    "password.encoder.iterations": "4096",
    "password.encoder.key.length": "128",
    "zookeeper.ssl.client.enable": "false",
    "zookeeper.ssl.crl.enable": "false",
    "zookeeper.ssl.endpoint.identification.algorithm": "HTTPS",
    "zookeeper.ssl.ocsp.enable": "false",
    "zookeeper.ssl.protocol": "TLSv1.2",
}
"""Kafka's; any other property's is to be unset."""

_VALUES_SHOWN = frozenset((*_OTHERS, *_DEFAULTS)) | {
    "ssl.keystore.location",
    "ssl.truststore.location",
}
"""Of any other name nobody knows whether its value is a secret."""

_OF_LISTENER = re.compile(r"listener\.name\.[^.]+\.(?P<rest>.+)")
_OF_MECHANISM = re.compile(r"[^.]+\.(?P<base>sasl\..+|connections\.max\.reauth\.ms)")


@dataclass(frozen=True, slots=True)
class Unserved:
    """What a property asks for in vain: `base` is its name without a listener or a mechanism."""

    base: str
    problem: str

    @property
    def default(self) -> str:
        """Kafka's value of it; "" where it has none."""
        return _DEFAULTS.get(self.base, "")


def unserved(name: str) -> Unserved | None:
    """The property of that name, if it asks for what is not built."""
    base = name
    if of_listener := _OF_LISTENER.fullmatch(name):
        base = of_listener["rest"]
        if of_mechanism := _OF_MECHANISM.fullmatch(base):
            base = of_mechanism["base"]
    problem = _OTHERS.get(base)
    if problem is None:
        family = next((family for family in _FAMILIES if base.startswith(family)), None)
        problem = None if family is None else _FAMILIES[family]
    return None if problem is None else Unserved(base, problem)


def refused(properties: Mapping[str, str]) -> dict[str, str]:
    """By name, one line for each property that asks for what is not built; none shows a secret."""
    lines = {}
    for name, value in properties.items():
        found = unserved(name)
        if found is not None and not _same(value.strip(), found.default):
            shown = value if found.base in _VALUES_SHOWN else HIDDEN
            lines[name] = complaint(name, shown, found.problem, "remove it")
    return lines


def _same(value: str, default: str) -> bool:
    """Whether Java would read both as the same boolean, number, list or text."""
    if default in ("true", "false"):
        return value.lower() == default
    try:
        return float(value) == float(default)
    except ValueError:
        return [item.strip() for item in value.split(",")] == default.split(",")
