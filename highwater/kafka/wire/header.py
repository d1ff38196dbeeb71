"""The header before every body: size, API key, version, correlation id, client id.

A frame is an int32 size and that many bytes.  A request's header is api_key int16, api_version
int16, correlation_id int32, client_id nullable string, and from the API's first flexible version
on (KIP-482) a section of tagged fields.  The client id itself never became a compact string, so
that a broker can read the header of a version it does not know.  Two exceptions:
ControlledShutdown v0 has no client id, and the answer to ApiVersions never has tagged fields in its
header, as the client does not yet know what the broker speaks.

Text that is not UTF-8 is read with replacement characters, here and in bodies, as Java reads it.

Every request's header is read here, so this is `struct` by hand; bodies are in `codec`.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from highwater.kafka.wire.varint import MAX_TAGS

Buffer = bytes | bytearray | memoryview

_FIXED = Struct(">hhih")
_START = Struct(">hhi")
_INT32 = Struct(">i")
_RESPONSE = Struct(">i")
_RESPONSE_FLEXIBLE = Struct(">ib")

_NEVER = 1 << 15

APIS: dict[int, tuple[str, int]] = {
    # key: (name, first flexible version)
    0: ("Produce", 9), 1: ("Fetch", 12), 2: ("ListOffsets", 6), 3: ("Metadata", 9),
    4: ("LeaderAndIsr", 4), 5: ("StopReplica", 2), 6: ("UpdateMetadata", 6),
    7: ("ControlledShutdown", 3), 8: ("OffsetCommit", 8), 9: ("OffsetFetch", 6),
    10: ("FindCoordinator", 3), 11: ("JoinGroup", 6), 12: ("Heartbeat", 4), 13: ("LeaveGroup", 4),
    14: ("SyncGroup", 4), 15: ("DescribeGroups", 5), 16: ("ListGroups", 3),
    17: ("SaslHandshake", _NEVER), 18: ("ApiVersions", 3), 19: ("CreateTopics", 5),
    20: ("DeleteTopics", 4), 21: ("DeleteRecords", 2), 22: ("InitProducerId", 2),
    23: ("OffsetForLeaderEpoch", 4), 24: ("AddPartitionsToTxn", 3), 25: ("AddOffsetsToTxn", 3),
    26: ("EndTxn", 3), 27: ("WriteTxnMarkers", 1), 28: ("TxnOffsetCommit", 3),
    29: ("DescribeAcls", 2), 30: ("CreateAcls", 2), 31: ("DeleteAcls", 2),
    32: ("DescribeConfigs", 4), 33: ("AlterConfigs", 2), 34: ("AlterReplicaLogDirs", 2),
    35: ("DescribeLogDirs", 2), 36: ("SaslAuthenticate", 2), 37: ("CreatePartitions", 2),
    38: ("CreateDelegationToken", 2), 39: ("RenewDelegationToken", 2),
    40: ("ExpireDelegationToken", 2), 41: ("DescribeDelegationToken", 2), 42: ("DeleteGroups", 2),
    43: ("ElectLeaders", 2), 44: ("IncrementalAlterConfigs", 1),
    45: ("AlterPartitionReassignments", 0), 46: ("ListPartitionReassignments", 0),
    47: ("OffsetDelete", _NEVER), 48: ("DescribeClientQuotas", 1), 49: ("AlterClientQuotas", 1),
    50: ("DescribeUserScramCredentials", 0), 51: ("AlterUserScramCredentials", 0),
    55: ("DescribeQuorum", 0), 56: ("AlterPartition", 0), 57: ("UpdateFeatures", 0),
    60: ("DescribeCluster", 0), 61: ("DescribeProducers", 0), 65: ("DescribeTransactions", 0),
    66: ("ListTransactions", 0), 67: ("AllocateProducerIds", 0), 68: ("ConsumerGroupHeartbeat", 0),
    69: ("ConsumerGroupDescribe", 0), 71: ("GetTelemetrySubscriptions", 0),
    72: ("PushTelemetry", 0), 74: ("ListConfigResources", 0), 75: ("DescribeTopicPartitions", 0),
    76: ("ShareGroupHeartbeat", 0), 77: ("ShareGroupDescribe", 0), 78: ("ShareFetch", 0),
    79: ("ShareAcknowledge", 0), 83: ("InitializeShareGroupState", 0),
    84: ("ReadShareGroupState", 0), 85: ("WriteShareGroupState", 0),
    86: ("DeleteShareGroupState", 0), 87: ("ReadShareGroupStateSummary", 0),
    90: ("DescribeShareGroupOffsets", 0), 91: ("AlterShareGroupOffsets", 0),
    92: ("DeleteShareGroupOffsets", 0),
}  # fmt: skip

_FIRST_FLEXIBLE = {key: first for key, (_, first) in APIS.items()}
API_VERSIONS = 18
CONTROLLED_SHUTDOWN = 7


class BadHeader(ValueError):
    """The bytes cannot be the header of a request: the connection is closed."""


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int
    """The start of the body in the frame."""


def api_name(api_key: int) -> str:
    entry = APIS.get(api_key)
    return entry[0] if entry else f"Unknown({api_key})"


def is_flexible(api_key: int, version: int) -> bool:
    """Whether the body has compact strings and tagged fields, and the header tagged fields."""
    return version >= _FIRST_FLEXIBLE.get(api_key, _NEVER)


def parse_request_header(view: Buffer) -> RequestHeader:
    """The header at the start of a frame (after its size); raises BadHeader."""
    n = len(view)
    if n < 10:
        if n >= 8 and (start := _START.unpack_from(view))[:2] == (CONTROLLED_SHUTDOWN, 0):
            return RequestHeader(start[0], start[1], start[2], None, 8)
        raise BadHeader(f"a request of {n} bytes is shorter than a request header")
    api_key, version, correlation_id, length = _FIXED.unpack_from(view)
    if api_key == CONTROLLED_SHUTDOWN and version == 0:
        return RequestHeader(api_key, version, correlation_id, None, 8)
    position = 10
    client_id = None
    if length >= 0:
        position = 10 + length
        if position > n:
            raise BadHeader(f"client id of {length} bytes in a request of {n} bytes")
        client_id = str(view[10:position], "utf-8", "replace")
    if version >= _FIRST_FLEXIBLE.get(api_key, _NEVER):
        if position < n and not view[position]:
            position += 1
        else:
            position = skip_tags(view, position)
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def read_varint(view: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint and the position after it; raises BadHeader."""
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(view):
            break
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise BadHeader("a varint that does not end")


