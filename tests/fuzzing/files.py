"""Damaged files of a log, as a broker may find them at its start.

A log is opened, or refused with an error that the broker knows (its log directory is offline then).
An opened one holds only batches that were written, in their order; all of them if its segments are
whole; and it takes and keeps the next one.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import trio

from highwater.broker.log.log import Log
from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.recovery import UnreadableLogError
from highwater.kafka.wire.records import TRANSACTIONAL, Marker, batches, build_marker, check_crc
from tests.fuzzing.requests import damaged
from tests.unit.broker.log.conftest import OWN, START_MS, Logs, batch, bytes_of, lead

CONFIG = LogConfig(index_interval_bytes=100, segment_bytes=700)


def template(folder: Path) -> bytes:
    """A log that was closed: segments, producers, transactions, epochs; gives its batches."""
    log = Logs(str(folder)).open(CONFIG)
    for n in range(24):
        lead(log, batch(n % 3 + 1, producer=(n % 3, 0, n // 3 * (n % 3 + 1))), epoch=n // 5)
        if n % 8 == 7:
            lead(log, batch(producer=(9, 0, n // 8), attributes=TRANSACTIONAL), epoch=n // 5)
            marker = build_marker(Marker(n == 7, 0), 9, 0, START_MS)
            lead(log, marker, epoch=n // 5, origin=OWN)
    whole = bytes_of(log)
    trio.run(_closed, log)
    return whole


async def _closed(log: Log) -> None:
    await log.flush()
    log.close()


def check_damaged(chance: Random, kept: Path, whole: bytes, folder: Path) -> str:
    """Damages a copy of the log, and opens it twice; gives what came of it."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(kept, folder)
    files = sorted(folder.iterdir())
    segments_whole = True
    for path in chance.sample(files, chance.choice((1, 1, 2, 4))):
        data = path.read_bytes()
        changed = damaged(chance, data) if chance.random() < 0.8 else chance.randbytes(len(data))
        if chance.random() < 0.1:
            changed = b""
        segments_whole = segments_whole and (path.suffix != ".log" or changed == data)
        path.write_bytes(changed)
        if chance.random() < 0.05:
            path.unlink()
            segments_whole = segments_whole and path.suffix != ".log"
    clean = chance.random() < 0.5
    logs = Logs(str(folder))
    point = chance.choice((0, 0, 10, 1 << 40))
    start = chance.choice((0, 0, 0, 5, 1 << 40))
    try:
        log = logs.open(CONFIG, clean=clean, recovery_point=point, log_start_offset=start)
    except (OSError, UnreadableLogError) as error:
        return f"refused: {type(error).__name__}"
    if segments_whole and start <= 5:
        assert bytes_of(log) == whole, "an undamaged segment lost batches"
    if not clean and point == 0:
        for segment in log.segments:
            data = segment.file.read(0, segment.size)
            for header in batches(data):
                assert check_crc(data, header), "a damaged batch was kept"
    _goes_on(log, logs)
    return "opened"


def _goes_on(log: Log, logs: Logs) -> None:
    before = log.log_end_offset
    lead(log, batch(2), epoch=max(log.epochs.latest, 0))
    assert log.log_end_offset == before + 2
    data = bytes_of(log)
    trio.run(_closed, log)
    start, end = log.log_start_offset, log.log_end_offset
    again = logs.open(CONFIG, clean=True, recovery_point=end, log_start_offset=start)
    assert again.log_end_offset == before + 2
    assert bytes_of(again) == data
    again.close()
