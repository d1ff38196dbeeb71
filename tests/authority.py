"""Certificates for tests: an authority of the test's own, and stores in every format."""

from __future__ import annotations

from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

PASSWORD = "store-s3cret"
Leaf = trustme.LeafCert


class Authority:
    """An authority, and files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.certificates = self.ca.cert_pem.bytes().decode()
        self.trust = self._write("trust.pem", self.ca.cert_pem.bytes())

    def issue(self, *names: str, common_name: str | None = None) -> Leaf:
        return self.ca.issue_cert(*names, common_name=common_name, key_type=trustme.KeyType.ECDSA)

    def pem(self, leaf: Leaf, name: str, *, password: str | None = None) -> Path:
        """One file with key and chain."""
        return self._write(name, (key_pem(leaf, password) + chain_pem(leaf)).encode())

    def pkcs12(self, leaf: Leaf, name: str) -> Path:
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        assert isinstance(key, EllipticCurvePrivateKey)
        own, *others = x509.load_pem_x509_certificates(chain_pem(leaf).encode())
        encryption = BestAvailableEncryption(PASSWORD.encode())
        data = pkcs12.serialize_key_and_certificates(
            b"broker", key, own, others or None, encryption
        )
        return self._write(name, data)

    def trust_pkcs12(self, name: str) -> Path:
        authority = x509.load_pem_x509_certificate(self.ca.cert_pem.bytes())
        encryption = BestAvailableEncryption(PASSWORD.encode())
        data = pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(authority, b"ca")], encryption
        )
        return self._write(name, data)

    def _write(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path


def key_pem(leaf: Leaf, password: str | None = None) -> str:
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


def chain_pem(leaf: Leaf) -> str:
    return "".join(pem.bytes().decode() for pem in leaf.cert_chain_pems)
