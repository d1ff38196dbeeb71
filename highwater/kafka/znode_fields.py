"""Reads a znode's JSON, field by field; a value of the wrong type or out of range is BadZnode.

Any program may write to ZooKeeper, so nothing in a znode can be trusted until it was checked.  A
value that passes here can be compared, increased by one, and sent to other brokers.

Kafka's brokers read numbers and texts as strictly (kafka.utils.json).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MOST = (1 << 31) - 2
"""The highest id or epoch: one more still fits into a request."""
MOST_LONG = (1 << 63) - 1
_LONGEST_TEXT = 32767


class BadZnode(ValueError):
    """A znode's data does not match any known version."""


def decode_json(what: str, data: bytes) -> dict[str, Any]:
    try:
        text = str(data, "utf-8")  # for bytes json.loads would first guess the encoding
        value = json.loads(text, parse_constant=_no_number)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair cannot be sent
    except (ValueError, RecursionError) as e:
        raise BadZnode(f"{what} is not JSON ({e}): {data[:200]!r}") from None
    if not isinstance(value, dict):
        raise BadZnode(f"{what} is not a JSON object: {data[:200]!r}")
    return value


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def field(what: str, value: Mapping[str, Any], name: str) -> Any:
    try:
        return value[name]
    except KeyError:
        raise BadZnode(f"{what} has no field {name!r}: {_short(value)}") from None


def is_whole(value: object, least: int = 0, most: int = MOST) -> bool:
    return type(value) is int and least <= value <= most


def is_id(name: str) -> bool:
    """Whether the name of a znode, or of a field, is a number as `is_whole` has it."""
    return name.isascii() and name.isdigit() and len(name) <= 10 and int(name) <= MOST


def whole(what: str, value: Mapping[str, Any], name: str, least: int = 0, most: int = MOST) -> int:
    found = field(what, value, name)
    if not is_whole(found, least, most):
        raise BadZnode(f"{what} has no whole number in {name!r}: {_short(found)}")
    return int(found)


def whole_in_text(what: str, value: Mapping[str, Any], name: str) -> int:
    """A long that is written as text."""
    found = text(what, value, name)
    if not (found.isascii() and found.removeprefix("-").isdigit() and len(found) < 20):
        raise BadZnode(f"{what} has no whole number in {name!r}: {_short(found)}")
    return int(found)


def text(what: str, value: Mapping[str, Any], name: str) -> str:
    found = field(what, value, name)
    if not isinstance(found, str) or len(found.encode()) > _LONGEST_TEXT:
        raise BadZnode(f"{what} has no text in {name!r}: {_short(found)}")
    return found


def inner(what: str, value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A field that is an object; empty if it is missing or null."""
    found = value.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadZnode(f"{what} has no object in {name!r}: {_short(found)}")
    return found


def objects(what: str, value: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = field(what, value, name)
    if not (isinstance(found, list) and all(isinstance(one, dict) for one in found)):
        raise BadZnode(f"{what} has no list of objects in {name!r}: {_short(found)}")
    return found


def broker_ids(what: str, found: object) -> tuple[int, ...]:
    """Broker ids without duplicates, in their order."""
    if not (
        isinstance(found, list)
        and all(map(is_whole, found))
        and len(dict.fromkeys(found)) == len(found)
    ):
        raise BadZnode(f"{what} has no list of different broker ids: {_short(found)}")
    return tuple(found)


def _short(value: object) -> str:
    return repr(value)[:200]
