"""Fixtures of the names that aiokafka's tests use, which give them the cluster at $BOOTSTRAP.

`suites.py` puts this file where aiokafka's own conftest.py stands, which starts a container.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

KAFKA_VERSION = "3.6.0"


class NotHere:
    """Stands in for the container in tests that change the broker's users, keys or files."""

    def __getattr__(self, name: str) -> object:
        return pytest.skip(f"the suites' cluster has no TLS, SASL or authorizer ({name})")


@pytest.fixture(scope="session")
def ssl_folder() -> Path:
    return Path("no TLS")


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    if not made.is_closed():
        made.call_soon(made.stop)
        made.run_forever()
        made.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(
    request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop
) -> None:
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    host, _, port = os.environ["BOOTSTRAP"].rpartition(":")
    given = {
        "loop": loop, "kafka_host": host, "kafka_port": int(port), "hosts": [f"{host}:{port}"],
        "ssl_folder": Path("no TLS"), "acl_manager": NotHere(), "kerberos_utils": NotHere(),
        "kafka_config": NotHere(), "kafka_version": KAFKA_VERSION,
    }  # fmt: skip
    for name, value in given.items():
        setattr(request.cls, name, value)
