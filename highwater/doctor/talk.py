"""One connection to a broker, made step by step, so that each failure has its own explanation.

It uses blocking sockets of the standard library with a time-out, because the doctor sends one
request after another.  It can log in by PLAIN and SCRAM, and does not try other mechanisms.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from highwater.kafka.security.jaas import JaasError, parse_jaas
from highwater.kafka.wire.codec import decode_response, encode_request
from highwater.kafka.wire.messages import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

TIMEOUT_S = 5.0
MOST_BYTES = 64 << 20
CLIENT_ID = "highwater-doctor"
SPEAKS_TLS = "the listener speaks TLS"
API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 2, 1, 0
_CA = ("ssl.ca.location", "ssl.cafile", "ssl.truststore.location")
_CERTIFICATE = ("ssl.certificate.location", "ssl.certfile", "ssl.keystore.location")
_KEY = ("ssl.key.location", "ssl.keyfile")


class Unreachable(Exception):
    """A step failed; has the reason, and what to do about it."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.why, self.remedy = why, remedy


def _jaas_options(text: str) -> Mapping[str, str]:
    """The options of a JAAS entry; empty if the text is none, which `rules.security` reports."""
    try:
        return parse_jaas(text).options
    except JaasError:
        return {}


@dataclass(frozen=True, slots=True)
class Login:
    """The client's credentials, from its settings under Java's names."""

    protocol: str
    mechanism: str
    username: str
    password: str
    files: Mapping[str, str]
    check_name: bool

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Login:
        jaas = _jaas_options(given.get("sasl.jaas.config", ""))
        name = given.get("sasl.username") or given.get("sasl.plain.username")
        secret = given.get("sasl.password") or given.get("sasl.plain.password")
        return cls(
            given.get("security.protocol", "PLAINTEXT").upper(),
            given.get("sasl.mechanism", "").upper(),
            name or jaas.get("username", ""),
            secret or jaas.get("password", ""),
            given,
            given.get("ssl.endpoint.identification.algorithm", "https").lower() == "https",
        )

    @property
    def tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    def file(self, names: tuple[str, ...]) -> str | None:
        return next((self.files[name] for name in names if self.files.get(name)), None)


def connect(host: str, port: int) -> socket.socket:
    """Resolves and connects; raises Unreachable."""
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Unreachable(
            f"the name {host} is unknown here ({error.strerror or error})",
            "a name that this machine resolves: correct the address, DNS, or /etc/hosts",
        ) from None
    wrong: OSError | None = None
    for family, kind, protocol, _, address in places:
        sock = socket.socket(family, kind, protocol)
        sock.settimeout(TIMEOUT_S)
        try:
            sock.connect(address)
        except OSError as error:
            sock.close()
            wrong = error
        else:
            return sock
    if isinstance(wrong, ConnectionRefusedError):
        raise Unreachable(
            f"nothing listens on {host}:{port}",
            "start the broker, or correct the port; in a container, publish it",
        )
    if isinstance(wrong, TimeoutError):
        raise Unreachable(
            f"it does not answer within {TIMEOUT_S:.0f} s",
            "a firewall, or an address of another network: ask from inside of that network",
        )
    raise Unreachable(f"no connection: {wrong}", "the network between here and there")


