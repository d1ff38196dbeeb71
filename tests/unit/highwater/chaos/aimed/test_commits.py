"""The offsets in __consumer_offsets, of versions that are here and of those to come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from highwater.broker.coordinator.group import records
from highwater.chaos.aimed.commits import CommitWatcher
from highwater.chaos.aimed.windows import AHEAD, Windows
from highwater.kafka.types import TopicPartition


def message(key: bytes | None, value: bytes | None) -> Any:
    return SimpleNamespace(key=lambda: key, value=lambda: value)


def test_offsets_of_the_input_count_and_others_do_not() -> None:
    windows = Windows(lambda: 0.0)
    watcher = CommitWatcher("", "orders", windows)
    for number in range(9):
        windows.sent(f"r-{number}", 1, number)

    def take(topic: str, offset: int, version: int | None = None) -> bytes:
        value = records.CommittedOffset(offset)
        record = records.OffsetRecord("app", TopicPartition(topic, 1), value)
        key, written = records.encode(record)
        assert written is not None
        if version is not None:
            written = version.to_bytes(2) + written[2:] + b"and more"
        watcher._take(message(key, written))
        return key

    key = take("orders", 3)
    assert windows.size(AHEAD) == 3
    take("others", 9)
    assert windows.size(AHEAD) == 3
    take("orders", 5, version=9)
    assert windows.size(AHEAD) == 5
    watcher._take(message(key, None))
    assert windows.size(AHEAD) == 0
    for strange in (None, b"", b"\0", b"\0\2\0\3app", b"\0\x09what"):
        watcher._take(message(strange, b""))
    assert windows.size(AHEAD) == 0
