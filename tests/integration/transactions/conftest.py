"""A cluster for all tests of this folder; each of them finds it whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.background import BackgroundCluster


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    with BackgroundCluster(
        tmp_path_factory.mktemp("transactions"),
        group_initial_rebalance_delay_ms="0",
        transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: BackgroundCluster) -> Iterator[BackgroundCluster]:
    """The cluster, whole again after each test."""
    yield shared_cluster
    shared_cluster.mend()
