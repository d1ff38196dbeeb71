"""What a full segment costs in memory: its index, not a place for each of its batches."""

from __future__ import annotations

import tracemalloc

import pytest

from highwater.broker.log.log_config import LogConfig

from .conftest import Logs, batch, lead

SEGMENTS, SEGMENT_BYTES = 40, 100_000
CONFIG = LogConfig(segment_bytes=SEGMENT_BYTES)
SMALL = 8_192
"""Bytes a segment; places of its 1,400 batches are 110,000."""


@pytest.mark.thorough
def test_a_log_that_grows_by_full_segments_hardly_takes_memory(logs: Logs) -> None:
    log = logs.open(CONFIG)
    data = batch(1)
    tracemalloc.start()
    try:
        while len(log.segments) <= 2:
            lead(log, bytearray(data))
        before = tracemalloc.get_traced_memory()[0]
        while len(log.segments) <= 2 + SEGMENTS:
            lead(log, bytearray(data))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < SEGMENTS * SMALL, grown


@pytest.mark.thorough
def test_segments_that_were_recovered_hardly_take_memory(logs: Logs) -> None:
    log = logs.open(CONFIG)
    data = batch(1)
    while len(log.segments) <= SEGMENTS:
        lead(log, bytearray(data))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        found = logs.open(CONFIG)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert found.log_end_offset == log.log_end_offset > 0
    assert grown < SEGMENTS * SMALL, grown
