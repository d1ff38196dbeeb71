"""The settings of a secured cluster's clients: properties for each common library.

The folder `secure` of the cluster has users.json (passwords), authority.pem, and USER.pem (key and
certificate).  This module imports the standard library alone, because users' tests import it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from highwater.kafka.security.jaas import PLAIN, SCRAM

PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
LIBRARIES = ("librdkafka", "kafka-python", "java", "aiokafka")
ADMIN, USERS = "admin", ("admin", "alice", "bob")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class NoSuchClient(ValueError):
    """No client has this name or login; the message is one clear line."""


def encrypted(security: str) -> bool:
    return security.endswith("ssl")


def logged_in(security: str) -> bool:
    return security.startswith("sasl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a run's clients reach its cluster; plain data, for the settings of their processes."""

    bootstrap: str
    security: str = "plaintext"
    """One of PROTOCOLS."""
    secure: str = ""
    """The cluster's folder `secure`; empty with plaintext."""
    user: str = ""

    def connect(self, library: str = "librdkafka") -> dict[str, Any]:
        """The settings by which a client of this library connects."""
        how = (self.security, library, self.user, MECHANISMS[-1])
        return client_settings(Path(self.secure), self.bootstrap, *how)


def client_settings(
    folder: Path,
    bootstrap: str,
    security: str,
    library: str = "librdkafka",
    user: str = ADMIN,
    mechanism: str = "PLAIN",
) -> dict[str, Any]:
    """One client's settings, as its library names them; raises NoSuchClient.

    `folder`: the cluster's folder `secure`; `security`: one of PROTOCOLS.
    """
    if library not in LIBRARIES:
        raise NoSuchClient(f"no library {library!r}; there are {', '.join(LIBRARIES)}")
    java_like = library in ("java", "librdkafka")
    servers: dict[str, Any] = {"bootstrap.servers" if java_like else "bootstrap_servers": bootstrap}
    if security == "plaintext":
        return servers
    if mechanism not in MECHANISMS:
        raise NoSuchClient(f"no mechanism {mechanism!r}; there are {', '.join(MECHANISMS)}")
    users: dict[str, str] = json.loads((folder / "users.json").read_text())
    if user not in users:
        raise NoSuchClient(f"no user {user!r}; there are {', '.join(users)}")
    make = {"java": _java, "librdkafka": _librdkafka}.get(library, _python)
    made = servers | make(folder, security, user, users[user], mechanism)
    return _with_context(made) if library == "aiokafka" else made


def _java(folder: Path, security: str, user: str, password: str, mechanism: str) -> dict[str, Any]:
    made = {"security.protocol": security.upper()}
    if logged_in(security):
        module = PLAIN if mechanism == "PLAIN" else SCRAM
        made["sasl.mechanism"] = mechanism
        made["sasl.jaas.config"] = f'{module} required username="{user}" password="{password}";'
    if encrypted(security):
        made["ssl.truststore.type"] = "PEM"
        made["ssl.truststore.location"] = str(folder / "authority.pem")
    if security == "ssl":
        made["ssl.keystore.type"] = "PEM"
        made["ssl.keystore.location"] = str(folder / f"{user}.pem")
    return made


def _librdkafka(
    folder: Path, security: str, user: str, password: str, mechanism: str
) -> dict[str, Any]:
    made = {"security.protocol": security.upper()}
    if logged_in(security):
        made |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    if encrypted(security):
        made["ssl.ca.location"] = str(folder / "authority.pem")
    if security == "ssl":
        made["ssl.certificate.location"] = str(folder / f"{user}.pem")
        made["ssl.key.location"] = str(folder / f"{user}.pem")
    return made


def _python(
    folder: Path, security: str, user: str, password: str, mechanism: str
) -> dict[str, Any]:
    made = {"security_protocol": security.upper()}
    if logged_in(security):
        made["sasl_mechanism"] = mechanism
        made |= {"sasl_plain_username": user, "sasl_plain_password": password}
    if encrypted(security):
        made["ssl_cafile"] = str(folder / "authority.pem")
    if security == "ssl":
        made["ssl_certfile"] = made["ssl_keyfile"] = str(folder / f"{user}.pem")
    return made


def _with_context(settings: dict[str, Any]) -> dict[str, Any]:
    """Replaces the files by an `ssl.SSLContext`, which is what aiokafka takes."""
    import ssl

    authority = settings.pop("ssl_cafile", None)
    own, _ = settings.pop("ssl_certfile", None), settings.pop("ssl_keyfile", None)
    if authority is not None:
        settings["ssl_context"] = context = ssl.create_default_context(cafile=authority)
        if own is not None:
            context.load_cert_chain(own)
    return settings


def write_files(folder: Path, bootstrap: str, security: str) -> None:
    """USER.properties (Java), USER.conf (librdkafka, kcat -F) and USER.json (kafka-python)."""
    for user in USERS:
        ends = {"java": "properties", "librdkafka": "conf", "kafka-python": "json"}
        for library, end in ends.items():
            settings = client_settings(folder, bootstrap, security, library, user)
            text = json.dumps(settings, indent=1) + "\n" if end == "json" else _lines(settings)
            write(folder / f"{user}.{end}", text)


def write(path: Path, text: str) -> None:
    """A file for its owner alone."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())
