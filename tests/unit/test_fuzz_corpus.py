"""What fuzzing has found, again (`tests/fuzzing/corpus`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fuzzing.znodes import Planted, play

CORPUS = Path(__file__).parents[1] / "fuzzing" / "corpus"


def _kept(folder: str) -> pytest.MarkDecorator:
    files = sorted((CORPUS / folder).iterdir())
    assert files
    return pytest.mark.parametrize("kept", files, ids=[file.stem for file in files])


@_kept("planted")
def test_a_damaged_znode_harms_no_broker_and_no_record(kept: Path) -> None:
    found = json.loads(kept.read_text())
    play(kept.stem, 0, [Planted(found["path"], found["data"].encode("latin-1"))])
