"""cleanup.policy=compact,delete: retention and DeleteRecords beside the cleaner."""

from __future__ import annotations

from dataclasses import replace

from highwater.broker.log.cleaner.plan import inspect
from tests.unit.broker.log.cleaner.test_work import COMPACT, TP, Cleaned, cleaned

__all__ = ["cleaned"]


async def test_compact_and_delete_does_both(cleaned: Cleaned) -> None:
    both = replace(COMPACT, cleanup_policy="compact,delete", retention_ms=10_000)
    log = cleaned.log
    log.config = both
    for n in range(20):
        cleaned.add([(b"k%d" % (n % 3), b"old")])
    cleaned.all_committed()
    await cleaned.clean()
    cleaned.clock.now_ms += 9000
    for n in range(20):
        cleaned.add([(b"k%d" % (n % 3), b"new")])
    cleaned.all_committed()
    await cleaned.clean()
    assert sorted(r[1:] for r in cleaned.records()) == [
        (b"k0", b"new"),
        (b"k1", b"new"),
        (b"k2", b"new"),
        (b"last", b"x"),
        (b"last", b"x"),  # in the active segment, which is not cleaned
    ]
    assert log.log_start_offset == 0, "compaction does not move it"
    cleaned.clock.now_ms += 10_100
    assert log.delete_old_segments(cleaned.clock.now_ms, log.high_watermark)
    assert log.log_start_offset == log.log_end_offset == 42
    cleaned.add([(b"k0", b"after")])
    cleaned.all_committed()
    assert inspect(log, cleaned.logs.cleaned_to(log), cleaned.clock.now_ms).first_dirty == 42


async def test_deleted_records_are_not_cleaned_again(cleaned: Cleaned) -> None:
    log = cleaned.log
    log.config = replace(COMPACT, cleanup_policy="compact,delete")
    for n in range(40):
        cleaned.add([(b"k%d" % n, b"v" * 30)])
    cleaned.all_committed()
    await cleaned.clean()
    assert cleaned.logs.cleaned_to(log) == 40
    for _ in range(10):
        cleaned.add([(b"other", b"v" * 30)])
    cleaned.all_committed()
    log.advance_log_start(45)
    assert log.delete_old_segments(cleaned.clock.now_ms, log.high_watermark)
    assert log.log_start_offset == 45
    assert inspect(log, 40, cleaned.clock.now_ms).first_dirty == 45
    await cleaned.clean()
    assert [r[0] for r in cleaned.records() if r[0] >= 45] == [50, 51]


async def test_retention_leaves_a_log_alone_while_it_is_cleaned(cleaned: Cleaned) -> None:
    log = cleaned.log
    log.config = replace(COMPACT, cleanup_policy="compact,delete", retention_ms=1)
    cleaned.add([(b"k", b"v")])
    cleaned.all_committed()
    cleaned.clock.now_ms += 1000
    cleaned.logs.cleaning[TP] = None
    await cleaned.logs._retention()
    assert log.log_start_offset == 0
    del cleaned.logs.cleaning[TP]
    await cleaned.logs._retention()
    assert log.log_start_offset == log.log_end_offset