class Talk:
    """An open connection to a broker that has answered ApiVersions."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._number = 0
        self.versions: dict[int, tuple[int, int]] = {}

    def close(self) -> None:
        self._sock.close()

    def ask(self, request: Any, version: int) -> Any:
        """One request and its answer; ConnectionError where the broker hangs up."""
        self._number += 1
        body = bytes(encode_request(request, version))
        name = CLIENT_ID.encode()
        head = struct.pack(">hhih", request.API_KEY, version, self._number, len(name)) + name
        self._sock.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        size = self._exactly(4)
        (length,) = struct.unpack(">i", size)
        if not 4 <= length <= MOST_BYTES:
            raise _strange(size + self._some())
        return decode_response(request.API_KEY, version, memoryview(self._exactly(length))[4:])

    def _exactly(self, many: int) -> bytes:
        data = b""
        while len(data) < many:
            more = self._sock.recv(many - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data

    def _some(self) -> bytes:
        try:
            return self._sock.recv(64)
        except OSError:
            return b""


def _strange(data: bytes) -> Unreachable:
    """An error that names the protocol of a peer that does not speak Kafka's."""
    if data.startswith(b"HTTP"):
        return Unreachable("a web server answers there", "the port of Kafka, not of its console")
    if data[:2] in (b"\x15\x03", b"\x16\x03"):
        return Unreachable(SPEAKS_TLS, "security.protocol=SSL or SASL_SSL")
    return Unreachable(f"what answers there is no broker: {data[:16]!r}", "correct the port")


def open_talk(host: str, port: int, login: Login) -> Talk:
    """Connects, shakes hands and logs in as the client would; raises Unreachable."""
    sock = connect(host, port)
    try:
        if login.tls:
            sock = _wrap(sock, host, login)
        talk = Talk(sock)
        try:
            answer = talk.ask(_versions(), API_VERSIONS)
        except TimeoutError:
            raise _silent(sock) from None
        except OSError:
            raise _hung_up(host, port, login) from None
        talk.versions = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}
        if login.sasl:
            _log_in(talk, login)
    except BaseException:
        sock.close()
        raise
    return talk


def _hung_up(host: str, port: int, login: Login) -> Unreachable:
    """An error for a broker that closes the connection at the first request: usually it expects
    TLS."""
    if not login.tls and speaks_tls(host, port):
        wanted = "SASL_SSL" if login.sasl else "SSL (or SASL_SSL)"
        return Unreachable(SPEAKS_TLS, f"security.protocol={wanted}")
    return Unreachable(
        "it closes the connection at the first request",
        "if that is ZooKeeper's port or a proxy's, use the broker's",
    )


def _silent(sock: socket.socket) -> Unreachable:
    """An error for a peer that sends nothing; a line is sent, because a web server answers that."""
    try:
        sock.sendall(b"\r\n\r\n")
        if (data := sock.recv(64)).startswith(b"HTTP") or b"<html" in data.lower():
            return _strange(b"HTTP")
    except OSError:
        pass
    return Unreachable(
        "it accepts the connection and does not answer",
        "a port that forwards to nothing, or a broker that stands still",
    )


def speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with connect(host, port) as sock, context.wrap_socket(sock):
            return True
    except ssl.SSLError as error:
        return "alert" in str(error).lower()  # an alert refuses us, but in TLS
    except (OSError, Unreachable):
        return False


