"""Keeps tests that run side by side from taking the ports of each other's stopped brokers.

Begins with the long files.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from typing import Any

import pytest
import trio
from trio._core._run import GLOBAL_RUN_CONTEXT

from highwater.cluster.port_shares import SETTING, share_of_ports

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ[SETTING] = share_of_ports(
        int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """No worker is left alone with a long file at the end (with --no-loadscope-reorder)."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


NO_JAVA = ("no Java found", "there is no java on PATH", "JAVA_GATEWAY_EXITED")
"""Highwater's words for it, and PySpark's."""


def _without_java() -> Generator[None, Any, Any]:
    """A test that needs Java, where there is none, is skipped; in CI it fails."""
    try:
        return (yield)
    except Exception as error:
        lines = [s for s in str(error).splitlines() if any(sign in s for sign in NO_JAVA)]
        if os.environ.get("CI") or not lines:
            raise
        # by its own place, so that the summary says which tests were left out
        raise pytest.skip.Exception(lines[0], _use_item_location=True) from None


pytest_runtest_call = pytest.hookimpl(wrapper=True, specname="pytest_runtest_call")(_without_java)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    """Forgets the loop of a test that pytest-timeout ended inside of trio.run.

    No later test of this process could run one, and each would fail for the first one's reason.
    """
    if trio.lowlevel.in_trio_run():
        GLOBAL_RUN_CONTEXT.__dict__.clear()
        told, sys.unraisablehook = sys.unraisablehook, lambda _: None
        gc.collect()  # the loop's tasks end, and cannot
        sys.unraisablehook = told
    return (yield from _without_java())
