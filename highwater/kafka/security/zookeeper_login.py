"""How a broker reaches ZooKeeper: as which user, over TLS or not, and whose its znodes are.

Kafka's brokers have no property for the user.  They take it from the section `Client` of a JAAS
file that Java is told of, mostly by KAFKA_OPTS=-Djava.security.auth.login.config=FILE; so a
start script that serves Apache Kafka serves here.  ZooKeeper's SASL is DIGEST-MD5 for such users.

Sources: org.apache.kafka.common.security.JaasUtils, kafka.zk.ZkData.defaultAcls,
org.apache.zookeeper.client.ZKClientConfig.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from highwater.kafka.config.checks import ConfigError
from highwater.kafka.config.property_row import text_of
from highwater.kafka.config.property_table import BROKER
from highwater.kafka.security.jaas import DIGEST, JaasError, Login, parse_jaas_file
from highwater.kafka.security.settings import ListenerSettings
from highwater.world.zookeeper_link import Access, ZooKeeperLink

if TYPE_CHECKING:
    import ssl

    from highwater.kafka.config import Config
    from highwater.world.api import Disk

OPTIONS = "KAFKA_OPTS"
_FILE = "java.security.auth.login.config"
_SECTION = "zookeeper.sasl.clientconfig"
_WANTED = "zookeeper.sasl.client"
_OPTION = re.compile(r"-D([^=]+)=(.*)", re.DOTALL)
SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Znodes with secrets, which only the brokers' own user may read."""
CONSUMERS = "/consumers"
"""Left to everybody, as old consumers write there."""


def kafkas_access(path: str) -> Access:
    """Under zookeeper.set.acl."""
    if path == CONSUMERS:
        return Access.OPEN
    return Access.OWN if path.startswith(SENSITIVE) else Access.SHOWN


def link_to_zookeeper(config: Config, environment: Mapping[str, str], disk: Disk) -> ZooKeeperLink:
    """The link that these properties and the JAAS file named by the environment describe; raises
    ConfigError."""
    settings = _Settings(config.originals, "ZooKeeper", "SSL")
    login = _login(environment, disk)
    tls = _tls(settings, disk)
    # like Kafka, which takes a client's certificate for a user that can own znodes
    known = login is not None or (tls is not None and settings.get("ssl.keystore.location"))
    if config.zookeeper_set_acl and not known:
        raise settings.wrong_at(
            "zookeeper.set.acl",
            "nobody would own the znodes, as this broker does not log in to ZooKeeper",
            f"set {OPTIONS}=-D{_FILE}=FILE with a section Client, or zookeeper.ssl.keystore.*",
            "true",
        )
    user, password = ("", "") if login is None else _credentials(login)
    link = ZooKeeperLink(user, password, tls)
    return replace(link, access=kafkas_access) if config.zookeeper_set_acl else link


_NAMES = {
    "ssl.keystore.location": "zookeeper.ssl.keystore.location",
    "ssl.keystore.password": "zookeeper.ssl.keystore.password",
    # Java has one password for a PEM store and the key in it
    "ssl.key.password": "zookeeper.ssl.keystore.password",
    "ssl.truststore.location": "zookeeper.ssl.truststore.location",
    "ssl.truststore.password": "zookeeper.ssl.truststore.password",
    "ssl.endpoint.identification.algorithm": "zookeeper.ssl.endpoint.identification.algorithm",
    "ssl.enabled.protocols": "zookeeper.ssl.enabled.protocols",
}


class _Settings(ListenerSettings):
    """The link's settings in the form that `tls` needs for a listener; stores cannot be texts."""

    def name(self, prop: str) -> str:
        return _NAMES.get(prop, prop)

    def get(self, prop: str) -> str:
        name = self.name(prop)
        if not name.startswith("zookeeper."):
            return ""
        value = self._given.get(name)
        return (text_of(BROKER[name].default) if value is None else value).strip()

    def items(self, prop: str) -> list[str]:
        return super().items(prop) or [self.get("zookeeper.ssl.protocol")]


def _tls(settings: _Settings, disk: Disk) -> ssl.SSLContext | None:
    if settings.get("zookeeper.ssl.client.enable").lower() != "true":
        return None
    from highwater.kafka.security.tls import client_context

    return client_context(settings, disk)


def _login(environment: Mapping[str, str], disk: Disk) -> Login | None:
    """The entry of the JAAS file for ZooKeeper; None where nothing names a file or a section."""
    options = _java_options(environment.get(OPTIONS, ""))
    path = options.get(_FILE, "")
    if not path or options.get(_WANTED, "true").lower() == "false":
        return None
    section = options.get(_SECTION, "Client")
    where = f"{OPTIONS}: -D{_FILE}={path}"
    try:
        sections = parse_jaas_file(disk.read_all(path).decode())
    except OSError as exc:
        problem = exc.strerror or str(exc)
        raise ConfigError([f"{where}: {problem}; name a file that can be read"]) from exc
    except (JaasError, UnicodeDecodeError) as exc:
        problem = str(exc) if isinstance(exc, JaasError) else "not a text; give a JAAS file"
        raise ConfigError([f"{where}: {problem}"]) from exc
    if section not in sections:
        return None
    login = sections[section]
    if login.module != DIGEST:
        told = f"{where}: {section} has {login.module}, and users log in by digest here"
        raise ConfigError([f"{told}; use {DIGEST}"])
    if not all(_credentials(login)):
        told = f"{where}: {section} lacks a user or a password"
        raise ConfigError([f'{told}; give username="…" and password="…"'])
    return login


def _credentials(login: Login) -> tuple[str, str]:
    return login.options.get("username", ""), login.options.get("password", "")


def _java_options(text: str) -> dict[str, str]:
    try:
        words = shlex.split(text)
    except ValueError as exc:
        raise ConfigError([f"{OPTIONS}: {str(exc).lower()}; check its quotes"]) from exc
    found = (_OPTION.fullmatch(word) for word in words)
    return {match[1]: match[2] for match in found if match}
