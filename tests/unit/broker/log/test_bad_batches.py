"""A log with batches that no reader can open, as older versions stored them: nothing ends in a
traceback on it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import trio

from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.parts import Origin
from highwater.broker.log.validation import checked
from highwater.kafka.errors import ApiError
from tests.integration.oracle.made_batches import DAMAGES, good
from tests.unit.broker.log.cleaner.test_work import COMPACT, Cleaned
from tests.unit.broker.log.conftest import START_MS, Logs

HEADERS = LogConfig(produce_validation="headers", max_message_bytes=1 << 27)
BIG = replace(COMPACT, segment_bytes=1 << 20)
EACH = 12


def bad_batches(damage: str) -> list[bytearray]:
    """Batches that full validation refuses, and that of headers takes."""
    found = []
    for number in range(EACH):
        chance = Random(f"{damage} {number}")
        made = good(chance, START_MS)
        DAMAGES[damage](made, chance)
        data = made.encoded()
        with suppress(ApiError):
            checked(memoryview(bytearray(data)), HEADERS, Origin.CLIENT, START_MS)
            try:
                checked(memoryview(bytearray(data)), LogConfig(), Origin.CLIENT, START_MS)
            except ApiError:
                found.append(bytearray(data))
    return found


KINDS = [name for name in DAMAGES if bad_batches(name)]


def test_there_are_many_kinds() -> None:
    assert len(KINDS) >= 10, KINDS
    assert {"codec_bits", "cut", "junk", "count_and_delta", "record_length"} <= set(KINDS)


@pytest.mark.parametrize("damage", KINDS)
def test_recovery_and_searches(logs: Logs, damage: str) -> None:
    log = logs.open(HEADERS)
    for data in bad_batches(damage):
        view, headers = checked(memoryview(data), HEADERS, Origin.CLIENT, START_MS)
        log.append_as_leader(view, headers, 0, START_MS)
    end = log.log_end_offset
    log.close_files()
    again = logs.open(HEADERS)
    assert again.log_end_offset == end > 0
    for timestamp in (0, START_MS - 50_000, START_MS, 2**62):
        with suppress(ApiError):
            again.offset_for_timestamp(timestamp)
    with suppress(ApiError):
        again.max_timestamp_offset()
    assert again.read(0, 1 << 20, end).size > 0


@pytest.mark.parametrize("damage", KINDS)
def test_compaction_leaves_the_log_as_it_is_and_says_why(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        for number, data in enumerate(bad_batches(damage)):
            work = Cleaned(str(tmp_path / str(number)), BIG)
            view, headers = checked(memoryview(data), HEADERS, Origin.CLIENT, START_MS)
            work.log.append_as_leader(view, headers, 0, START_MS)
            work.all_committed()
            before = work.log.log_end_offset
            with caplog.at_level(logging.ERROR):
                await work.clean()
            assert work.log.log_end_offset == before
            assert not [record for record in caplog.records if record.exc_info]

    trio.run(main)
