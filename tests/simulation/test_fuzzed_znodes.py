"""Clusters whose znodes are damaged by chance, one after another (`tests/fuzzing/znodes.py`)."""

from __future__ import annotations

import pytest

from tests.fuzzing.znodes import play


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(6))
def test_damaged_znodes_harm_no_broker_and_no_record(number: int) -> None:
    assert play(f"znodes {number}", 30).acknowledged
