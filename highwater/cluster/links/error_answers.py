"""Answers with an error, as a broker would give them: built from a request, or put into an answer.

The places of an answer that can carry an error are found by walking its schema.  Of several, the
innermost gets the error, because clients look there first: each partition, coordinator, resource
or group.  The exceptions are Kafka's own: Metadata has its errors at topics, LeaveGroup at the top;
OffsetFetch has errors of the group at the top, and so has Fetch those of the fetch session.

A structure with an error says nothing else, as in the getErrorResponse of Kafka's requests: its
names stay, offsets, ids and epochs are -1, lists and records are empty.  A Fetch answer with an
error at partitions has the session id 0, so that the broker and the client open a new session.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.codec import (
    BadMessage,
    UnknownApi,
    decode_request,
    decode_response,
    encode_response,
    request_class,
    response_class,
)
from highwater.kafka.wire.header import (
    API_VERSIONS,
    RequestHeader,
    api_name,
    response_body_position,
    response_header,
)

Way = tuple[str, ...]
"""The names of the fields that lead from the top of an answer to a structure in it."""

_FETCH, _METADATA, _OFFSET_FETCH, _LEAVE_GROUP = 1, 3, 9, 13
_DELETE_ACLS, _DESCRIBE_TOPIC_PARTITIONS = 31, 75
_SHARE_FETCH, _SHARE_ACKNOWLEDGE, _ALTER_SHARE_OFFSETS, _DELETE_SHARE_OFFSETS = 78, 79, 91, 92
_ERRORS: Final = ("error_code", "partition_error_code")
_DEPTHS: Final = {
    _METADATA: 1, _LEAVE_GROUP: 0, _DELETE_ACLS: 1, _DESCRIBE_TOPIC_PARTITIONS: 1,
    _ALTER_SHARE_OFFSETS: 0, _DELETE_SHARE_OFFSETS: 0,
}  # fmt: skip
"""The depth at which Kafka has a request's errors, where that is not the innermost place."""
_OF_SESSIONS: Final = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
}
_WITH_SESSIONS: Final = (_FETCH, _SHARE_FETCH, _SHARE_ACKNOWLEDGE)
_OF_OFFSETS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.UNKNOWN_TOPIC_ID,
}
"""OffsetFetch has these errors at partitions; all other errors belong to the group."""
_KINDS: Final = {
    "name": "topic", "topic": "topic", "topic_name": "topic", "topic_names": "topic",
    "topic_id": "topic_id",
    "index": "partition", "partition": "partition", "partition_index": "partition",
    "partition_id": "partition", "partitions": "partition", "partition_indexes": "partition",
    "key": "key", "coordinator_keys": "key",
    "group_id": "group", "groups": "group", "groups_names": "group", "group_ids": "group",
    "transactional_id": "transaction", "transactional_ids": "transaction",
    "resource_type": "resource_type", "resource_name": "resource_name",
}  # fmt: skip
"""Field -> the kind of thing that it names: which topic, partition, ... a structure is about."""
_NOTHING: Final[Mapping[str, Any]] = {
    "base_offset": -1, "high_watermark": -1, "committed_offset": -1, "low_watermark": -1,
    "leader_id": -1, "node_id": -1, "port": -1, "producer_epoch": -1, "aborted_transactions": None,
}  # fmt: skip
"""Kafka's value for "nothing", for fields where that is not the schema's default."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which partitions get the error: those of this topic and number; all, if neither is given."""

    topic: str = ""
    partition: int | None = None
    topic_ids: Mapping[Any, str] = field(default_factory=lambda: MappingProxyType({}))
    """Id -> name, as far as they are known."""

    def takes(self, known: Mapping[str, Any]) -> bool:
        """Whether it chooses the structure with these keys (kind -> value)."""
        if self.partition is not None and known.get("partition") != self.partition:
            return False
        return not self.topic or self._topic(known) == self.topic

    def _topic(self, known: Mapping[str, Any]) -> Any:
        if known.get("topic") or "topic_id" not in known:
            return known.get("topic")
        if known["topic_id"] not in self.topic_ids:
            raise BadMessage(f"no name is known of the topic with the id {known['topic_id']}")
        return self.topic_ids[known["topic_id"]]


ALL: Final = Chosen()


