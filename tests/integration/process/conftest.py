"""The wheel, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.process.building import build


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))
