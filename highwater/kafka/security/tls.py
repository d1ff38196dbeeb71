"""OpenSSL's contexts, made from the `ssl.*` properties of a listener.

A listener's context serves clients; the same stores serve this broker as a client of the others
(`ssl.client.auth=required` between brokers needs no second set).  On SASL_SSL listeners the general
`ssl.client.auth` does not count, only the listener's own, as in Kafka.
"""

from __future__ import annotations

import logging
import os
import secrets
import ssl
import tempfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from highwater.kafka.security.principals import PrincipalMapper
from highwater.kafka.security.stores import (
    Identity,
    StoreError,
    pem_authorities,
    pem_identity,
    read_authorities,
    read_identity,
)
from highwater.world.tls_connection import TlsConnection

if TYPE_CHECKING:
    from cryptography import x509

    from highwater.kafka.security.settings import ListenerSettings
    from highwater.world.api import Connection, Disk

log = logging.getLogger(__name__)

HANDSHAKE_S = 10.0
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class _Reloading:
    """Stores that can be read again: connections that are there keep what they began with."""

    def __init__(self, settings: ListenerSettings, disk: Disk) -> None:
        self._settings, self._disk = settings, disk
        self._context = self._made(settings, disk)

    def prepared(self, changes: Mapping[str, str]) -> Callable[[], None]:
        """Reads the stores, with these changes of the properties at the start; gives what takes
        them into use.  Raises ConfigError."""
        context = self._made(self._settings.changed(changes), self._disk)
        return lambda: setattr(self, "_context", context)

    def _made(self, settings: ListenerSettings, disk: Disk) -> ssl.SSLContext:
        raise NotImplementedError


class ServerTls(_Reloading):
    """The settings by which a listener accepts TLS; raises ConfigError."""

    def __init__(self, settings: ListenerSettings, disk: Disk) -> None:
        super().__init__(settings, disk)
        rules = "ssl.principal.mapping.rules"
        try:
            self._mapper = PrincipalMapper(settings.get(rules))
        except ValueError as exc:
            raise settings.wrong(rules, *str(exc).rsplit("; ", 1)) from exc

    def _made(self, settings: ListenerSettings, disk: Disk) -> ssl.SSLContext:
        identity = _identity(settings, disk)
        if identity is None:
            raise settings.wrong(
                "ssl.keystore.location",
                f"listener {settings.listener} speaks {settings.protocol}, which needs a key",
                "give it, or ssl.keystore.key and ssl.keystore.certificate.chain",
            )
        context = _context(ssl.PROTOCOL_TLS_SERVER, settings, identity)
        context.verify_mode = _CLIENT_AUTH[_client_auth(settings)]
        if context.verify_mode is not ssl.CERT_NONE:
            _trust(context, settings, disk, ssl.Purpose.CLIENT_AUTH)
        return context

    async def accept(self, connection: Connection) -> TlsConnection:
        """Raises OSError."""
        secured = TlsConnection(connection, self._context, server_side=True)
        await secured.handshake(HANDSHAKE_S)
        return secured

    def principal(self, secured: TlsConnection) -> str:
        """The client's, by its certificate; raises OSError where no rule is for it."""
        return self._mapper.principal(secured.certificate)


class ClientTls(_Reloading):
    """The settings by which this broker connects to others; raises ConfigError."""

    def _made(self, settings: ListenerSettings, disk: Disk) -> ssl.SSLContext:
        return client_context(settings, disk)

    async def connect(self, connection: Connection, host: str) -> TlsConnection:
        """Raises OSError."""
        secured = TlsConnection(connection, self._context, server_side=False, host=host)
        await secured.handshake(HANDSHAKE_S)
        return secured


