"""Workers that run tests side by side take no ports from each other's brokers that are down."""

from __future__ import annotations

import os

from highwater.cluster.ports import SETTING, share_of_ports

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ[SETTING] = share_of_ports(
        int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    )