def skip_tags(view: Buffer, position: int) -> int:
    """The position after a section of tagged fields; raises BadHeader."""
    count, position = read_varint(view, position)
    if count > MAX_TAGS:
        raise BadHeader(f"{count} tagged fields in one place, more than {MAX_TAGS}")
    for _ in range(count):
        _, position = read_varint(view, position)
        size, position = read_varint(view, position)
        position += size
        if position > len(view):
            raise BadHeader("a tagged field that reaches beyond the request")
    return position


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header a client puts before the body (without the frame's size)."""
    if api_key == CONTROLLED_SHUTDOWN and version == 0:
        return _START.pack(api_key, version, correlation_id)
    if client_id is None:
        head = _FIXED.pack(api_key, version, correlation_id, -1)
    else:
        name = client_id.encode()
        head = _FIXED.pack(api_key, version, correlation_id, len(name)) + name
    return head + b"\0" if is_flexible(api_key, version) else head


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header a broker puts before an answer's body (without the frame's size)."""
    if version >= _FIRST_FLEXIBLE.get(api_key, _NEVER) and api_key != API_VERSIONS:
        return _RESPONSE_FLEXIBLE.pack(correlation_id, 0)
    return _RESPONSE.pack(correlation_id)


def response_body_position(api_key: int, version: int, view: Buffer) -> int:
    """The start of the body in an answer's frame (after its size)."""
    if version >= _FIRST_FLEXIBLE.get(api_key, _NEVER) and api_key != API_VERSIONS:
        return skip_tags(view, 4)
    return 4
