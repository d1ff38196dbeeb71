"""The quota that holds for a client, its recorded use, and the throttle time in the answer."""

from __future__ import annotations

from struct import unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highwater.broker.quota.entities import (
    DEFAULT,
    Entity,
    Quota,
    QuotaTable,
    entity_of_path,
    path_of_entity,
)
from highwater.broker.quota.quota_manager import Quotas
from highwater.broker.quota.throttling import throttled
from highwater.broker.request.response import Response
from highwater.kafka.config import Config
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.sanitizer import desanitize, sanitize
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.codec import decode_response, encode_response
from highwater.kafka.wire.fetch import FetchedPartition, response_parts
from highwater.kafka.wire.messages import HeartbeatResponse, MetadataResponse
from highwater.kafka.wire.produce import PartitionResult, produce_response

ORDER = (
    Entity("u", "c"), Entity("u", DEFAULT), Entity("u", None), Entity(DEFAULT, "c"),
    Entity(DEFAULT, DEFAULT), Entity(DEFAULT, None), Entity(None, "c"), Entity(None, DEFAULT),
)  # fmt: skip


@pytest.mark.thorough
@given(st.sets(st.sampled_from(range(len(ORDER)))))
def test_the_most_specific_entity_decides(given_: set[int]) -> None:
    table = QuotaTable()
    for index in sorted(given_, reverse=True):
        table.set(ORDER[index], float(index))
    found = table.find("u", "c")
    assert (found.bound if found else None) == (min(given_) if given_ else None)
    assert table.find("other", "another") == next(
        (
            Quota(float(i), "other" if i < 6 else "", "" if i == 5 else "another")
            for i in (4, 5, 7)
            if i in given_
        ),
        None,
    )


def test_a_quota_taken_away_is_gone() -> None:
    table = QuotaTable()
    table.set(Entity("u", None), 1.0)
    assert table.find("u", "c") == Quota(1.0, "u", "")
    table.set(Entity("u", None), None)
    assert table.find("u", "c") is None


@given(st.text())
def test_names_are_safe_in_paths_and_come_back(name: str) -> None:
    assert desanitize(sanitize(name)) == name
    assert not set(sanitize(name)) & set("/*~ ")


@given(st.sampled_from(ORDER))
def test_paths_of_entities(entity: Entity) -> None:
    assert entity_of_path(path_of_entity(entity)) == entity


def test_paths_of_other_things_are_none() -> None:
    assert entity_of_path("brokers/1") is None
    assert entity_of_path("users/a%2Fb/clients/<default>") == Entity("a/b", DEFAULT)


def quotas(**config: int) -> Quotas:
    return Quotas(Config(**config))  # type: ignore[arg-type]


def test_without_a_quota_nothing_is_measured() -> None:
    found = quotas()
    assert not found.active
    found.configured(Entity("u", None), {"producer_byte_rate": "1000"})
    active: bool = found.active
    assert active
    found.configured(Entity("u", None), {"SCRAM-SHA-256": "salt=..."})
    assert not found.active


def test_a_users_quota_is_shared_by_its_clients_and_a_default_one_is_not() -> None:
    found = quotas()
    found.configured(Entity("u", None), {"producer_byte_rate": "100"})
    found.configured(Entity(DEFAULT, DEFAULT), {"consumer_byte_rate": "100"})
    assert found.produce.record("u", "a", 1000, 0) == 0
    assert found.produce.record("u", "b", 1000, 0) == 10_000
    assert found.fetch.record("u", "a", 1000, 0) == 0
    assert found.fetch.record("u", "b", 1000, 0) == 0
    assert found.fetch.record("u", "b", 1000, 0) == 10_000
    found.fetch.take_back("u", "b", 1000, 0)
    assert found.fetch.record("u", "b", 0, 0) == 0
    assert found.fetch.most("u", "b") == 1000


