"""Keeps tests that run side by side from taking the ports of each other's brokers that are down.

Begins with the long files.
"""

from __future__ import annotations

import os

import pytest

from highwater.cluster.port_shares import SETTING, share_of_ports

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ[SETTING] = share_of_ports(
        int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """No worker is left alone with a long file at the end (with --no-loadscope-reorder)."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