def client_context(settings: ListenerSettings, disk: Disk) -> ssl.SSLContext:
    """The context for the connecting side; raises ConfigError."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings, _identity(settings, disk))
    context.check_hostname = bool(settings.get("ssl.endpoint.identification.algorithm"))
    _trust(context, settings, disk, ssl.Purpose.SERVER_AUTH)
    return context


def _client_auth(settings: ListenerSettings) -> str:
    name = "ssl.client.auth"
    if settings.protocol == "SASL_SSL" and settings.name(name) == name:
        if settings.get(name) != "none":
            text = "%s does not count on listener %s, which uses SASL: set %s%s"
            log.warning(text, name, settings.listener, settings.own, name)
        return "none"
    return settings.get(name)


def _context(
    side: ssl._SSLMethod, settings: ListenerSettings, identity: Identity | None
) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    versions = sorted(_VERSIONS[v] for v in settings.items("ssl.enabled.protocols"))
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if identity is not None:
        try:
            _load(context, identity)
        except ssl.SSLError as exc:
            problem = f"OpenSSL does not take this key or chain ({exc.reason})"
            raise settings.wrong("ssl.keystore.location", problem, "use a stronger one") from exc
    return context


def _load(context: ssl.SSLContext, identity: Identity) -> None:
    """Loads an identity.  OpenSSL reads keys only from files, so it gets one that is encrypted with
    a password for this one use."""
    password = secrets.token_urlsafe(32).encode()
    pem = identity.key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password)
    )
    handle, path = tempfile.mkstemp(prefix="highwater-key-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(pem + b"".join(c.public_bytes(Encoding.PEM) for c in identity.chain))
        context.load_cert_chain(path, password=password)
    finally:
        os.unlink(path)


def _trust(
    context: ssl.SSLContext, settings: ListenerSettings, disk: Disk, purpose: ssl.Purpose
) -> None:
    """Loads the trust store; without one the system's authorities are trusted, as in Java."""
    authorities = _authorities(settings, disk)
    if authorities is None:
        context.load_default_certs(purpose)
        return
    pem = b"".join(c.public_bytes(Encoding.PEM) for c in authorities)
    context.load_verify_locations(cadata=pem.decode())


def _identity(settings: ListenerSettings, disk: Disk) -> Identity | None:
    key, chain = settings.get("ssl.keystore.key"), settings.get("ssl.keystore.certificate.chain")
    location = settings.get("ssl.keystore.location")
    key_password = settings.secret("ssl.key.password")
    if key or chain:
        if not (key and chain) or location:
            missing = "ssl.keystore.key" if chain else "ssl.keystore.certificate.chain"
            remedy = "remove it" if location and key and chain else f"give {missing}, too"
            raise settings.wrong(
                "ssl.keystore.location" if location else "ssl.keystore.certificate.chain",
                "a PEM key store is a key and its chain, or a file",
                remedy,
            )
        try:
            return pem_identity(key, chain, key_password)
        except StoreError as exc:
            raise settings.wrong("ssl.keystore.key", *str(exc).rsplit("; ", 1)) from exc
    if not location:
        return None
    try:
        data, password = disk.read_all(location), settings.secret("ssl.keystore.password")
        return read_identity(data, location, password, key_password)
    except (StoreError, OSError) as exc:
        raise _unusable(settings, "ssl.keystore.location", exc) from exc


def _authorities(settings: ListenerSettings, disk: Disk) -> list[x509.Certificate] | None:
    name = "ssl.truststore.location"
    inline, location = settings.get("ssl.truststore.certificates"), settings.get(name)
    if inline:
        name = "ssl.truststore.certificates"
    try:
        if inline:
            return pem_authorities(inline)
        if not location:
            return None
        password = settings.secret("ssl.truststore.password")
        return read_authorities(disk.read_all(location), location, password)
    except (StoreError, OSError) as exc:
        raise _unusable(settings, name, exc) from exc


def _unusable(settings: ListenerSettings, name: str, exc: StoreError | OSError) -> Exception:
    if isinstance(exc, OSError):
        return settings.wrong(name, exc.strerror or str(exc), "name a file that can be read")
    return settings.wrong(name, *str(exc).rsplit("; ", 1))
