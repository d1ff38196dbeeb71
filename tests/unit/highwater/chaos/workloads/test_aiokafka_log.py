"""aiokafka's own log lines, as its connection writes them, become lines of the history."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.protocol.commit import OffsetFetchRequest_v3, OffsetFetchResponse_v3

from highwater.chaos.workloads.aiokafka_log import LOGGER, OffsetFetchAnswers

NOT_COORDINATOR, UNKNOWN_TOPIC = 16, 3
Line = tuple[str, str, dict[str, Any]]


@pytest.fixture
def lines() -> Iterator[list[Line]]:
    """The lines written while the log is followed."""
    written: list[Line] = []
    logger = logging.getLogger(LOGGER)
    before = logger.level, logger.propagate
    made = OffsetFetchAnswers.follow(lambda f, type_, **more: written.append((f, type_, more)))
    yield written
    logger.removeHandler(made)
    logger.setLevel(before[0])
    logger.propagate = before[1]


def exchange(answer: Any, *partitions: int) -> None:
    """One request and its answer, in the words of aiokafka's `AIOKafkaConnection`."""
    log = logging.getLogger(LOGGER)
    request = OffsetFetchRequest_v3("g", [("t", list(partitions))])
    log.debug("Request to %s:%d %d: %s", "h", 9092, 7, request)
    log.debug("Response from %s:%d %d: %s", "h", 9092, 7, answer)


def test_an_error_for_the_whole_is_each_partitions(lines: list[Line]) -> None:
    exchange(OffsetFetchResponse_v3(0, [], NOT_COORDINATOR), 0, 2)
    common = {"topic": "t", "error": "NOT_COORDINATOR"}
    assert lines == [
        ("offset_fetch", "fail", {**common, "partition": 0}),
        ("offset_fetch", "fail", {**common, "partition": 2}),
    ]


def test_offsets_and_partitions_errors(lines: list[Line]) -> None:
    places = [(0, 61, "", 0), (1, -1, "", 0), (2, -1, "", UNKNOWN_TOPIC)]
    exchange(OffsetFetchResponse_v3(0, [("t", places)], 0), 0, 1, 2)
    assert [(kind, more.get("offset"), more.get("error")) for _, kind, more in lines] == [
        ("ok", 61, None),
        ("ok", -1, None),
        ("fail", None, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]


def test_other_lines_are_nothing(lines: list[Line]) -> None:
    logging.getLogger(LOGGER).debug("Closing connection at %s:%s (%s, %s)", "h", 9092, None, None)
    assert not lines