def test_request_time_is_muted_for_a_window_at_most() -> None:
    found = quotas()
    found.configured(Entity(None, "c"), {"request_percentage": "1"})
    assert found.request_time("u", "c", 100_000_000, 0) == 0  # 1 % of 10 s
    assert found.request_time("u", "c", 100_000_000, 0) == 1000


def test_a_strict_mutation_quota_refuses_and_a_permissive_one_throttles() -> None:
    found = quotas(controller_quota_window_num=2)
    found.configured(Entity("u", None), {"controller_mutation_rate": "2"})
    found.mutations("u", "c", True, 0).charge(5)  # of a burst of 4: one debt is let through
    strict = found.mutations("u", "c", True, 0)
    with pytest.raises(ApiError) as refused:
        strict.charge(1)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert strict.throttle_ms == 500
    permissive = found.mutations("u", "c", False, 0)
    permissive.charge(1)
    assert permissive.throttle_ms == 1000
    found.mutations("u", "c", True, 1000).charge(1)


def test_idle_clients_are_forgotten() -> None:
    found = quotas()
    found.configured(Entity(None, DEFAULT), {"producer_byte_rate": "1"})
    for i in range(5000):
        found.produce.record("u", f"client-{i}", 1, i * 100)
    assert len(found.produce._sensors) <= 1000


def test_series_have_kafkas_names() -> None:
    found = quotas()
    found.configured(Entity("a b", None), {"producer_byte_rate": "100"})
    found.produce.record("a b", "c", 2000, 0)
    found.produce.throttled("a b", "c", 300, 0)
    found.produce.throttled("a b", "c", 100, 0)
    families = {f.name: [(s.labels, s.value) for s in f.samples] for f in found.families(0)}
    who = (("user", "a%20b"), ("client_id", ""))
    assert families["kafka_server_produce_byte_rate"] == [(who, 200.0)]
    assert families["kafka_server_produce_throttle_time"] == [(who, 200.0)]
    assert families["kafka_server_fetch_byte_rate"] == []


@pytest.mark.parametrize("version", range(3, 10))
def test_a_produce_answer_says_its_throttle_time(version: int) -> None:
    body = produce_response([PartitionResult(TopicPartition("t", 0), 0, 7)], version)
    response = throttled(Response(parts=[body]), 0, version, 1234)
    assert response.throttle_ms == 1234
    assert response.parts == [
        produce_response([PartitionResult(TopicPartition("t", 0), 0, 7)], version, 1234)
    ]


@pytest.mark.parametrize("version", range(4, 13))
def test_a_fetch_answer_says_its_throttle_time(version: int) -> None:
    fetched = [FetchedPartition(TopicPartition("t", 0), 0, 1, 1, 0, b"abc", 3)]
    response = throttled(Response(parts=response_parts(version, 0, 5, fetched)), 1, version, 77)
    assert response.parts == response_parts(version, 0, 5, fetched, 77)


@pytest.mark.parametrize("version", range(10))
def test_a_metadata_answer_says_its_throttle_time_where_the_version_has_it(version: int) -> None:
    message = MetadataResponse(brokers=[], controller_id=1, topics=[], cluster_id="c")
    body = bytes(encode_response(message, version))
    response = throttled(Response(parts=(body,)), 3, version, 9)
    assert response.parts is not None
    found = decode_response(3, version, response.parts[0])  # type: ignore[arg-type]
    if version >= 3:
        assert found.throttle_time_ms == 9
        assert unpack(">i", bytes(response.parts[0])[:4]) == (9,)  # type: ignore[arg-type]
    else:
        assert bytes(response.parts[0]) == body  # type: ignore[arg-type]


def test_any_other_answer_has_a_field_for_it_and_the_longer_time_counts() -> None:
    response = throttled(Response(HeartbeatResponse(error_code=0), throttle_ms=50), 12, 3, 20)
    assert (response.throttle_ms, response.message.throttle_time_ms) == (50, 50)
    response = throttled(Response(HeartbeatResponse(error_code=0)), 12, 0, 20)
    assert response.throttle_ms == 20
