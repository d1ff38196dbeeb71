"""A message as JSON, as Kafka's generated converters write it (for the request log).

Names are the schema's, with a small first letter.  Only fields of the message's version appear, and
tagged fields only where they are set.  Bytes are base64, except that record batches appear as their
size alone, and credentials are never shown.
"""

from __future__ import annotations

import uuid
from base64 import b64encode, urlsafe_b64encode
from typing import Any

from highwater.kafka.wire.codec import decode_request, decode_response

HIDDEN = "[hidden]"
_SECRET = ("auth_bytes", "salt", "salted_password", "hmac")


def request_json(api_key: int, version: int, body: memoryview) -> dict[str, Any]:
    """A request's body as JSON values; raises BadMessage or UnknownApi."""
    return message_json(decode_request(api_key, version, body), version)


def response_json(api_key: int, version: int, body: bytes | bytearray) -> dict[str, Any]:
    return message_json(decode_response(api_key, version, body), version)


def message_json(message: Any, version: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message._struct.fields.values():
        if not field.for_version_q(version):
            continue
        value = getattr(message, field.name)
        if not value and field.tagged_field_q(version):
            continue
        name = field._name[0].lower() + field._name[1:]
        if field.type_str == "records":
            found[name + "SizeInBytes"] = -1 if value is None else len(value)
        elif field.name in _SECRET:
            found[name] = HIDDEN
        else:
            found[name] = _plain(value, version)
    return found


def _plain(value: Any, version: int) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item, version) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode()
    if isinstance(value, uuid.UUID):
        return urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if hasattr(value, "_struct"):
        return message_json(value, version)
    return value
