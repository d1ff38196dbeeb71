"""Tools that a test needs and this machine lacks."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def not_installed(what: str) -> NoReturn:
    """Skips the test on a developer's machine; in CI the test fails."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)
