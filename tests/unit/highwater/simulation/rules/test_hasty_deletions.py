"""Which early ends of a deleted file's handle are a fault of the broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from highwater.simulation.rules.at_rest import _hasty


def found(*closed: tuple[str, str, float]) -> list[str]:
    """For a broker that runs as "now", whose directory /lost has failed."""
    services = SimpleNamespace(
        world=SimpleNamespace(process="now"), logs=SimpleNamespace(offline_dirs={"/lost"})
    )
    broker: Any = SimpleNamespace(
        services=services, config=SimpleNamespace(log_segment_delete_delay_ms=1000)
    )
    disk: Any = SimpleNamespace(closed=list(closed))
    return list(_hasty(broker, disk))


def test_a_segment_that_is_closed_at_once_is_told() -> None:
    assert found(("now", "/data/a-0/0.log.deleted", 0.25)) == [
        "closed /data/a-0/0.log.deleted 250 ms after it was given that name"
    ]
    assert found(("now", "/data/a-0/0.log.deleted", 0.9999)) == []
    assert found(("now", "/data/a-0/0.index.deleted", 0.0)) == []  # it was read


def test_a_directory_that_fails_closes_its_files() -> None:
    """Seed 1011 --pace 0.1 --power-loss --compacted --retained --disk-errors at 92143da, a false
    alarm (L2): a rename of a cleaned segment failed, and the broker ended."""
    assert found(("then", "/data/a-0/0.log.deleted", 0.0)) == []
    assert found(("now", "/lost/a-0/0.log.deleted", 0.0)) == []