@cache
def places(api_key: int, version: int) -> tuple[Way, ...]:
    """The ways to the structures of an answer that carry an error, the innermost first.

    >>> places(0, 9), places(11, 3)
    ((('responses', 'partition_responses'),), ((),))
    """
    fields = response_class(api_key)._struct.fields
    return tuple(sorted(_walk(fields, version, ()), key=len, reverse=True))


def _walk(fields: Any, version: int, way: Way) -> Iterator[Way]:
    there = [field for field in fields.values() if field.for_version_q(version)]
    if any(field.name in _ERRORS for field in there):
        yield way
    for one in there:
        if one.is_struct_array():
            yield from _walk(one.fields, version, (*way, one.name))


def can_carry(api_key: int) -> bool:
    """Whether there is a codec for this API, and a place for an error in its answers."""
    try:
        return bool(places(api_key, response_class(api_key).max_version) and request_class(api_key))
    except UnknownApi:
        return False


def names(api_key: int) -> set[str]:
    """What the errors of an answer can be given for: "topic", "partition", both or neither."""
    version = response_class(api_key).max_version
    found = {kind for way in places(api_key, version) for kind in _on(api_key, version, way)}
    return found & {"topic", "partition"}


def _on(api_key: int, version: int, way: Way) -> set[str]:
    """The kinds of keys on a way."""
    fields, found = response_class(api_key)._struct.fields, set[str]()
    for name in way:
        fields = fields[name].fields
        found |= _keys(fields, version).keys()
    return found | ({"topic"} if "topic_id" in found else set())


def _ways(api_key: int, version: int, error: int, chosen: Chosen) -> list[Way]:
    """The possible places of this error, the best first."""
    ways = list(places(api_key, version))
    if chosen.topic or chosen.partition is not None:
        needed = {"topic"} if chosen.topic else set()
        needed |= {"partition"} if chosen.partition is not None else set()
        ways = [way for way in ways if needed <= _on(api_key, version, way)]
    elif (api_key in _WITH_SESSIONS and error in _OF_SESSIONS) or (
        api_key == _OFFSET_FETCH and error not in _OF_OFFSETS
    ):
        return ways[-1:]
    if api_key in _DEPTHS and chosen.partition is None:
        ways = [way for way in ways if len(way) <= _DEPTHS[api_key]]
    return ways


def error_answer(
    header: RequestHeader, body: memoryview, error: int, chosen: Chosen = ALL, throttle_ms: int = 0
) -> bytes | None:
    """The frame (without its size) that answers a request with this error.

    None where the request names something that is not chosen, or nothing at all.  Raises BadMessage
    or UnknownApi where it cannot be read, or where no answer can be made of it.
    """
    key, version = header.api_key, header.api_version
    request, asked = decode_request(key, version, body), request_class(key)._struct.fields
    ways = _ways(key, version, error, chosen)
    fields = response_class(key)._struct.fields
    ways = [way for way in ways if _is_named(fields, asked, way, version)]
    if not ways:
        if chosen.topic or chosen.partition is not None:
            return None
        raise BadMessage(f"no answer with an error can be made of a request {api_name(key)}")
    answer = _blank(response_class(key), fields, version)
    made = list(_made(answer, fields, request, asked, ways[0], version, {}))
    if not made or not all(chosen.takes(known) for _, known in made):
        return None
    for item, _ in made:
        _set_error(item, error)
    return response_header(key, version, header.correlation_id) + _encoded(
        key, version, answer, error, throttle_ms
    )


def with_error(
    api_key: int,
    version: int,
    frame: bytes,
    error: int,
    chosen: Chosen = ALL,
    throttle_ms: int = 0,
) -> bytes | None:
    """A broker's answer (without its size) with this error in the chosen parts.

    None where it has none of them, or where all of those have an error already.  Raises BadMessage,
    UnknownApi or BadHeader where it cannot be read.
    """
    at = response_body_position(api_key, version, frame)
    answer = decode_response(api_key, version, memoryview(frame)[at:])
    ways = _ways(api_key, version, error, chosen)
    fields = response_class(api_key)._struct.fields
    if not ways:
        return None
    if not ways[0]:
        if _error_of(answer):
            return None
        answer = _blank(response_class(api_key), fields, version)
        _set_error(answer, error)
    elif not _put(answer, fields, ways[0], version, {}, error, chosen):
        return None
    answer._header = None  # kafka-python's encoder reads it, but its decoder does not set it
    return frame[:at] + _encoded(api_key, version, answer, error, throttle_ms)


