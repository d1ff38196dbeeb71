"""kill -9 of the whole cluster under load, five times: acknowledged records are read back then.

One idempotent producer lives through all of it.  No acknowledged record may be missing, at another
offset, or changed; and, because the producer is idempotent, none may be there twice.  A kill -9
loses no page cache, so none of this needs fsync; the simulation covers power loss.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import trio

from highwater.cluster.processes.process_cluster import ProcessCluster, process_cluster
from highwater.cluster.processes.process_settings import Settings
from tests.integration.reading import read_all

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]
TOPIC, PARTITIONS, KILLS = "killed", 3, 5
ACKS_BETWEEN_KILLS = 1000


class Load:
    """Produces numbered records until told to stop, and remembers where each was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acked: dict[tuple[int, int], bytes] = {}
        self.failed: list[str] = []
        self.sent = 0
        self._stop = threading.Event()
        self._acked_more = threading.Condition()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all",
                "linger.ms": 2, "message.timeout.ms": 300_000, "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )  # fmt: skip

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
        with self._acked_more:
            if error is None:
                self.acked[(message.partition(), message.offset())] = message.value()
            self._acked_more.notify_all()

    def wait_for_acks(self, count: int) -> None:
        with self._acked_more:
            enough = self._acked_more.wait_for(
                lambda: len(self.acked) >= count or self.failed, timeout=60
            )
        assert not self.failed, self.failed[:3]
        assert enough, f"{len(self.acked)} acknowledgements, and no more within a minute"

    def run(self) -> None:
        """Produces in a thread of its own; a bounded queue keeps it from running ahead of a dead
        cluster."""
        while not self._stop.is_set():
            while len(self._producer) < 500:
                value = b"record %d " % self.sent + os.urandom(100)
                self._producer.produce(TOPIC, value, on_delivery=self._delivered)
                self.sent += 1
            self._producer.poll(0.02)
        self._producer.flush(60)

    def stop(self) -> None:
        self._stop.set()


def create_topic(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[TOPIC].result()


async def kill_all(cluster: ProcessCluster) -> None:
    """ZooKeeper and all brokers within the same millisecond."""
    async with trio.open_nursery() as nursery:
        for member in cluster.members():
            nursery.start_soon(cluster.kill, member)


async def test_whole_cluster_killed_five_times_under_load(tmp_path: Path) -> None:
    async with process_cluster(Settings(tmp_path / "cluster")) as cluster, trio.open_nursery() as n:
        bootstrap = cluster.bootstrap
        await trio.to_thread.run_sync(create_topic, bootstrap)
        load = Load(bootstrap)
        n.start_soon(trio.to_thread.run_sync, load.run)
        try:
            for kill in range(1, KILLS + 1):
                await trio.to_thread.run_sync(load.wait_for_acks, kill * ACKS_BETWEEN_KILLS)
                assert cluster.unexpected_ends() == []
                await kill_all(cluster)
                acked = dict(load.acked)
                await cluster.start_all()
                found = await trio.to_thread.run_sync(read_all, bootstrap, TOPIC, PARTITIONS)
                lost = {place: value for place, value in acked.items() if found.get(place) != value}
                assert not lost, f"kill {kill}: {len(lost)} of {len(acked)}, {sorted(lost)[:5]}"
                twice = [v for v, times in Counter(found.values()).items() if times > 1]
                assert not twice, f"kill {kill}: {len(twice)} records are there twice: {twice[:3]}"
        finally:
            load.stop()
    assert load.failed == []
    assert len(load.acked) == load.sent
