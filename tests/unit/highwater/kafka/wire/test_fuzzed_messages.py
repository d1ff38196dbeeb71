"""Whatever the bytes: a message, BadMessage or BadHeader, and nothing else."""

from __future__ import annotations

import struct
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.broker.handlers import TABLE
from highwater.kafka.errors import ApiError
from highwater.kafka.wire.codec import BadMessage, decode_request
from highwater.kafka.wire.fetch import parse_fetch
from highwater.kafka.wire.header import APIS as KAFKA_APIS
from highwater.kafka.wire.header import BadHeader, parse_request_header
from highwater.kafka.wire.produce import parse_produce
from highwater.kafka.wire.records import records_of_batch, validate_produce
from tests.fuzzing.requests import batches, body_of, damaged, request

pytestmark = pytest.mark.thorough  # all together

APIS = [
    (key, version)
    for key, entry in TABLE.items()
    if key in KAFKA_APIS
    for version in range(entry.api.versions[0], entry.api.versions[1] + 1)
]
_chances = st.randoms(use_true_random=False)


@settings(max_examples=300, deadline=None)
@given(chance=_chances, api=st.sampled_from(APIS))
def test_every_request_is_one_or_is_refused(chance: Random, api: tuple[int, int]) -> None:
    frame = memoryview(request(chance, *api))[4:]
    with suppress(BadHeader, BadMessage):
        header = parse_request_header(frame)
        decode_request(*api, frame[header.body_position :])


@settings(max_examples=100, deadline=None)
@given(chance=_chances, flexible=st.booleans())
def test_produce_and_fetch_raise_what_their_handlers_expect(chance: Random, flexible: bool) -> None:
    versions = (9, 12) if flexible else (8, 11)
    for key, version, parse in ((0, versions[0], parse_produce), (1, versions[1], parse_fetch)):
        with suppress(struct.error, IndexError, ValueError):
            parse(memoryview(damaged(chance, body_of(chance, key, version))), version)


@settings(max_examples=300, deadline=None)
@given(chance=_chances)
def test_every_batch_is_read_or_refused(chance: Random) -> None:
    data = batches(chance)
    with suppress(ApiError):
        header = validate_produce(data, 1 << 20)
        for _ in records_of_batch(data, header):
            pass


@pytest.mark.parametrize("api", APIS, ids=lambda api: f"{api[0]}-{api[1]}")
def test_what_is_made_by_the_schema_is_understood(api: tuple[int, int]) -> None:
    """Else the fuzzing would reach no handler."""
    understood = 0
    for number in range(40):
        with suppress(BadMessage):
            decode_request(*api, body_of(Random(f"{api} {number}"), *api))
            understood += 1
    assert understood > 10
