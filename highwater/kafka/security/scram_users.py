"""SCRAM credentials: in ZooKeeper's /config/users as Kafka writes them, and in a broker's memory.

A user's znode has one value for each mechanism: `salt=…,stored_key=…,server_key=…,iterations=…`, in
base64.  No password is stored, nor can one be found from these; they are secrets all the same.

Source: org.apache.kafka.common.security.scram.internals.ScramCredentialUtils, ScramFormatter.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import NamedTuple

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""The number of a mechanism in requests -> its name."""
HASHES = {"SCRAM-SHA-256": hashlib.sha256, "SCRAM-SHA-512": hashlib.sha512}
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
_FIELDS = ("salt", "stored_key", "server_key", "iterations")


class Credential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Credential({self.iterations} iterations)"


def derived(mechanism: str, salt: bytes, salted_password: bytes, iterations: int) -> Credential:
    """The credential for the salted password that a client sends in AlterUserScramCredentials."""
    hash_ = HASHES[mechanism]
    client_key = hmac.new(salted_password, b"Client Key", hash_).digest()
    server_key = hmac.new(salted_password, b"Server Key", hash_).digest()
    return Credential(salt, hash_(client_key).digest(), server_key, iterations)


def encode_credential(credential: Credential) -> str:
    salt, stored, server, iterations = credential
    parts = [b64encode(part).decode() for part in (salt, stored, server)]
    return ",".join(
        f"{name}={text}" for name, text in zip(_FIELDS, (*parts, str(iterations)), strict=True)
    )


def decode_credential(text: str) -> Credential:
    """Raises ValueError, which does not show the text."""
    found = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        if set(found) != set(_FIELDS):
            raise ValueError
        salt, stored, server = (b64decode(found[name], validate=True) for name in _FIELDS[:3])
        return Credential(salt, stored, server, int(found["iterations"]))
    except ValueError:
        raise ValueError("a SCRAM credential that is not in Kafka's form") from None


class ScramUsers:
    """The users' credentials as this broker knows them; follows /config/changes."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Credential] = {}

    def configured(self, user: str, properties: Mapping[str, str]) -> None:
        """Takes a user's whole configuration; raises ValueError and takes the rest all the same."""
        wrong: ValueError | None = None
        for mechanism in MECHANISMS.values():
            self._known.pop((mechanism, user), None)
            if mechanism in properties:
                try:
                    found = decode_credential(properties[mechanism])
                    self._known[mechanism, user] = found
                except ValueError as exc:
                    wrong = exc
        if wrong is not None:
            raise wrong

    def get(self, mechanism: str, user: str) -> Credential | None:
        return self._known.get((mechanism, user))
