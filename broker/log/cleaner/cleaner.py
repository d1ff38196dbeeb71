"""The log cleaner: keeps the last record of each key in a compacted log (cleanup.policy=compact).

log.cleaner.threads tasks, whose number may change while they run, each take the dirtiest log
(`plan`), have it cleaned in steps (`work`), and put each new segment in place (`replacement`).
When a cleaning is complete, `cleaner-offset-checkpoint` notes how far the log is clean.  A crash
before that costs only the work: to clean a clean log again changes nothing.

The event loop does only short work: the choice, and a few renames a segment.  Reading and writing
happen apart (`Disk.apart`), in another process unless there is little to do, on files that do not
change: inactive segments, below the last stable offset.  A log may still be deleted meanwhile, be
cut after an unclean election, or lose its oldest segments.  So the old segments must be unchanged
when a new one is put in their place; otherwise the cleaning is dropped and tried again later.

While a replica is out of the ISR, no tombstone and no marker is removed, however old: the replica
would come back with the deleted value, or with a transaction that has not ended.  Apache Kafka
removes them after delete.retention.ms, whichever replica is away.

A log that cannot be cleaned (a damaged batch) is left alone from then on, and counted: Kafka calls
such a partition uncleanable.  A failing disk takes the whole log directory offline, as everywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from highwater.broker.log.cleaner.offset_map import capacity_for
from highwater.broker.log.cleaner.plan import Candidate, dirtiest, inspect
from highwater.broker.log.cleaner.record_filter import last_record
from highwater.broker.log.cleaner.replacement import (
    remove_unfinished,
    replace_segments,
    stand_unchanged,
)
from highwater.broker.log.cleaner.work import CLEANED, CleanJob, Group, Mapped, Source, clean_log
from highwater.broker.log.index import TimeIndex
from highwater.broker.log.log import Log
from highwater.broker.log.log_manager import LogManager
from highwater.broker.log.segment import Segment, segment_path
from highwater.broker.log.txnindex import AbortedTransaction
from highwater.kafka.config import Config
from highwater.kafka.errors import ApiError
from highwater.kafka.types import TopicPartition
from highwater.world.api import ApartError, Clock, Disk, Steps

__all__ = ["CleanerStats", "LogCleaner"]

logger = logging.getLogger(__name__)

SMALL_BYTES = 256 << 10
"""A smaller cleaning is done in a worker thread: it takes a few milliseconds."""


@dataclass(slots=True)
class CleanerStats:
    """Numbers of one cleaner's last cleaning."""

    end_offset: int = 0
    """The first offset that is not clean."""
    buffer_utilization: float = 0.0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    elapsed_s: float = 0.0
    max_delay_ms: int = 0


@dataclass(slots=True)
class _Cleaning:
    """One log that is being cleaned."""

    log: Log
    truncations: int
    segments: dict[int, Segment]
    stats: CleanerStats = field(default_factory=CleanerStats)


