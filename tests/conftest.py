"""Keeps tests that run side by side from taking the ports of each other's brokers that are down."""

from __future__ import annotations

import os

from highwater.cluster.ports import SETTING, share_of_ports

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ[SETTING] = share_of_ports(
        int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    )
