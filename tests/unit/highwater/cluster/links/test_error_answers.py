"""Answers with an error: in each version they can be read, and have it where Kafka has it."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from highwater.cluster.links.error_answers import (
    ALL,
    Chosen,
    can_carry,
    error_answer,
    names,
    with_error,
)
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire import codec
from highwater.kafka.wire.codec import BadMessage
from highwater.kafka.wire.header import (
    APIS,
    parse_request_header,
    request_header,
    response_body_position,
    response_header,
)

ERROR = ErrorCode.NOT_LEADER_OR_FOLLOWER
KEYS = {name: key for key, (name, _) in APIS.items()}
IDS = {"orders": uuid.UUID(int=7), "bills": uuid.UUID(int=8)}
TOPIC_NAMES = {id_: name for name, id_ in IDS.items()}
EVERY = {(topic, number): ERROR.value for topic in IDS for number in (0, 1)}
OF_PARTITIONS = ("Produce", "Fetch", "ListOffsets", "OffsetCommit", "TxnOffsetCommit",
                 "AddPartitionsToTxn")  # fmt: skip
OF_THE_WHOLE = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "InitProducerId",
                "AddOffsetsToTxn", "EndTxn")  # fmt: skip
TOPICS = ("name", "topic")
NUMBERS = ("index", "partition", "partition_index")


def versions(*apis: str) -> list[Any]:
    return [
        pytest.param(KEYS[api], version, id=f"{api} v{version}")
        for api in apis
        for version in range(codec.response_class(KEYS[api]).max_version + 1)
    ]


def fill(struct: Any, fields: Any, version: int, topics: list[str], numbers: list[int]) -> Any:
    """Names these partitions of these topics wherever a structure names some."""
    for field in fields.values():
        if not field.for_version_q(version):
            continue
        inner = field.fields if field.is_struct_array() else {}
        items: list[Any] = []
        if {*TOPICS, "topic_id"} & inner.keys():
            for topic in topics:
                item = field.data_class()
                for name in {*TOPICS} & inner.keys():
                    setattr(item, name, topic)
                if "topic_id" in inner:
                    item.topic_id = IDS[topic]
                items.append(fill(item, inner, version, topics, numbers))
        elif {*NUMBERS} & inner.keys():
            for number in numbers:
                item = field.data_class()
                setattr(item, next(name for name in NUMBERS if name in inner), number)
                items.append(fill(item, inner, version, topics, numbers))
        elif field.is_struct_array():
            items = [fill(field.data_class(), inner, version, topics, numbers)]
        elif field.is_array():
            items = list(numbers) if "int" in field.type_str else ["one", "two"]
        elif field.name == "group_id":
            struct.group_id = "the-group"
            continue
        else:
            continue
        setattr(struct, field.name, items)
    return struct


def request(
    key: int, version: int, topics: list[str] | None = None, numbers: list[int] | None = None
) -> bytes:
    """The frame of a request, without its size."""
    made, fields = codec.request_class(key)(), codec.request_class(key)._struct.fields
    fill(made, fields, version, topics or [*IDS], [0, 1] if numbers is None else numbers)
    if key == KEYS["Produce"]:
        made.acks = -1
    return request_header(key, version, 77, "app") + bytes(codec.encode_request(made, version))


def answered(key: int, version: int, error: int = ERROR, chosen: Chosen = ALL, **of: Any) -> Any:
    """The answer that is made of such a request; None where there is none."""
    frame = request(key, version, **of)
    header = parse_request_header(frame)
    body = memoryview(frame)[header.body_position :]
    made = error_answer(header, body, error, chosen, throttle_ms=30)
    return None if made is None else decoded(key, version, made)


def decoded(key: int, version: int, frame: bytes) -> Any:
    assert frame[:4] == (77).to_bytes(4)
    at = response_body_position(key, version, frame)
    answer = codec.decode_response(key, version, memoryview(frame)[at:])
    answer._header = None
    assert bytes(codec.encode_response(answer, version)) == frame[at:]
    return answer


def errors(struct: Any, fields: Any, version: int, at: tuple[Any, ...] = ()) -> dict[Any, int]:
    """(topic, partition or other keys) -> the error code there, of all that have one."""
    found: dict[Any, int] = {}
    for name in ("error_code", "partition_error_code"):
        if name in fields and fields[name].for_version_q(version):
            found[at] = getattr(struct, name)
    for field in fields.values():
        if field.is_struct_array() and field.for_version_q(version):
            for item in getattr(struct, field.name) or ():
                own = [getattr(item, n, None) for n in (*TOPICS, *NUMBERS, "group_id", "key")]
                keys = [value for value in own if value not in (None, "")]
                if getattr(item, "topic_id", None) in TOPIC_NAMES and not keys:
                    keys = [TOPIC_NAMES[item.topic_id]]
                found |= errors(item, field.fields, version, (*at, *keys))
    return found


def errors_of(key: int, version: int, answer: Any) -> dict[Any, int]:
    """Those that are not 0."""
    every = errors(answer, codec.response_class(key)._struct.fields, version)
    return {at: code for at, code in every.items() if code}


@pytest.mark.parametrize(("key", "version"), versions(*OF_PARTITIONS))
def test_each_partition_of_a_request_is_answered_with_the_error(key: int, version: int) -> None:
    assert errors_of(key, version, answered(key, version)) == EVERY
    orders = Chosen("orders", 1, TOPIC_NAMES)
    assert answered(key, version, chosen=orders) is None, "others are asked for, too"
    answer = answered(key, version, chosen=orders, topics=["orders"], numbers=[1])
    assert errors_of(key, version, answer) == {("orders", 1): ERROR}
    assert answered(key, version, chosen=orders, topics=["bills"], numbers=[1]) is None
    assert answered(key, version, numbers=[]) is None, "it names no partition"


@pytest.mark.parametrize(("key", "version"), versions(*OF_THE_WHOLE))
def test_what_has_no_parts_has_the_error_at_the_top(key: int, version: int) -> None:
    answer = answered(key, version)
    assert errors_of(key, version, answer) == {(): ERROR}
    assert not getattr(answer, "members", None)
    assert answered(key, version, chosen=Chosen("orders")) is None


@pytest.mark.parametrize(("key", "version"), versions("FindCoordinator"))
def test_each_coordinator_has_the_error(key: int, version: int) -> None:
    answer = answered(key, version)
    expected = {(): ERROR} if version < 4 else {("one",): ERROR, ("two",): ERROR}
    assert errors_of(key, version, answer) == expected
    places = [answer] if version < 4 else answer.coordinators
    assert {(place.node_id, place.host, place.port) for place in places} == {(-1, "", -1)}


@pytest.mark.parametrize(("key", "version"), versions("Metadata"))
def test_metadata_has_the_error_at_topics(key: int, version: int) -> None:
    answer = answered(key, version)
    assert errors_of(key, version, answer) == {("orders",): ERROR, ("bills",): ERROR}
    assert (answer.brokers, [topic.partitions for topic in answer.topics]) == ([], [[], []])
    assert answered(key, version, chosen=Chosen("orders")) is None
    answer = answered(key, version, chosen=Chosen("orders"), topics=["orders"])
    assert errors_of(key, version, answer) == {("orders",): ERROR}


@pytest.mark.parametrize(("key", "version"), versions("OffsetFetch"))
def test_an_error_of_the_group_is_apart_from_those_of_partitions(key: int, version: int) -> None:
    group = ("the-group",) if version >= 8 else ()
    each = {(*group, *at): code for at, code in EVERY.items()}
    answer = answered(key, version, ErrorCode.NOT_COORDINATOR)
    if version < 2:  # there is no other place
        assert errors_of(key, version, answer) == dict.fromkeys(each, ErrorCode.NOT_COORDINATOR)
    else:
        assert errors_of(key, version, answer) == {group: ErrorCode.NOT_COORDINATOR}
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    answer = answered(key, version, unstable)
    assert errors_of(key, version, answer) == dict.fromkeys(each, unstable)
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    assert {p.committed_offset for topic in topics for p in topic.partitions} == {-1}


@pytest.mark.parametrize(("key", "version"), versions("Produce"))
def test_a_produce_that_failed_has_no_offset(key: int, version: int) -> None:
    answer = answered(key, version)
    for partition in (p for topic in answer.responses for p in topic.partition_responses):
        assert (partition.base_offset, partition.log_append_time_ms) == (-1, -1)
        assert (partition.log_start_offset, partition.record_errors) == (-1, [])
    assert answer.throttle_time_ms == (30 if version >= 1 else 0)


@pytest.mark.parametrize(("key", "version"), versions("Fetch"))
def test_a_fetch_that_failed_has_no_records_and_no_session(key: int, version: int) -> None:
    answer = answered(key, version)
    assert (answer.session_id, answer.error_code) == (0, 0)
    for partition in (p for topic in answer.responses for p in topic.partitions):
        assert (partition.high_watermark, partition.last_stable_offset) == (-1, -1)
        assert not partition.aborted_transactions
        assert not partition.records
    answer = answered(key, version, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    if version >= 7:
        assert errors_of(key, version, answer) == {(): ErrorCode.INVALID_FETCH_SESSION_EPOCH}


def answer_frame(key: int, version: int, *, failed: bool = False) -> bytes:
    """A broker's answer to `request`."""
    made, fields = codec.response_class(key)(), codec.response_class(key)._struct.fields
    fill(made, fields, version, [*IDS], [0, 1])
    if failed:
        made.responses[0].partition_responses[0].error_code = ErrorCode.NOT_ENOUGH_REPLICAS
    return response_header(key, version, 77) + bytes(codec.encode_response(made, version))


