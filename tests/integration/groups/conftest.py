"""A cluster for all tests of this folder, whose groups rebalance without delay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.background import BackgroundCluster


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    folder = tmp_path_factory.mktemp("groups")
    with BackgroundCluster(
        folder,
        group_initial_rebalance_delay_ms="0",
        group_min_session_timeout_ms="1000",
        offsets_topic_num_partitions="3",
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: BackgroundCluster) -> Iterator[BackgroundCluster]:
    """The cluster, whole again after each test."""
    yield shared_cluster
    shared_cluster.mend()
