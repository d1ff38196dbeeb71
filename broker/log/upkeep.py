"""Does on request, and at once, what a log does in its own time: roll a segment, retain, compact.

This serves tests of applications, which would otherwise set six properties and sleep.  The topic's
own properties hold: retention deletes only what is due, and compaction leaves alone what
min.compaction.lag.ms protects, what is not replicated, and what an open transaction holds back.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import trio

from highwater.broker.log.cleaner.plan import inspect, last_stable_offset
from highwater.broker.log.dirs.guard import Guard
from highwater.kafka.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from highwater.broker.log.cleaner.cleaner import LogCleaner
    from highwater.broker.log.log import Log
    from highwater.broker.log.log_manager import LogManager

AGAIN_S, LONGEST_S = 0.01, 50.0
REPLICATED_S = 5.0
"""How long retention and compaction wait for the high watermark to reach the log's end."""


class Work(IntEnum):
    ROLL = 0
    RETAIN = 1
    COMPACT = 2


class Done(NamedTuple):
    """The result for one log."""

    changed: int
    """Segments begun or deleted; for compaction, bytes removed."""
    log_start_offset: int
    size: int
    """The log's size in bytes."""


class Upkeep:
    def __init__(self, logs: LogManager, cleaner: LogCleaner) -> None:
        self._logs = logs
        self._cleaner = cleaner

    async def do(self, work: Work, log: Log) -> Done:
        """Does the work now.  Raises ApiError; a disk error takes the directory offline."""
        try:
            with (
                trio.fail_after(LONGEST_S),
                Guard(self._logs.fail_dir, self._logs.dir_of(log), log),
            ):
                changed = await self._work(work, log)
                return Done(changed, log.log_start_offset, log.size)
        except trio.TooSlowError:
            detail = f"{log.tp} was not done within {LONGEST_S:g} s"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, detail) from None
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.tp}: its directory has failed")

    async def _work(self, work: Work, log: Log) -> int:
        if work is Work.ROLL:
            return self._roll(log)
        if work is Work.COMPACT:
            return await self._compact(log)
        await self._until_free(log)
        await self._until_replicated(log)
        return self._logs.retain(log)

    def _roll(self, log: Log) -> int:
        if not log.segments[-1].size:
            return 0
        log.roll()
        return 1

    async def _until_free(self, log: Log) -> None:
        while log.tp in self._logs.cleaning:
            await trio.sleep(AGAIN_S)

    async def _until_replicated(self, log: Log) -> None:
        """Waits: a follower learns of a high watermark only with its next fetch."""
        end = log.log_end_offset
        with trio.move_on_after(REPLICATED_S):
            while log.high_watermark < end:
                await trio.sleep(AGAIN_S)

    async def _compact(self, log: Log) -> int:
        if not log.config.compacts:
            detail = f"cleanup.policy of {log.tp.topic} is {log.config.cleanup_policy}, not compact"
            raise ApiError(ErrorCode.POLICY_VIOLATION, detail)
        self._roll(log)
        with trio.move_on_after(REPLICATED_S):
            while last_stable_offset(log) < log.segments[-1].base_offset:
                await trio.sleep(AGAIN_S)
        before, target = log.size, log.segments[-1].base_offset
        while True:
            await self._until_free(log)
            if self._logs.get(log.tp) is not log or log.deleted:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.tp} is gone, or is elsewhere")
            if (why := self._cleaner.uncleanable.get(log.tp)) is not None:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{log.tp} cannot be cleaned: {why}")
            now = self._logs.clock.wall_ms()
            candidate = inspect(log, self._logs.cleaned_to(log), now)
            if not candidate.cleanable_bytes or candidate.first_dirty >= target:
                return max(0, before - log.size)
            if not await self._cleaner.clean(candidate):
                await trio.sleep(AGAIN_S)
