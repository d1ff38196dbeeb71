"""The secured listener of `highwater up --secure`: an authority, users, and their clients' files.

Everything is in the folder `secure` of the cluster, readable by its owner alone, and stays over
restarts: `authority.pem`, `broker.pem`, `users.json`, for each user a certificate USER.pem, and the
files of its clients (`client_files`).  Over SASL a user logs in by PLAIN or SCRAM, with the same
password; over SSL its certificate says who it is.
The other listeners stay as they are, on 127.0.0.1: their principal is the super user ANONYMOUS.
If the links between brokers are secured, too (`between`), a broker is the user admin there, who
logs in by PLAIN, or the super user broker, by its certificate.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from highwater.cluster.client_files import ADMIN, USERS, encrypted, logged_in, write, write_files
from highwater.kafka.security.jaas import PLAIN, SCRAM
from highwater.kafka.security.scram_arguments import ScramUser, with_password
from highwater.kafka.security.scram_users import MECHANISMS

_VALID = datetime.timedelta(days=3650)


def prepare(cluster: Path, bootstrap: str, security: str) -> Sequence[ScramUser]:
    """Writes the files of a secured cluster, but keeps its certificates and passwords if it has
    them; returns its SCRAM users."""
    if security == "plaintext":
        return ()
    folder = cluster / "secure"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not all((folder / name).exists() for name in ("users.json", f"{ADMIN}.pem")):
        _make_certificates(folder)
        write(folder / "users.json", json.dumps({u: secrets.token_hex(12) for u in USERS}))
    write_files(folder, bootstrap, security)
    if not logged_in(security):
        return ()
    return [
        with_password(user, mechanism, password)
        for user, password in _users(folder).items()
        for mechanism in MECHANISMS.values()
    ]


def properties(
    cluster: Path, listener: str, security: str, between: Sequence[str] = ()
) -> dict[str, str]:
    """The properties of every broker for the clients' listener, and for the listeners `between`
    brokers that have the same protocol."""
    folder = cluster / "secure"
    made = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS" + ";User:broker" * bool(between),
    }
    made |= _listener(folder, listener, security)
    for link in between:
        made |= _listener(folder, link, security)
        made |= _own_side(folder, link, security)
    return made


def _listener(folder: Path, listener: str, security: str) -> dict[str, str]:
    made: dict[str, str] = {}
    own = f"listener.name.{listener.lower()}."
    if encrypted(security):
        made[own + "ssl.keystore.type"] = "PEM"
        made[own + "ssl.keystore.location"] = str(folder / "broker.pem")
    if security == "ssl":
        made |= _trust(folder, own)
        made[own + "ssl.client.auth"] = "required"
        made[own + "ssl.principal.mapping.rules"] = "RULE:^CN=([^,]*).*$/$1/"
    if logged_in(security):
        made[own + "sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
        made[own + "plain.sasl.jaas.config"] = f"{PLAIN} required {_known_users(folder)};"
        for mechanism in MECHANISMS.values():
            name = f"{own}{mechanism.lower()}.sasl.jaas.config"
            made[name] = f"{SCRAM} required;"
    return made


def _own_side(folder: Path, link: str, security: str) -> dict[str, str]:
    """The properties that a broker needs to connect to others on their listener `link`."""
    made: dict[str, str] = {}
    own = f"listener.name.{link.lower()}."
    if encrypted(security):
        made |= _trust(folder, own)
    if logged_in(security):
        login = f'username="{ADMIN}" password="{_users(folder)[ADMIN]}"'
        made["sasl.mechanism.inter.broker.protocol"] = "PLAIN"
        made[own + "sasl.enabled.mechanisms"] = "PLAIN"
        jaas = f"{PLAIN} required {login} {_known_users(folder)};"
        made[own + "plain.sasl.jaas.config"] = jaas
    return made


def _trust(folder: Path, own: str) -> dict[str, str]:
    location = str(folder / "authority.pem")
    return {own + "ssl.truststore.type": "PEM", own + "ssl.truststore.location": location}


def _known_users(folder: Path) -> str:
    return " ".join(f'user_{user}="{word}"' for user, word in _users(folder).items())


def _users(folder: Path) -> dict[str, str]:
    users: dict[str, str] = json.loads((folder / "users.json").read_text())
    return users


def _make_certificates(folder: Path) -> None:
    """An authority, whose key is not kept, and certificates for 127.0.0.1 and for each user."""
    authority = ec.generate_private_key(ec.SECP256R1())
    issuer = _name("a Highwater cluster's authority")
    above = (
        _builder(issuer, issuer, authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    for name in ("broker", *USERS):
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = _builder(_name(name), issuer, key.public_key())
        if name == "broker":
            leaf = leaf.add_extension(x509.SubjectAlternativeName(names), critical=False)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        signed = leaf.sign(authority, hashes.SHA256()).public_bytes(Encoding.PEM)
        write(folder / f"{name}.pem", (pem + signed).decode())
    write(folder / "authority.pem", above.public_bytes(Encoding.PEM).decode())


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
