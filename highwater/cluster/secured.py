"""The secured listener of `highwater up --secure`: an authority, users, and their clients' files.

Everything is in the folder `secure` of the cluster, readable by its owner alone, and stays over
restarts: `authority.pem`, `broker.pem`, `users.json`, and for each user USER.properties (Java),
USER.conf (librdkafka, and kcat -F), and USER.json (the arguments of kafka-python's clients).
The other listeners stay as they are, on 127.0.0.1: their principal is the super user ANONYMOUS.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from highwater.kafka.security.jaas import PLAIN

ADMIN, USERS = "admin", ("admin", "alice", "bob")
_VALID = datetime.timedelta(days=3650)


def properties(cluster: Path, listener: str) -> dict[str, str]:
    """Those of every broker; makes the authority and the users at the first call."""
    folder = cluster / "secure"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / "users.json").exists():
        _make_certificates(folder)
        _write(folder / "users.json", json.dumps({u: secrets.token_hex(12) for u in USERS}))
    users = _users(folder)
    options = " ".join(f'user_{user}="{password}"' for user, password in users.items())
    own = f"listener.name.{listener.lower()}."
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        own + "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        own + "plain.sasl.jaas.config": f"{PLAIN} required {options};",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
    }


def write_clients(cluster: Path, bootstrap: str) -> Path:
    """The files of each user's clients; returns their folder."""
    folder = cluster / "secure"
    authority = str(folder / "authority.pem")
    for user, password in _users(folder).items():
        java = {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN} required username="{user}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": authority,
        }
        librdkafka = {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": authority,
        }
        python = {
            "bootstrap_servers": bootstrap,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": user,
            "sasl_plain_password": password,
            "ssl_cafile": authority,
        }
        _write(folder / f"{user}.properties", _lines(java))
        _write(folder / f"{user}.conf", _lines(librdkafka))
        _write(folder / f"{user}.json", json.dumps(python, indent=1) + "\n")
    return folder


def _users(folder: Path) -> dict[str, str]:
    users: dict[str, str] = json.loads((folder / "users.json").read_text())
    return users


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _write(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _make_certificates(folder: Path) -> None:
    """An authority, whose key is not kept, and a certificate for localhost and 127.0.0.1."""
    authority, key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    issuer = _name("a Highwater cluster's authority")
    above = (
        _builder(issuer, issuer, authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    leaf = (
        _builder(_name("broker"), issuer, key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority, hashes.SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write(folder / "authority.pem", above.public_bytes(Encoding.PEM).decode())
    _write(folder / "broker.pem", (pem + leaf.public_bytes(Encoding.PEM)).decode())


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _VALID)
    )
