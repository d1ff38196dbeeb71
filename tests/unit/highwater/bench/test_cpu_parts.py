"""The profiler's stacks, counted by part."""

from __future__ import annotations

from collections import Counter

from highwater.bench.cpu_parts import LOOP, OTHER, PARTS, Parts, Profile, part_of, read_stacks

LOOPED = "run (/v/trio/_core/_run.py:10)"
STACKS = f"""\
{LOOPED};_work (/c/highwater/broker/network/processor.py:1);read (/c/highwater/broker/network/connection.py:9) 30
{LOOPED};handle (/c/broker/handlers/produce.py:1);append (/c/broker/log/log.py:2) 50
{LOOPED};handle (/c/broker/handlers/produce.py:1);checked (/c/broker/log/validation.py:2) 10
{LOOPED};{LOOPED} 9
main (/c/else.py:1) 1
no frames here
"""  # noqa: E501


def test_samples_are_counted_by_the_innermost_part() -> None:
    parts, innermost = read_stacks(STACKS)
    assert parts == Counter({"write": 50, "receive and send": 30, "check": 10, LOOP: 9, OTHER: 1})
    assert innermost["broker/log/log.py: append"] == 50


def test_a_library_counts_for_its_caller_and_the_loop_only_for_itself() -> None:
    crc = "crc (/site-packages/fastcrc/crc.py:1)"
    assert part_of([LOOPED, "checked (/c/broker/log/validation.py:2)", crc]) == "check"
    assert part_of([LOOPED, "reschedule (/v/trio/_core/_run.py:3)"]) == LOOP


def test_the_table_splits_the_time_of_a_batch() -> None:
    parts, _ = read_stacks(STACKS)
    shown = Profile([Parts("16 KiB batches", 1000.0, 250.0, 61.0, parts, [])]).markdown()
    assert "| write | 375 (38%) |" in shown
    assert "| **all** | 1000 |" in shown
    assert "| the kernel | 250 (25%) |" in shown
    assert "handle" not in shown
    assert {name for name, _ in PARTS} >= set(parts) - {OTHER}
