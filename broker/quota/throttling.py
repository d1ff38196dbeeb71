"""Puts into an answer how long its client is muted.

Produce, Fetch and Metadata pack their answers by hand, so the time is put into the packed bytes; in
any other answer it is a field, if the version has it.  (ApiVersions, where the field comes after
the list of all APIs, does not report it.)
"""

from __future__ import annotations

from dataclasses import replace
from struct import Struct
from typing import TYPE_CHECKING, cast

from highwater.kafka.wire.produce import FIRST_THROTTLED

if TYPE_CHECKING:
    from highwater.broker.request.response import Response

PRODUCE, FETCH, METADATA = 0, 1, 3
_FLEXIBLE_PRODUCE = 9
_METADATA_SAYS = 3
_INT32 = Struct(">i")


def throttled(response: Response, api_key: int, version: int, throttle_ms: int) -> Response:
    """The same answer with at least this throttle time."""
    throttle_ms = max(throttle_ms, response.throttle_ms)
    packed = _INT32.pack(throttle_ms)
    if response.parts is None:
        field = type(response.message).fields.get("throttle_time_ms")
        if field is not None and field.for_version_q(version):
            response.message.throttle_time_ms = throttle_ms
        return replace(response, throttle_ms=throttle_ms)
    parts = list(response.parts)
    if api_key == PRODUCE and version >= FIRST_THROTTLED:
        body = cast("bytes", parts[0])
        # v10 may have its tags in a separate part
        tags = b"\0" if version >= _FLEXIBLE_PRODUCE and len(parts) == 1 else b""
        parts[0] = body[: len(body) - 4 - len(tags)] + packed + tags
    elif api_key == FETCH or (api_key == METADATA and version >= _METADATA_SAYS):
        parts[0] = packed + cast("bytes", parts[0])[4:]
    return replace(response, parts=parts, throttle_ms=throttle_ms)
