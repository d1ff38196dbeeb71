"""Free memory is made page cache, until no more is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from highwater.bench.figures import warm_memory
from highwater.bench.figures.warm_memory import PATIENCE, WarmMemory


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_memory, "CHUNK", 4096)
    monkeypatch.setattr(warm_memory, "AT_ONCE", 4 * 4096)


def telling(monkeypatch: pytest.MonkeyPatch, *megabytes: float) -> list[float]:
    """Gives the free memory, one answer after the other; the last one stays."""
    told: list[float] = []

    def answers() -> Iterator[float]:
        yield from megabytes
        while True:
            yield megabytes[-1]

    source = answers()

    def free_mb() -> float:
        told.append(next(source))
        return told[-1]

    monkeypatch.setattr(warm_memory, "free_mb", free_mb)
    return told


@pytest.mark.usefixtures("small_pieces")
def test_it_reads_until_less_is_not_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = telling(monkeypatch, 1000, 700, 750, 400, 100, 120)
    with WarmMemory(tmp_path / "new", print) as warm:
        assert warm.fill() == 900
        assert len(told) == 5 + PATIENCE
        assert warm.fill() == 0
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.usefixtures("small_pieces")
def test_where_nothing_is_known_nothing_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = telling(monkeypatch, 0.0)
    with WarmMemory(tmp_path, print) as warm:
        assert warm.fill() == 0
    assert told == [0.0]


def test_what_is_free_is_told() -> None:
    assert 0 < warm_memory.free_mb() < 1e8
