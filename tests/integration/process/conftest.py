"""Fixtures of the tests on real processes."""

from __future__ import annotations

from highwater.pytest_plugin import (
    highwater_cluster,
    highwater_session,
    pytest_addoption,
)

__all__ = ["highwater_cluster", "highwater_session", "pytest_addoption"]
