"""Requests from plain dictionaries, and answers as plain dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from highwater.kafka.wire.codec import request_class


def request(api_key: int, version: int, body: Mapping[str, Any]) -> Any:
    """The message; fields that are not named, or that the version lacks, have their defaults."""
    return _build(request_class(api_key), body, version)


def _build(cls: Any, body: Mapping[str, Any], version: int) -> Any:
    fields = cls._struct.fields
    unknown = sorted(set(body) - set(fields))
    assert not unknown, f"{cls.__name__} has no field {unknown}: {sorted(fields)}"
    values: dict[str, Any] = {}
    for name, value in body.items():
        field = fields[name]
        if not field.for_version_q(version):
            continue
        inner = getattr(field, "data_class", None)
        if inner is not None and field.fields and isinstance(value, list):
            value = [_build(inner, item, version) for item in value]
        elif inner is not None and field.fields and isinstance(value, Mapping):
            value = _build(inner, value, version)
        values[name] = value
    return cls(**values)


def plain(value: Any) -> Any:
    """A message, or a part of one, as dictionaries, lists and values."""
    if hasattr(value, "to_dict"):
        return {key: plain(item) for key, item in value.to_dict(meta=False).items()}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, set):
        return sorted(value)
    return value