class LogCleaner:
    """The cleaner of one broker.  `LogManager.cleaning` names the logs that it works on."""

    def __init__(
        self,
        logs: LogManager,
        disk: Disk,
        clock: Clock,
        config: Config,
        all_in_sync: Callable[[TopicPartition], bool],
    ) -> None:
        self.uncleanable: dict[TopicPartition, str] = {}
        """The logs that are left alone, and the reason for each."""
        self.last: dict[int, CleanerStats] = {}
        """The last cleaning of each running cleaner that has cleaned something, by its number."""
        self.max_dirty_ratio = 0.0
        self.last_run_ms = clock.wall_ms()
        self._logs = logs
        self._disk = disk
        self._clock = clock
        self._config = config
        self.all_in_sync = all_in_sync
        """Whether all replicas of a partition are in the ISR (`replica/all_in_sync`)."""
        self._nursery: trio.Nursery | None = None
        self._started: set[int] = set()
        self._resting: dict[int, trio.CancelScope] = {}
        self._running = trio.CancelScope()
        self._ended = trio.Event()

    async def run(self) -> None:
        """Runs until cancelled or stopped."""
        try:
            with self._running:
                async with trio.open_nursery() as self._nursery:
                    self.resize()
                    await trio.sleep_forever()
        finally:
            self._nursery = None
            self._ended.set()

    @property
    def tasks(self) -> int:
        """The number of running cleaners."""
        return 0 if self._nursery is None else len(self._nursery.child_tasks)

    def resize(self) -> None:
        """Applies log.cleaner.threads: starts the missing cleaners, and ends those above it.

        Unlike in Kafka no cleaning is broken off: a cleaner completes its log before it ends.
        """
        wanted = self._config.log_cleaner_threads
        for number in range(wanted):
            if number not in self._started and self._nursery is not None:
                self._started.add(number)
                self._nursery.start_soon(self._clean_for_ever, number)
        for number, rest in self._resting.items():
            if number >= wanted:
                rest.cancel()

    async def stop(self) -> None:
        """Ends all cleaning, before the logs are closed; unfinished logs stay as they were."""
        self._running.cancel()
        await self._ended.wait()

    async def _clean_for_ever(self, number: int) -> None:
        while number < self._config.log_cleaner_threads:
            if not await self.clean_next(number):
                with trio.CancelScope() as self._resting[number]:
                    await trio.sleep(self._config.log_cleaner_backoff_ms / 1000)
                del self._resting[number]
            await trio.lowlevel.checkpoint()
        self._started.discard(number)
        self.last.pop(number, None)

    # ------------------------------------------------------------------------------ choosing

    def candidates(self) -> list[Candidate]:
        """Every compacted log that is not being cleaned or moved, and not known to be damaged."""
        now = self._clock.wall_ms()
        for tp in [tp for tp in self.uncleanable if tp not in self._logs.logs]:
            del self.uncleanable[tp]
        found = []
        logs = self._logs
        passed_over = (logs.cleaning, self.uncleanable, logs.futures.logs)
        for tp, log in sorted(logs.logs.items()):
            if log.config.compacts and not any(tp in those for those in passed_over):
                found.append(inspect(log, self._logs.cleaned_to(log), now))
        return found

    async def clean_next(self, number: int = 0) -> bool:
        """Cleans the dirtiest log, if one is dirty enough; returns whether one was."""
        self.last_run_ms = self._clock.wall_ms()
        candidates = self.candidates()
        self.max_dirty_ratio = max((c.ratio for c in candidates), default=0.0)
        chosen = dirtiest(candidates)
        if chosen is None:
            return False
        delay = max(c.delay_ms for c in candidates)
        return await self.clean(chosen, number, delay)

    async def clean(self, candidate: Candidate, number: int = 0, delay_ms: int = 0) -> bool:
        """Cleans one log; returns whether it was completed."""
        log = candidate.log
        logger.debug("cleaning %s from offset %d", log.tp, candidate.first_dirty)
        self._logs.cleaning[log.tp] = None
        started = self._clock.perf_ns()
        cleaning = _Cleaning(log, log.truncations, {s.base_offset: s for s in log.segments})
        cleaning.stats.max_delay_ms = delay_ms
        try:
            done = await self._steps(cleaning, self._job(candidate))
        except OSError as error:
            if not log.deleted:
                self._logs.fail_dir(self._logs.dir_of(log), error)
            return False
        except ApartError as error:
            logger.warning("%s is not cleaned now: %s", log.tp, error)
            return False
        except ApiError as error:
            self._give_up(log, error.detail or str(error))
            return False
        except Exception as error:
            self._give_up(log, f"{type(error).__name__}: {error}", error)
            return False
        finally:
            self._logs.cleaning.pop(log.tp, None)
        cleaning.stats.elapsed_s = (self._clock.perf_ns() - started) / 1e9
        if done:
            self.last[number] = cleaning.stats
            self._report(log, candidate.first_dirty, cleaning.stats)
        return done

    def _give_up(self, log: Log, why: str, mistake: Exception | None = None) -> None:
        self.uncleanable[log.tp] = why
        logger.error(
            "%s cannot be cleaned and is left as it is until the broker starts again: %s",
            log.tp,
            why,
            exc_info=mistake,
        )

    def _share(self, whole: float) -> float:
        """One cleaner's share of a limit for all; the configuration may change at any time."""
        return whole / max(1, self._config.log_cleaner_threads)

    def _job(self, candidate: Candidate) -> CleanJob:
        log, config = candidate.log, candidate.log.config
        sources = []
        for segment, following in zip(log.segments, log.segments[1:], strict=False):
            if segment.base_offset < candidate.end:
                # an index has at most one entry for each interval
                entries = segment.size // (config.index_interval_bytes + 1)
                sources.append(
                    Source(
                        segment.base_offset,
                        segment.file.path,
                        segment.size,
                        following.base_offset,
                        entries * TimeIndex.ENTRY,
                    )
                )
        return CleanJob(
            folder=log.dir,
            sources=tuple(sources),
            first_dirty=candidate.first_dirty,
            end=candidate.end,
            log_end=log.log_end_offset,
            map_capacity=capacity_for(
                int(self._share(self._config.log_cleaner_dedupe_buffer_size)),
                self._config.log_cleaner_io_buffer_load_factor,
            ),
            io_bytes=int(self._share(self._config.log_cleaner_io_buffer_size)) // 2,
            now_ms=self._clock.wall_ms(),
            delete_retention_ms=config.delete_retention_ms,
            all_in_sync=self.all_in_sync(log.tp),
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            producers={
                entry.producer_id: last_record(entry, log.high_watermark)
                for entry in log.producers.entries
            },
            aborted=tuple(_aborted(log, candidate.end)),
        )

    # ------------------------------------------------------------------------------ cleaning

    async def _steps(self, cleaning: _Cleaning, job: CleanJob) -> bool:
        stats = cleaning.stats
        small = sum(source.size for source in job.sources) < SMALL_BYTES
        rate = self._share(self._config.log_cleaner_io_max_bytes_per_second)
        async with self._disk.apart(clean_log, job, bytes_per_second=rate, small=small) as steps:
            mapped = await steps.next()
            if not isinstance(mapped, Mapped):
                raise AssertionError(f"{mapped} is not the first step of a cleaning")
            stats.end_offset, stats.buffer_utilization = mapped.end_offset, mapped.utilization
            if not await self._groups(cleaning, steps):
                return False
        await cleaning.log.disk.sync_dir(cleaning.log.dir)
        if cleaning.log.deleted or cleaning.log.truncations != cleaning.truncations:
            return False
        self._logs.note_cleaned(cleaning.log, stats.end_offset)
        return True

    async def _groups(self, cleaning: _Cleaning, steps: Steps[Mapped | Group]) -> bool:
        log, stats = cleaning.log, cleaning.stats
        while True:
            group = await steps.next()
            if group is None:
                return True
            assert isinstance(group, Group)
            await self._flush(log, group)
            old = [cleaning.segments[base] for base in group.replaced]
            if log.deleted:
                return False
            if not stand_unchanged(log, old, cleaning.truncations):
                remove_unfinished(log, group)
                return False
            replace_segments(log, old, group)
            stats.bytes_read += group.bytes_read
            stats.bytes_written += group.bytes_written
            stats.records_read += group.records_read
            stats.records_written += group.records_written

    async def _flush(self, log: Log, group: Group) -> None:
        """Flushes a group's new files: only then may the old ones be deleted."""
        for suffix in group.suffixes:
            file = log.disk.open(segment_path(log.dir, group.base_offset, suffix) + CLEANED)
            try:
                await file.flush()
            finally:
                file.close()

    def _report(self, log: Log, start: int, stats: CleanerStats) -> None:
        logger.info(
            "%s cleaned from offset %d to %d in %.1f s: %d of %d records and %d of %d bytes stay",
            log.tp,
            start,
            stats.end_offset,
            stats.elapsed_s,
            stats.records_written,
            stats.records_read,
            stats.bytes_written,
            stats.bytes_read,
        )

    # ------------------------------------------------------------------------------- numbers

    def uncleanable_in(self, folder: str) -> list[Log]:
        """The logs of one log directory that are left alone."""
        logs = (self._logs.logs.get(tp) for tp in self.uncleanable)
        return [log for log in logs if log is not None and self._logs.dir_of(log) == folder]

    def uncleanable_bytes(self, folder: str) -> int:
        """The bytes of those logs that would be cleaned."""
        now = self._clock.wall_ms()
        return sum(
            inspect(log, self._logs.cleaned_to(log), now).cleanable_bytes
            for log in self.uncleanable_in(folder)
        )


def _aborted(log: Log, end: int) -> list[AbortedTransaction]:
    """Aborted transactions with records below `end`; their markers may lie above."""
    found: list[AbortedTransaction] = []
    for segment in log.segments:
        if segment.txn_index.search(log.segments[0].base_offset, end, found):
            break
    return found
