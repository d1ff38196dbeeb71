"""Any file of a log may be damaged at a start (`tests/fuzzing/files.py` says what holds)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fuzzing.files import check_damaged, template

Kept = tuple[Path, bytes, Path]


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "kept"
        folder.mkdir()
        yield folder, template(folder), Path(name) / "log"


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(chance=st.randoms(use_true_random=False))
@example(chance=Random("files 0"))
def test_a_log_with_damaged_files_opens_and_goes_on(kept: Kept, chance: Random) -> None:
    folder, whole, place = kept
    check_damaged(chance, folder, whole, place)
