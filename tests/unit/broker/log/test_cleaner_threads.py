"""log.cleaner.threads changes while the cleaners run."""

from __future__ import annotations

from pathlib import Path

import trio
import trio.testing

from highwater.broker.log.cleaner.offset_map import ENTRY_BYTES
from tests.unit.broker.log.cleaner.test_work import Cleaned


async def settled(cleaned: Cleaned, threads: int) -> int:
    """The number of cleaners once they have heard of the change, with no time passing."""
    cleaned.config.change({"log_cleaner_threads": threads})
    cleaned.cleaner.resize()
    await trio.testing.wait_all_tasks_blocked()
    return cleaned.cleaner.tasks


async def test_cleaners_are_started_and_ended(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    cleaned = Cleaned(str(tmp_path), log_cleaner_backoff_ms=60_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cleaned.cleaner.run)
        await trio.testing.wait_all_tasks_blocked()
        assert cleaned.cleaner.tasks == 1
        started = trio.current_time()
        for threads in (2, 4, 2, 1, 2):
            assert await settled(cleaned, threads) == threads
        assert trio.current_time() == started, "none waits for the end of its rest"
        await cleaned.cleaner.stop()
    assert cleaned.cleaner.tasks == 0


async def test_a_cleaner_that_is_not_needed_completes_its_log(tmp_path: Path) -> None:
    cleaned = Cleaned(str(tmp_path), log_cleaner_threads=2, log_cleaner_backoff_ms=60_000)
    await trio.lowlevel.checkpoint()
    for n in range(40):
        cleaned.add([(b"same", b"v%d" % n)])
    cleaned.all_committed()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cleaned.cleaner.run)
        with trio.fail_after(30):
            while not cleaned.logs.cleaning:
                await trio.lowlevel.checkpoint()
            cleaned.config.change({"log_cleaner_threads": 0})
            cleaned.cleaner.resize()
            while cleaned.cleaner.tasks:
                await trio.lowlevel.checkpoint()
        assert cleaned.logs.cleaned_to(cleaned.log) == cleaned.log.segments[-1].base_offset
        assert not cleaned.cleaner.last, "its figures are not shown any more"
        await cleaned.cleaner.stop()


def test_the_memory_of_a_cleaner(tmp_path: Path) -> None:
    cleaned = Cleaned(
        str(tmp_path), log_cleaner_threads=2, log_cleaner_dedupe_buffer_size=2 * 100 * ENTRY_BYTES,
        log_cleaner_io_buffer_load_factor=0.25, log_cleaner_io_buffer_size=4000,
    )  # fmt: skip
    cleaned.add([(b"k", b"v")])
    cleaned.all_committed()
    (candidate,) = cleaned.cleaner.candidates()
    job = cleaned.cleaner._job(candidate)
    assert (job.map_capacity, job.io_bytes) == (25, 1000)
