"""pytest fixtures: a Kafka-compatible cluster of real processes, which a test may break.

    def test_my_app_survives(highwater_cluster):
        highwater_cluster.create_topic("orders", partitions=3)
        ...
        highwater_cluster.kill(highwater_cluster.leader_of("orders", 0))

`highwater_cluster` is one cluster for the whole session, mended after each test: broken members are
restarted, and links are healed.  It is ready once the internal topics are made, so that a test may
kill a leader and then start its first consumer group.  Needs Java 17 (for ZooKeeper).  The
installed package has an entry point for pytest, so nothing has to be enabled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from highwater.cluster.background import BackgroundCluster


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("highwater")
    group.addoption(
        "--highwater-brokers", type=int, default=3, help="Brokers of the highwater_cluster fixture."
    )


@pytest.fixture(scope="session")
def highwater_session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BackgroundCluster]:
    """The cluster itself; tests use `highwater_cluster`."""
    from highwater.cluster.background import BackgroundCluster

    folder = tmp_path_factory.mktemp("highwater")
    with BackgroundCluster(folder, request.config.getoption("--highwater-brokers")) as cluster:
        yield cluster


@pytest.fixture
def highwater_cluster(highwater_session: BackgroundCluster) -> Iterator[BackgroundCluster]:
    """Three brokers and ZooKeeper as processes on 127.0.0.1, whole again after each test."""
    yield highwater_session
    highwater_session.mend()