def _encoded(key: int, version: int, answer: Any, error: int, throttle_ms: int) -> bytes:
    if throttle_ms and hasattr(answer, "throttle_time_ms"):
        answer.throttle_time_ms = throttle_ms
    if key == API_VERSIONS and error == ErrorCode.UNSUPPORTED_VERSION:
        version = 0  # the client does not yet know what the broker speaks
    return bytes(encode_response(answer, version))


# --- structures of answers


def _keys(fields: Any, version: int) -> dict[str, str]:
    """Kind -> the field that is a key of this kind."""
    return {
        _KINDS[one.name]: one.name
        for one in fields.values()
        if one.name in _KINDS and not one.fields and one.for_version_q(version)
    }


def _blank(cls: Any, fields: Any, version: int) -> Any:
    """A structure that says nothing."""
    item = cls()
    for one in fields.values():
        if one.is_array() and getattr(item, one.name) is not None:
            setattr(item, one.name, [])  # a new list: all items share the default one
        if one.name in _NOTHING and (
            _NOTHING[one.name] is not None or one.nullable_for_version_q(version)
        ):
            setattr(item, one.name, _NOTHING[one.name])
        if (
            one.is_struct()
            and not one.nullable_for_version_q(version)
            and not one.tagged_field_q(version)
        ):
            setattr(item, one.name, _blank(one.data_class, one.fields, version))
    return item


def _named(field: Any, known: Mapping[str, Any], version: int) -> Any:
    """A structure of this array that has only its keys."""
    item = _blank(field.data_class, field.fields, version)
    for kind, name in _keys(field.fields, version).items():
        value = known.get(kind)
        if value is not None or field.fields[name].nullable_for_version_q(version):
            setattr(item, name, value)
    return item


def _set_error(item: Any, error: int) -> None:
    setattr(item, next(name for name in _ERRORS if hasattr(item, name)), int(error))


def _error_of(item: Any) -> int:
    return next(int(getattr(item, name)) for name in _ERRORS if hasattr(item, name))


# --- from a request


def _source(field: Any, asked: Any, version: int) -> Any:
    """The array of a request that an answer's array repeats; None where there is none."""
    kinds = _keys(field.fields, version).keys()
    for one in asked.values():
        if one.is_array() and one.for_version_q(version):
            own = _keys(one.fields, version) if one.fields else {_KINDS.get(one.name, ""): ""}
            if kinds & own.keys():
                return one
    return None


def _is_named(fields: Any, asked: Any, way: Way, version: int) -> bool:
    """Whether a request names all that is on this way of its answer."""
    for name in way:
        source = _source(fields[name], asked, version)
        if source is None:
            return False
        fields, asked = fields[name].fields, source.fields or {}
    return True


def _made(
    answer: Any,
    fields: Any,
    request: Any,
    asked: Any,
    way: Way,
    version: int,
    known: dict[str, Any],
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Fills the arrays on the way with what the request names; gives each structure at its end,
    and the keys of all on the way there."""
    if not way:
        yield answer, known
        return
    field, source = fields[way[0]], _source(fields[way[0]], asked, version)
    for one in getattr(request, source.name) or ():
        if source.fields:
            keys = _keys(source.fields, version)
            own = {kind: getattr(one, name) for kind, name in keys.items()}
        else:
            own = {_KINDS[source.name]: one}
        item = _named(field, own, version)
        getattr(answer, way[0]).append(item)
        rest = (field.fields, one, source.fields or {}, way[1:], version, {**known, **own})
        yield from _made(item, *rest)


# --- into an answer


def _put(
    struct: Any, fields: Any, way: Way, version: int, known: dict[str, Any], error: int,
    chosen: Chosen,
) -> int:  # fmt: skip
    """Puts the error into the chosen structures at the end of the way; gives their number."""
    field, items, count = fields[way[0]], getattr(struct, way[0]) or [], 0
    keys = _keys(field.fields, version)
    for number, item in enumerate(items):
        own = {kind: getattr(item, name) for kind, name in keys.items()}
        whole = {**known, **own}
        if len(way) > 1:
            count += _put(item, field.fields, way[1:], version, whole, error, chosen)
        elif not _error_of(item) and chosen.takes(whole):
            items[number] = _named(field, own, version)
            _set_error(items[number], error)
            count += 1
    return count
