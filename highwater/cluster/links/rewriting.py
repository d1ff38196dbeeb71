"""Addresses in brokers' answers, replaced by those of the proxies in front of the brokers.

A client connects to whatever address an answer names, so an address passed on as it is would
lead past the proxy.  Which answers have addresses is not listed here: the schemas are walked for
structures with a host and a port (Metadata, FindCoordinator, DescribeCluster, DescribeQuorum, and
by KIP-951 the NodeEndpoints of Produce v10, Fetch v16, ShareFetch and ShareAcknowledge).

An answer that cannot be read cannot be rewritten.  So in the answer to ApiVersions, such an API has
no version later than there is a codec for, and an API that is unknown here is left out.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from highwater.kafka.wire.codec import (
    UnknownApi,
    decode_response,
    encode_response,
    response_class,
)
from highwater.kafka.wire.header import API_VERSIONS, APIS, response_body_position

Address = tuple[str, int]
Replace = Callable[[int | None, Address], Address]
"""(a broker's id, None if the answer lacks it; its own address) -> the address for a client."""

_UNSUPPORTED = 35
_IDS = ("node_id", "broker_id")


@cache
def places(api_key: int, version: int) -> tuple[tuple[str, ...], ...]:
    """The ways, field by field, to the structures with a host and a port in an answer.

    >>> places(3, 7), places(10, 2), places(0, 9)
    ((('brokers',),), ((),), ())
    """
    try:
        fields = response_class(api_key)._struct.fields
    except UnknownApi:
        return ()
    return tuple(_walk(fields, version, ()))


def _walk(fields: Any, version: int, way: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    there = [field for field in fields.values() if field.for_version_q(version)]
    if {"host", "port"} <= {field.name for field in there}:
        yield way
    for field in there:
        if field.fields:
            yield from _walk(field.fields, version, (*way, field.name))


def must_be_read(api_key: int, version: int) -> bool:
    """Whether an answer of this API has to be whole before it can be passed on."""
    return api_key == API_VERSIONS or bool(places(api_key, version))


def rewritten(api_key: int, version: int, frame: bytes, replace: Replace) -> bytes:
    """The answer (without its size) as a client may see it.

    Raises BadMessage, UnknownApi or BadHeader where it cannot be read.
    """
    at = response_body_position(api_key, version, frame)
    answer = decode_response(api_key, version, memoryview(frame)[at:])
    if api_key == API_VERSIONS:
        if answer.error_code == _UNSUPPORTED:
            return frame
        answer.api_keys = [api for api in answer.api_keys if _readable(api)]
    else:
        found = [n for way in places(api_key, version) for n in _at(answer, way) if n.host]
        if not found:
            return frame
        for node in found:
            number = next((getattr(node, name) for name in _IDS if hasattr(node, name)), None)
            node.host, node.port = replace(number, (node.host, node.port))
    answer._header = None  # kafka-python's encoder reads it, but its decoder does not set it
    return frame[:at] + bytes(encode_response(answer, version))


def _at(answer: Any, way: tuple[str, ...]) -> Iterator[Any]:
    if not way:
        yield answer
        return
    inner = getattr(answer, way[0]) or ()
    for item in inner if isinstance(inner, list | tuple) else (inner,):
        yield from _at(item, way[1:])


def _readable(api: Any) -> bool:
    """Limits an API of ApiVersions to the versions that can be read; whether any is left."""
    if api.api_key not in APIS:
        return False
    try:
        known = response_class(api.api_key)
    except UnknownApi:
        return True  # APIs in APIS without a codec have no address, by Kafka's schemas
    if places(api.api_key, known.max_version):
        api.max_version = min(api.max_version, known.max_version)
    return bool(api.min_version <= api.max_version)