def _wrap(sock: socket.socket, host: str, login: Login) -> socket.socket:
    context = ssl.create_default_context()
    context.check_hostname = login.check_name
    authority = login.file(_CA)
    if authority is not None:
        _load(context, authority)
    certificate, key = login.file(_CERTIFICATE), login.file(_KEY)
    if certificate is not None and b"-----BEGIN" in _bytes(certificate):
        try:
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise Unreachable(
                f"{certificate}: {error}", "the client's certificate and key"
            ) from None
    place = sock.getpeername()[:2]
    try:
        return context.wrap_socket(sock, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise _untrusted(error, host, authority) from None
    except ssl.SSLError as error:
        plain = "WRONG_VERSION_NUMBER" in str(error) or "record layer" in str(error)
        # a listener that takes the handshake for a frame of 350 MB closes the connection
        if plain or ("UNEXPECTED_EOF" in str(error) and _speaks_plainly(*place)):
            raise _no_tls(login) from None
        raise Unreachable(f"the TLS handshake fails: {error.reason or error}") from None
    except OSError:
        if _speaks_plainly(*place):
            raise _no_tls(login) from None
        raise Unreachable(
            "the broker does not finish the TLS handshake",
            "a certificate of yours, if it asks for one (ssl.client.auth=required); else TLS's"
            " version",
        ) from None


def _no_tls(login: Login) -> Unreachable:
    wanted = "SASL_PLAINTEXT" if login.sasl else "PLAINTEXT"
    return Unreachable("the listener does not speak TLS", f"security.protocol={wanted}")


def _speaks_plainly(host: str, port: int) -> bool:
    try:
        with connect(host, port) as sock:
            return bool(Talk(sock).ask(_versions(), API_VERSIONS).api_keys)
    except (OSError, Unreachable):
        return False


def _versions() -> Any:
    return ApiVersionsRequest(client_software_name="", client_software_version="")


def _untrusted(
    error: ssl.SSLCertVerificationError, host: str, authority: str | None
) -> Unreachable:
    if "mismatch" in error.verify_message or "doesn't match" in error.verify_message:
        return Unreachable(
            f"the broker's certificate is not for {host}",
            "the name that the certificate bears (subjectAltName), or a certificate with this one",
        )
    remedy = "the authority that signed the broker's certificate: ssl.truststore.location"
    if authority is not None:
        remedy = f"{authority} holds another authority, or the certificate's time is over"
    return Unreachable(f"the broker's certificate is refused: {error.verify_message}", remedy)


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Unreachable(f"{path}: {error.strerror}", "correct the path") from None


def _load(context: ssl.SSLContext, authority: str) -> None:
    if b"-----BEGIN" not in _bytes(authority):
        raise Unreachable(
            f"{authority} is a key store, and the doctor reads PEM",
            "keytool -exportcert -rfc, and name that file for this check",
        )
    try:
        context.load_verify_locations(authority)
    except ssl.SSLError as error:
        raise Unreachable(f"{authority}: {error}", "a PEM file with certificates") from None


def _log_in(talk: Talk, login: Login) -> None:
    try:
        shake = talk.ask(SaslHandshakeRequest(mechanism=login.mechanism), SASL_HANDSHAKE)
    except OSError:
        raise Unreachable(
            "the broker hangs up at SASL",
            f"security.protocol={login.protocol.removeprefix('SASL_')}",
        ) from None
    known = ", ".join(shake.mechanisms)
    if shake.error_code:
        if not shake.mechanisms:
            raise Unreachable(
                "the listener knows no SASL",
                f"security.protocol={login.protocol.removeprefix('SASL_')}",
            )
        raise Unreachable(
            f"the broker does not know the mechanism {login.mechanism or '(none is set)'}",
            f"sasl.mechanism: one of {known}",
        )
    if login.mechanism == "PLAIN":
        _send(talk, f"\0{login.username}\0{login.password}".encode(), login)
    elif login.mechanism.startswith("SCRAM-"):
        _scram(talk, login)
    else:
        raise Unreachable(f"the doctor does not speak {login.mechanism}: no more is checked")


def _send(talk: Talk, data: bytes, login: Login) -> bytes:
    try:
        answer = talk.ask(SaslAuthenticateRequest(auth_bytes=data), SASL_AUTHENTICATE)
    except OSError:
        answer = None
    if answer is None or answer.error_code:
        said = answer.error_message if answer is not None else "the connection is closed"
        raise Unreachable(
            f"the broker refuses user {login.username or '(none is set)'}: {said}",
            "user and password; with SCRAM, the credentials of that mechanism (kafka-configs)",
        )
    return bytes(answer.auth_bytes or b"")


def _scram(talk: Talk, login: Login) -> None:
    from scramp import ScramClient, ScramException

    client = ScramClient([login.mechanism], login.username, login.password)
    try:
        first = _send(talk, client.get_client_first().encode(), login)
        client.set_server_first(first.decode())
        client.set_server_final(_send(talk, client.get_client_final().encode(), login).decode())
    except ScramException as error:
        raise Unreachable(
            f"SCRAM with user {login.username} fails: {error}", "user and password"
        ) from None
