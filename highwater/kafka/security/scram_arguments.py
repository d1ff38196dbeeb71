"""`--add-scram`: users whose SCRAM credentials are there before the first broker starts.

    SCRAM-SHA-256=[name=alice,password=alice-secret]
    SCRAM-SHA-512=[name=bob,iterations=8192,salt="MWx…",saltedpassword="BT0…"]

A value may stand in quotes, and has to where it holds a comma.  Errors show no value but the name's
and the number of iterations.

Source: kafka.tools.StorageTool.getUserScramCredentialRecord (KIP-900).
"""

from __future__ import annotations

import hashlib
import re
import secrets
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from typing import NamedTuple

from highwater.kafka.security.scram_users import (
    HASHES,
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    Credential,
    derived,
)

EXAMPLE = "SCRAM-SHA-256=[name=alice,password=…]"
_WHOLE = re.compile(r"([A-Za-z0-9-]+)=\[(.*)\]", re.DOTALL)
_PART = re.compile(r'\s*(\w+)\s*=\s*("[^"]*"|[^",]*)\s*(?:,|$)')
_FIELDS = ("name", "password", "salt", "iterations", "saltedpassword")
_SALT_BYTES, _LEAST_SALT_BYTES = 20, 12


class ScramArgumentError(ValueError):
    """One clear line, without a secret."""


class ScramUser(NamedTuple):
    name: str
    mechanism: str
    credential: Credential


def parse_scram(text: str) -> ScramUser:
    """Raises ScramArgumentError."""
    whole = _WHOLE.fullmatch(text.strip())
    if whole is None:
        raise ScramArgumentError(f"it is not MECHANISM=[name=…,password=…], as {EXAMPLE}")
    mechanism, inside = whole[1], whole[2]
    if mechanism not in HASHES:
        known = " and ".join(MECHANISMS.values())
        raise ScramArgumentError(f"no mechanism {mechanism!r}; there are {known}")
    given = _fields(inside)
    name = given.get("name", "")
    if not name:
        raise ScramArgumentError(f"{mechanism}: it has no name; write {EXAMPLE}")
    iterations = _iterations(given.get("iterations", str(MIN_ITERATIONS)), name)
    salt = _base64(given, "salt", name) or secrets.token_bytes(_SALT_BYTES)
    if len(salt) < _LEAST_SALT_BYTES:
        raise ScramArgumentError(f"user {name!r}: the salt needs {_LEAST_SALT_BYTES} bytes or more")
    if ("password" in given) == ("saltedpassword" in given):
        raise ScramArgumentError(f"user {name!r}: give one of password and saltedpassword")
    if "saltedpassword" in given and "salt" not in given:
        raise ScramArgumentError(f"user {name!r}: saltedpassword needs the salt that made it")
    if password := given.get("password"):
        salted = _salted(mechanism, password, salt, iterations)
    elif not (salted := _base64(given, "saltedpassword", name)):
        raise ScramArgumentError(f"user {name!r}: the password is empty; give one")
    return ScramUser(name, mechanism, derived(mechanism, salt, salted, iterations))


def with_password(name: str, mechanism: str, password: str) -> ScramUser:
    """The user with credentials made from this password and a new salt."""
    salt = secrets.token_bytes(_SALT_BYTES)
    salted = _salted(mechanism, password, salt, MIN_ITERATIONS)
    return ScramUser(name, mechanism, derived(mechanism, salt, salted, MIN_ITERATIONS))


def _salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    hash_name = HASHES[mechanism]().name
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


def parse_all(texts: Sequence[str]) -> list[ScramUser]:
    """Raises ScramArgumentError, also for a user that is named twice with one mechanism."""
    found = [parse_scram(text) for text in texts]
    pairs = [(user.name, user.mechanism) for user in found]
    for name, mechanism in pairs:
        if pairs.count((name, mechanism)) > 1:
            raise ScramArgumentError(f"user {name!r} has two credentials of {mechanism}; give one")
    return found


def _fields(inside: str) -> dict[str, str]:
    given: dict[str, str] = {}
    position = 0
    while position < len(inside):
        part = _PART.match(inside, position)
        if part is None:
            raise ScramArgumentError(
                f"after {len(given)} of its fields comes no FIELD=VALUE; "
                "quote a value that holds a comma"
            )
        field = part[1]
        if field not in _FIELDS:
            raise ScramArgumentError(f"no field {field!r}; there are {', '.join(_FIELDS)}")
        if field in given:
            raise ScramArgumentError(f"{field} is given twice")
        given[field] = part[2].strip().strip('"')
        position = part.end()
    return given


def _iterations(text: str, name: str) -> int:
    if text.isdecimal() and MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        return int(text)
    raise ScramArgumentError(
        f"user {name!r}: iterations {text!r}: a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}"
    )


def _base64(given: dict[str, str], field: str, name: str) -> bytes:
    try:
        return b64decode(given.get(field, ""), validate=True)
    except (Base64Error, ValueError):
        raise ScramArgumentError(f"user {name!r}: {field} is not in base64") from None
