"""Key and trust stores: PEM and PKCS12, told apart by their content, because `ssl.keystore.type`
says JKS by default.

A real JKS file is refused with the command that converts it.  A private key is decrypted in memory
alone: OpenSSL reads keys from files only, so it is handed over encrypted, under a password that was
drawn for this one time (`tls`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key, pkcs12

_JAVA = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_HEADED = re.compile(r"^[A-Za-z0-9-]+:", re.MULTILINE)


class StoreError(ValueError):
    """A store that cannot be used: "problem; remedy", without a secret."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key and its chain of certificates, its own first."""

    key: PrivateKeyTypes = field(repr=False)
    chain: Sequence[x509.Certificate]


def pem_identity(key: str, chain: str, password: bytes | None) -> Identity:
    """The identity in two PEM texts, which may be the same text; raises StoreError."""
    certificates = _certificates(chain)
    if not certificates:
        raise StoreError("it holds no certificate; give a PEM text with the key's chain")
    blocks = [block for label, block in _blocks(key) if label.endswith("PRIVATE KEY")]
    if not blocks:
        raise StoreError("it holds no private key; give a PEM text with one")
    try:
        loaded = load_pem_private_key(blocks[0], password)
    except TypeError as exc:
        if password is None:
            raise StoreError("its private key is encrypted; set ssl.key.password") from exc
        loaded = load_pem_private_key(blocks[0], None)  # a password that is not needed
    except ValueError as exc:
        problem = "its private key cannot be read; check ssl.key.password"
        raise StoreError(problem) from exc
    return _matching(loaded, certificates)


def read_identity(
    data: bytes, path: str, password: bytes | None, key_password: bytes | None
) -> Identity:
    """A key store's key and chain; raises StoreError."""
    if _is_pem(data, path):
        text = data.decode(errors="replace")
        return pem_identity(text, text, key_password)
    store = _pkcs12(data, path, password, "ssl.keystore.password")
    if store.key is None or store.cert is None:
        raise StoreError("it holds no private key with a certificate; use the store with the key")
    others = [entry.certificate for entry in store.additional_certs]
    return _matching(store.key, _chain(store.cert.certificate, others))


def read_authorities(data: bytes, path: str, password: bytes | None) -> list[x509.Certificate]:
    """A trust store's certificates; raises StoreError."""
    if _is_pem(data, path):
        return pem_authorities(data.decode(errors="replace"))
    store = _pkcs12(data, path, password, "ssl.truststore.password")
    own = [store.cert] if store.cert else []
    return _some([entry.certificate for entry in (*own, *store.additional_certs)])


def pem_authorities(text: str) -> list[x509.Certificate]:
    return _some(_certificates(text))


def _some(found: list[x509.Certificate]) -> list[x509.Certificate]:
    if not found:
        raise StoreError("it holds no certificate; add the authority's")
    return found


def _is_pem(data: bytes, path: str) -> bool:
    """Tells the format; raises StoreError for what is neither PEM nor, by its start, PKCS12."""
    if data.startswith(_JAVA):
        raise StoreError(
            "a JKS file, which Java alone reads; convert it: keytool -importkeystore "
            f"-srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12"
        )
    if b"-----BEGIN " in data:
        return True
    if data[:1] != b"\x30":
        raise StoreError("neither PEM nor PKCS12; give a file in one of these formats")
    return False


def _pkcs12(
    data: bytes, path: str, password: bytes | None, password_name: str
) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(data, password)
    except ValueError as exc:
        problem = "a PKCS12 file that this password does not open" if password else "no password"
        raise StoreError(f"{problem}; check {password_name}") from exc


def _blocks(text: str) -> Iterator[tuple[str, bytes]]:
    """Label and PEM of each block; white space within may be anything, as in a property's value."""
    for match in _PEM.finditer(text):
        label, body = match[1], match[2]
        if _HEADED.search(body.strip()):  # an old encrypted key, whose headers need their lines
            yield label, match[0].encode()
            continue
        base64 = "".join(body.split())
        lines = [base64[i : i + 64] for i in range(0, len(base64), 64)]
        pem = [f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""]
        yield label, "\n".join(pem).encode()


def _certificates(text: str) -> list[x509.Certificate]:
    try:
        return [
            x509.load_pem_x509_certificate(pem)
            for label, pem in _blocks(text)
            if label == "CERTIFICATE"
        ]
    except ValueError as exc:
        raise StoreError("a certificate in it cannot be read; check its PEM text") from exc


def _chain(first: x509.Certificate, others: list[x509.Certificate]) -> list[x509.Certificate]:
    """The certificate and its issuers, in order, as far as the store has them."""
    chain, left = [first], list(others)
    while (last := chain[-1]).issuer != last.subject:
        issuer = next((c for c in left if c.subject == last.issuer), None)
        if issuer is None:
            break
        left.remove(issuer)
        chain.append(issuer)
    return chain


def _matching(key: object, chain: Sequence[x509.Certificate]) -> Identity:
    private = cast("PrivateKeyTypes", key)
    if private.public_key() != chain[0].public_key():
        raise StoreError("the key is not that of the first certificate; put its own chain there")
    return Identity(private, chain)
