"""Bodies: bytes to messages and back, for every API and version.

kafka-python compiles one function for each message and version from Kafka's schemas; this module
finds it once and keeps it.  kafka-python's `decode(header=True)` copies the frame twice and is
never used: `header` handles headers.  Produce and Fetch, on the hot path, are read and written by
hand elsewhere; only tools and clients pass them here.

Bytes from the network may be anything.  A decoder that fails in any way, that reads beyond the end,
or that meets more than a message may hold (`bounded_decoder`), raises BadMessage.  So does a null
where the schema has none, which kafka-python lets pass (the control plane's requests are not
checked for that, as they are large and come from brokers).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from highwater.kafka.wire import messages
from highwater.kafka.wire.bounded_decoder import bounded_decoder
from highwater.kafka.wire.header import APIS, CONTROLLED_SHUTDOWN, api_name, is_flexible
from highwater.kafka.wire.varint import MAX_ELEMENTS

Buffer = bytes | bytearray | memoryview
Decoder = Callable[[memoryview, int], tuple[Any, int]]

_CONTROL_KEYS = range(4, CONTROLLED_SHUTDOWN + 1)
_TOKEN_KEYS = range(38, 42)
_API_VERSIONS = 18
MAX_CONTROL_ELEMENTS: Final = 2_000_000
"""The most elements in a request of the controller: enough for 200,000 partitions of three replicas
each, which is as many as a cluster with ZooKeeper was ever meant to have."""
_UNBOUNDED = 1 << 62
"""Answers name what the cluster has."""
_NULLABLE = ("string", "bytes", "records")

_Required = tuple[tuple[str, bool, bool, "_Required"], ...]
"""Fields by name, whether each may be null, whether it is a list of texts, none of which may be,
and what its elements require."""

_required: dict[tuple[int, int], _Required] = {}
_request_decoders: dict[tuple[int, int], Decoder] = {}
_response_decoders: dict[tuple[int, int], Decoder] = {}


class BadMessage(ValueError):
    """The bytes are not this message at this version."""


class UnknownApi(ValueError):
    """No such API, or not at this version."""


def _class(api_key: int, suffix: str) -> Any:
    entry = APIS.get(api_key)
    if entry is not None:
        module = messages
        if api_key in _CONTROL_KEYS:
            # imported late: only brokers and the controller speak these
            module = import_module("highwater.kafka.wire.controller_messages")
        elif api_key in _TOKEN_KEYS:
            module = import_module("highwater.kafka.wire.token_messages")
        found = getattr(module, entry[0] + suffix, None)
        if found is not None:
            return found.real() if isinstance(found, messages.Late) else found
    raise UnknownApi(f"no codec for {api_name(api_key)}{suffix}")


def request_class(api_key: int) -> Any:
    """The class of the API's request; raises UnknownApi."""
    return _class(api_key, "Request")


def response_class(api_key: int) -> Any:
    """The class of the API's answer; raises UnknownApi."""
    return _class(api_key, "Response")


def _compile(cls: Any, api_key: int, version: int, elements: int) -> Decoder:
    if not 0 <= version <= cls.max_version:
        raise UnknownApi(f"no codec for {cls.__name__} v{version} (0 to {cls.max_version})")
    return bounded_decoder(cls, version, is_flexible(api_key, version), elements)


def _decode(decoder: Decoder, view: Buffer, name: str, version: int) -> Any:
    view = view if isinstance(view, memoryview) else memoryview(view)
    try:
        message, end = decoder(view, 0)
    except Exception as exc:
        raise BadMessage(f"{name} v{version} of {len(view)} bytes: {exc}") from exc
    if end > len(view):
        raise BadMessage(f"{name} v{version}: {len(view)} bytes, but its fields need {end}")
    return message


def decode_request(api_key: int, version: int, view: Buffer) -> Any:
    """The request whose body is `view`; raises UnknownApi or BadMessage."""
    decoder = _request_decoders.get((api_key, version))
    if decoder is None:
        cls = request_class(api_key)
        elements = MAX_CONTROL_ELEMENTS if api_key in _CONTROL_KEYS else MAX_ELEMENTS
        decoder = _compile(cls, api_key, version, elements)
        _request_decoders[api_key, version] = decoder
        if api_key not in _CONTROL_KEYS:
            _required[api_key, version] = _required_of(cls._struct.fields, version)
    name = f"a {api_name(api_key)} request"
    message = _decode(decoder, view, name, version)
    _check_nulls(message, _required.get((api_key, version), ()), name)
    return message


def prepare(*versions: tuple[int, int]) -> None:
    """Makes the codecs of these APIs' requests and answers (API key, version) in advance.

    A large codec takes 10 ms or more, in the step of the broker's loop that first needs it.
    """
    for key, version in versions:
        decode_request(key, version, encode_request(request_class(key)(), version))
        decode_response(key, version, encode_response(response_class(key)(), version))


def _required_of(fields: Any, version: int) -> _Required:
    """The fields of a struct that may not be null, or that contain such fields."""
    found: list[tuple[str, bool, bool, _Required]] = []
    for field in fields.values():
        if not field.for_version_q(version):
            continue
        inner = _required_of(field.fields, version) if field.fields else ()
        # a structure in a tagged field is left out where it says nothing
        left_out = field.is_struct() and field.tagged_field_q(version)
        nullable = left_out or field.nullable_for_version_q(version)
        may_be_null = field.is_array() or field.is_struct() or field.type_str in _NULLABLE
        kind = field.type_str.removeprefix("[]")
        texts = field.is_array() and not field.fields and kind in _NULLABLE
        if inner or texts or (may_be_null and not nullable):
            found.append((field.name, nullable, texts, inner))
    return tuple(found)


def _check_nulls(message: Any, required: _Required, name: str) -> None:
    for field, nullable, texts, inner in required:
        value = getattr(message, field)
        if value is None:
            if not nullable:
                raise BadMessage(f"{name} whose field {field} is null")
        elif texts:
            if None in value:
                raise BadMessage(f"{name} with a null in its field {field}")
        elif inner:
            for item in value if isinstance(value, list) else (value,):
                _check_nulls(item, inner, name)


def decode_response(api_key: int, version: int, view: Buffer) -> Any:
    """The answer whose body is `view`; raises UnknownApi or BadMessage."""
    if api_key == _API_VERSIONS and len(view) >= 2 and (view[0], view[1]) == (0, 35):
        version = 0  # UNSUPPORTED_VERSION: the client's version was not understood
    decoder = _response_decoders.get((api_key, version))
    if decoder is None:
        decoder = _compile(response_class(api_key), api_key, version, _UNBOUNDED)
        _response_decoders[api_key, version] = decoder
    return _decode(decoder, view, f"a {api_name(api_key)} answer", version)


def encode_request(message: Any, version: int) -> bytes | bytearray:
    """The body of a request."""
    body: bytes | bytearray = message.encode(version=version)
    return body


def encode_response(message: Any, version: int) -> bytes | bytearray:
    """The body of an answer."""
    body: bytes | bytearray = message.encode(version=version)
    return body