@pytest.mark.parametrize(("key", "version"), versions(*OF_PARTITIONS))
def test_the_error_is_put_into_the_chosen_parts_of_an_answer(key: int, version: int) -> None:
    frame = answer_frame(key, version)
    made = with_error(key, version, frame, ERROR)
    assert made is not None
    assert errors_of(key, version, decoded(key, version, made)) == EVERY
    made = with_error(key, version, frame, ERROR, Chosen("orders", 1, TOPIC_NAMES))
    assert made is not None
    assert errors_of(key, version, decoded(key, version, made)) == {("orders", 1): ERROR}
    assert with_error(key, version, frame, ERROR, Chosen("orders", 2, TOPIC_NAMES)) is None


@pytest.mark.parametrize(("key", "version"), versions("Metadata"))
def test_an_answer_of_metadata_has_it_at_the_partition_that_is_asked_for(
    key: int, version: int
) -> None:
    frame = answer_frame(key, version)
    made = with_error(key, version, frame, ERROR, Chosen("orders", 1))
    assert made is not None
    answer = decoded(key, version, made)
    assert errors_of(key, version, answer) == {("orders", 1): ERROR}
    assert len(answer.brokers) == 1
    assert [len(topic.partitions) for topic in answer.topics] == [2, 2]


@pytest.mark.parametrize(("key", "version"), versions(*OF_THE_WHOLE))
def test_an_answer_without_parts_has_it_at_the_top(key: int, version: int) -> None:
    made = with_error(key, version, answer_frame(key, version), ERROR)
    assert made is not None
    assert errors_of(key, version, decoded(key, version, made)) == {(): ERROR}
    assert with_error(key, version, made, ErrorCode.REQUEST_TIMED_OUT) is None, "it failed already"


