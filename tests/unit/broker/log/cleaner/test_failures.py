"""What a cleaner does about errors: of the disk, of a log that goes away, and of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from highwater.broker.log.cleaner.plan import Candidate
from tests.unit.broker.log.cleaner.test_work import TP, Cleaned


@pytest.fixture
def cleaned(tmp_path: Path) -> Cleaned:
    cleaned = Cleaned(str(tmp_path))
    for n in range(20):
        cleaned.add([(b"same", b"v%d" % n)])
    cleaned.all_committed()
    return cleaned


def chosen(cleaned: Cleaned) -> Candidate:
    (candidate,) = cleaned.cleaner.candidates()
    return candidate


async def test_an_error_of_the_disk_takes_the_directory_offline(cleaned: Cleaned) -> None:
    candidate = chosen(cleaned)
    Path(cleaned.log.segments[0].file.path).unlink()
    assert not await cleaned.cleaner.clean(candidate)
    assert [type(error) for error in cleaned.failures] == [FileNotFoundError]
    assert TP not in cleaned.logs.logs
    assert not cleaned.cleaner.uncleanable
    assert not cleaned.logs.cleaning


async def test_a_log_that_is_deleted_meanwhile_costs_no_directory(cleaned: Cleaned) -> None:
    candidate = chosen(cleaned)
    Path(cleaned.log.segments[0].file.path).unlink()
    cleaned.log.deleted = True
    assert not await cleaned.cleaner.clean(candidate)
    assert not cleaned.failures
    assert not cleaned.cleaner.uncleanable


async def test_a_mistake_costs_its_log_alone(
    cleaned: Cleaned, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(_: Any) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(cleaned.cleaner, "_job", wrong)
    assert not await cleaned.clean()
    assert cleaned.cleaner.uncleanable == {TP: "ZeroDivisionError: by zero"}
    assert not cleaned.failures
    assert not cleaned.logs.cleaning
    (record,) = [r for r in caplog.records if "cannot be cleaned" in r.message]
    assert record.exc_info
    assert not await cleaned.clean(), "it is not tried again"
