"""Any file of a log may be damaged at a start (`tests/fuzzing/files.py` says what holds)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from highwater.broker.log.recovery import DamagedLogError
from tests.fuzzing.files import CONFIG, check_damaged, template
from tests.unit.broker.log.conftest import Logs, bytes_of

Kept = tuple[Path, bytes, Path]


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "kept"
        folder.mkdir()
        yield folder, template(folder), Path(name) / "log"


def test_a_time_index_that_was_deleted_is_made_again(kept: Kept) -> None:
    """As operators do it; found as `files 2575` of `scripts/long fuzz`."""
    folder, whole, place = kept
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place)
    for path in place.glob("*.timeindex"):
        path.unlink()
    log = Logs(str(place)).open(CONFIG, clean=True)
    trio.run(log.flush)
    assert bytes_of(log) == whole
    log.close()
    assert [path.name for path in place.glob("*.timeindex")] == ["00000000000000000052.timeindex"]


def test_a_damaged_marker_that_nobody_suspects_is_refused_with_the_remedy(kept: Kept) -> None:
    """Found as `files 36809` of `scripts/long fuzz`: the broker ended with a traceback."""
    folder, whole, place = kept
    shutil.rmtree(place, ignore_errors=True)
    assert check_damaged(Random("files 36809"), folder, whole, place) == "refused: DamagedLogError"
    with pytest.raises(
        DamagedLogError, match=r"no marker is in the batch .*; delete .*-checkpoint"
    ):
        Logs(str(place)).open(CONFIG, clean=True)


def test_a_damaged_segment_that_nobody_suspects_is_refused_with_the_remedy(kept: Kept) -> None:
    """Found as `files 4443` of `scripts/long fuzz`: it was an error without a remedy."""
    folder, whole, place = kept
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place)
    for path in place.glob("*.snapshot"):
        path.unlink()
    segment = place / "00000000000000000037.log"
    damaged = bytes(61) + segment.read_bytes()[61:]
    segment.write_bytes(damaged)
    with pytest.raises(
        DamagedLogError, match=r"37.log: no record batch .*; delete .*-checkpoint to"
    ):
        Logs(str(place)).open(CONFIG, clean=True)
    assert segment.read_bytes() == damaged
    log = Logs(str(place)).open(CONFIG, clean=False)
    assert log.log_end_offset == 37
    assert whole.startswith(bytes_of(log))
    log.close()


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(chance=st.randoms(use_true_random=False))
@example(chance=Random("files 0"))
def test_a_log_with_damaged_files_opens_and_goes_on(kept: Kept, chance: Random) -> None:
    folder, whole, place = kept
    check_damaged(chance, folder, whole, place)
