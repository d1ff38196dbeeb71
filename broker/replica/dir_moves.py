"""Moves of replicas between the log directories of one broker (AlterReplicaLogDirs, KIP-113).

A move is a copy that catches up, and then replaces its original.  One task fills all future logs
(`log/dirs/futures`) in turn, a piece at a time: it copies batches unchanged, and leader and
followers notice nothing.  When a copy is complete, and as safe on the disk as the current log, one
step of the event loop exchanges the two, so that no append falls in between.  The partition then
has another log object, with the same offsets, epochs and producers; its role, HW and ISR do not
change.

"As safe" is needed because a follower's fetch, and with flush.messages=1 the HW, promise that
records survive a power loss, and the exchange must keep that promise.  The current log is not
flushed during the last piece, so that the copy can catch up under load.

After a restart the broker finds the future log, and the move goes on.  A compacted log is copied
from the beginning again: it may have been cleaned while the copy's directory was offline.  After a
crash the copy may hold records that the current log lost, so it is first brought in line by epochs,
like a follower with its leader.

Source: kafka.server.ReplicaAlterLogDirsThread, Partition.maybeReplaceCurrentWithFutureReplica.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.log.dirs.guard import Guard
from highwater.broker.log.parts import UnexpectedOffsetError
from highwater.broker.replica.fetch_state import truncation_step
from highwater.broker.replica.partition import Partition, Role
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.records import validate_fetched

if TYPE_CHECKING:
    from highwater.broker.log.log import Log
    from highwater.broker.replica.replica_manager import ReplicaManager

log = logging.getLogger(__name__)

PIECE_BYTES = 256 * 1024
LAST_PIECES = 20
WAIT_S = 0.1
LONGEST_NAME = 255
_FUTURE_SUFFIX = len(".") + 32 + len("-future")


class DirMoves:
    """The moves of one broker."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self._futures = manager.logs.futures
        self._in_line: dict[TopicPartition, Log] = {}
        self._wanted = trio.Event()
        self.moved = 0

    def alter(self, tp: TopicPartition, path: str) -> None:
        """Moves the replica to this log directory; raises ApiError.

        A repeated request is no error.  A request for another directory, or for the present one,
        ends the move that is under way.
        """
        logs, futures = self._manager.logs, self._futures
        if len(str(tp)) + _FUTURE_SUFFIX > LONGEST_NAME:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        if path not in self._manager.config.log_dirs:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs")
        if path in logs.offline_dirs:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")
        partition = self._manager.partitions.get(tp)
        if partition is not None and partition.role is Role.OFFLINE:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is offline")
        future = futures.logs.get(tp)
        if future is not None and logs.dir_of(future) == path:
            return
        futures.discard_one(tp)
        if partition is None or partition.log is None:
            futures.prefer(tp, path)
            known = self._manager.is_known(tp)
            raise ApiError(
                ErrorCode.REPLICA_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{tp} has no replica here yet",
            )
        if logs.dir_of(partition.log) == path:
            return
        if logs.offline_dirs:
            which = ", ".join(sorted(logs.offline_dirs))
            detail = f"no replica is moved while a log directory is offline: {which}"
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, detail)
        try:
            self._in_line[tp] = futures.create(tp, path, partition.log.config)
        except OSError as e:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(e)) from e
        log.info("%s: moves from %s to %s", tp, partition.log.dir, path)
        self._wanted.set()

    async def run(self) -> None:
        while True:
            if not self._futures.logs:
                self._in_line.clear()
                self._wanted = trio.Event()
                await self._wanted.wait()
            progress = False
            for tp in sorted(self._futures.logs):
                progress |= await self._advance(tp)
            await trio.sleep(0 if progress else WAIT_S)

    async def _advance(self, tp: TopicPartition) -> bool:
        """Does one step of one move; False if there is nothing to do at the moment."""
        partition, future = self._manager.partitions.get(tp), self._futures.logs.get(tp)
        if partition is None or partition.log is None or future is None:
            return False
        if tp in self._manager.logs.cleaning:
            return False  # else the copy could miss a tombstone; no cleaning begins during a move
        try:
            if self._in_line.get(tp) is not future:
                _bring_in_line(partition.log, future)
                self._in_line[tp] = future
            now_ms = monotonic_ms()
            if self._manager.throttles.log_dirs.exceeded(now_ms):
                return False
            if self._copy(partition, future):
                return True
            return await self._finish(partition, future)
        except OSError as e:
            if not future.deleted:
                self._manager.logs.fail_dir(self._manager.logs.dir_of(future), e)
        except (ApiError, UnexpectedOffsetError) as e:
            log.error("%s: the copy in %s is given up: %s", tp, future.dir, e)
            self._futures.discard_one(tp)
        return False

    def _copy(self, partition: Partition, future: Log) -> int:
        """Copies the next batches from the current log to the future one; returns their bytes.

        Raises OSError if the future log's disk fails, and ApiError if the current one's does.
        """
        current = partition.require_log()
        offset, start = future.log_end_offset, current.log_start_offset
        if offset < start:
            future.truncate_fully_and_start_at(start)
            offset = start
        if offset >= current.log_end_offset:
            return 0
        with self._manager.disk_of(partition):
            piece = current.read(offset, PIECE_BYTES, current.log_end_offset)
            data = piece.file.read(piece.position, piece.size)
        if not data:
            return 0
        view = memoryview(data)
        future.append_as_follower(view, validate_fetched(view))
        self._manager.throttles.log_dirs.record(len(data), monotonic_ms())
        return len(data)

    async def _finish(self, partition: Partition, future: Log) -> bool:
        """Completes a copy that is (nearly) whole: flushes it, and exchanges the two logs."""
        current = partition.require_log()
        async with current.flusher.lock:
            for _ in range(LAST_PIECES):
                await future.flush()
                if (
                    partition.log is not current
                    or self._futures.logs.get(partition.tp) is not future
                ):
                    return False
                while self._copy(partition, future) == PIECE_BYTES:
                    await trio.lowlevel.checkpoint()
                if self._is_whole(current, future):
                    break
            else:
                return True
            self._exchange(partition, current)
        moved = partition.log
        if moved is not None:
            await moved.flush()
            source = self._manager.logs.dir_of(current)  # the old copy must not come back
            with Guard(self._manager.logs.fail_dir, source):
                await moved.disk.sync_dir(source)
        return True

    def _is_whole(self, current: Log, future: Log) -> bool:
        return (
            future.log_end_offset == current.log_end_offset
            and future.recovery_point >= current.recovery_point
            and not future.flush_due
        )

    def _exchange(self, partition: Partition, current: Log) -> None:
        manager, tp = self._manager, partition.tp
        try:
            moved = self._futures.replace_current(tp, partition.high_watermark)
        except OSError as e:
            log.error("%s: could not be moved: %s", tp, e)
            if current.deleted:  # both are gone
                manager.partition_lost(partition)
            return
        partition.log_moved(moved)
        self.moved += 1
        log.info("%s: moved to %s", tp, moved.dir)
        # if the old directory fails now, it must not take this replica with it
        manager.logs.forget_offsets(tp, manager.logs.dir_of(current))
        if moved.flush_due:
            manager.flush_soon(partition)


def _bring_in_line(current: Log, future: Log) -> None:
    """After a restart, cuts from the future log what is not in the current log's history."""
    while future.epochs.latest >= 0:
        epoch, end = current.epochs.end_offset_for(future.epochs.latest, current.log_end_offset)
        step = truncation_step(future, 0, epoch, end)
        future.truncate_to(step.offset)
        if step.done:
            break
    future.truncate_to(min(future.log_end_offset, current.log_end_offset))