def test_an_error_of_the_broker_stays() -> None:
    key, version = KEYS["Produce"], 9
    made = with_error(key, version, answer_frame(key, version, failed=True), ERROR)
    assert made is not None
    expected = {**EVERY, ("orders", 0): ErrorCode.NOT_ENOUGH_REPLICAS}
    assert errors_of(key, version, decoded(key, version, made)) == expected


def test_a_topic_whose_id_is_unknown_cannot_be_chosen() -> None:
    with pytest.raises(BadMessage, match="no name is known of the topic"):
        answered(KEYS["Produce"], 13, chosen=Chosen("orders"))


CARRYING = [
    api for api, key in KEYS.items() if can_carry(key) and api not in ("CreateAcls", "DeleteAcls",
    "AlterClientQuotas", "AlterUserScramCredentials",
    "AlterReplicaLogDirs", "LeaderAndIsr", "StopReplica",
    "UpdateMetadata", "WriteTxnMarkers")
]  # fmt: skip
"""Beside the controller's own, those whose requests name what their answers speak of."""


@pytest.mark.parametrize(("key", "version"), versions(*CARRYING))
def test_each_api_can_be_answered(key: int, version: int) -> None:
    if APIS[key][0] == "DescribeLogDirs" and version < 3:
        return  # its answers have errors of directories alone, which no request names
    answer = answered(key, version, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert set(errors_of(key, version, answer).values()) == {ErrorCode.UNKNOWN_SERVER_ERROR}


def test_what_a_request_does_not_name_cannot_be_answered() -> None:
    with pytest.raises(BadMessage, match="no answer with an error can be made"):
        answered(KEYS["CreateAcls"], 1)


def test_a_version_that_is_not_understood_is_told_in_the_first_one() -> None:
    key, unsupported = KEYS["ApiVersions"], ErrorCode.UNSUPPORTED_VERSION
    frame = request(key, 3)
    header = parse_request_header(frame)
    made = error_answer(header, memoryview(frame)[header.body_position :], unsupported)
    assert made is not None
    assert made[4:] == (35).to_bytes(2) + (0).to_bytes(4)


def test_what_an_api_tells_errors_apart_by() -> None:
    assert names(KEYS["Produce"]) == {"topic", "partition"}
    assert names(KEYS["CreateTopics"]) == {"topic"}
    assert names(KEYS["Heartbeat"]) == set()
