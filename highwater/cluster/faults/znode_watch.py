"""A ZooKeeper session of the harness's own that sees leaders, ISRs, controllers and brokers come
and go.

It is connected past every proxy.  Watches are one-shot: of two changes in quick succession it may
see only the later one.  So its counts are lower bounds; the number of elections is known exactly,
from `leader_epoch`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import trio
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from highwater.cluster.faults.witness import PartitionState, Witness, WitnessError
from highwater.kafka.types import TopicPartition
from highwater.verdict.history import LineLog


def written_ns(mtime_ms: int, wall_ns: int, monotonic_ns: int) -> int:
    """The time at which a znode was written, by the monotonic clock of the history.

    ZooKeeper stamps a write with its wall clock, which is this machine's, in whole milliseconds:
    the result may be a millisecond early, never late.
    """
    return monotonic_ns - (wall_ns - mtime_ms * 1_000_000)


class ZooKeeperWitness(Witness):
    """Watches the partitions of topics, /controller, /controller_epoch and /brokers/ids."""

    def __init__(self, connect: str, log: LineLog | None = None) -> None:
        super().__init__(log)
        self._topics: set[str] = set()
        self._current: dict[TopicPartition, object] = {}
        """A token for each partition's watcher, so that the watcher of an earlier topic of the same
        name can be told from the present one."""
        self._zk: Any = KazooClient(
            hosts=connect, timeout=10.0, connection_retry={"max_tries": -1, "max_delay": 1.0}
        )

    def start(self) -> None:
        try:
            self._zk.start(timeout=10)
        except (KazooException, KazooTimeoutError, OSError) as error:
            raise WitnessError(f"ZooKeeper does not answer the witness: {error}") from error
        self._zk.DataWatch("/controller", self._controller_changed)
        self._zk.DataWatch("/controller_epoch", self._epoch_changed)
        self._zk.ChildrenWatch("/brokers/ids", self._brokers_changed)

    def watch_topic(self, topic: str) -> None:
        with self._lock:
            known = topic in self._topics
            self._topics.add(topic)
        if not known:
            self._zk.DataWatch(f"/brokers/topics/{topic}", self._topic_watcher(topic))

    def watch_all_topics(self) -> None:
        def changed(topics: list[str]) -> None:
            for topic in topics:
                self.watch_topic(topic)

        self._zk.ChildrenWatch("/brokers/topics", changed)

    async def catch_up(self, timeout_s: float = 0.5) -> None:
        await trio.to_thread.run_sync(self._look_at_topics, timeout_s)

    def _look_at_topics(self, timeout_s: float) -> None:
        try:
            topics = self._zk.get_children_async("/brokers/topics").get(timeout=timeout_s)
        except (KazooException, KazooTimeoutError):
            return
        for topic in topics:
            self.watch_topic(topic)

    def close(self) -> None:
        self._zk.stop()
        self._zk.close()

    # --- what kazoo's thread calls

    def _topic_watcher(self, topic: str) -> Callable[[bytes | None, Any], bool]:
        def changed(data: bytes | None, stat: Any) -> bool:
            if not data:
                with self._lock:
                    self._topics.discard(topic)
                    for tp in [tp for tp in self.replicas if tp.topic == topic]:
                        del self.replicas[tp]
                        self.partitions.pop(tp, None)
                        self._current.pop(tp, None)
                return False
            assigned = {
                TopicPartition(topic, int(number)): tuple(replicas)
                for number, replicas in json.loads(data)["partitions"].items()
            }
            with self._lock:
                new = sorted(tp for tp in assigned if tp not in self.replicas)
                self.replicas.update(assigned)
            for tp in new:
                path = f"/brokers/topics/{topic}/partitions/{tp.partition}/state"
                self._zk.DataWatch(path, self._state_watcher(tp))
            return True

        return changed

    def _state_watcher(self, tp: TopicPartition) -> Callable[[bytes | None, Any], bool]:
        mark = self._current[tp] = object()

        def changed(data: bytes | None, stat: Any) -> bool:
            if self._current.get(tp) is not mark:
                return False
            if data is None:
                return True
            raw = json.loads(data)
            isr = tuple(raw["isr"])
            new = PartitionState(raw["leader"], raw["leader_epoch"], isr, raw["controller_epoch"])
            stamp = written_ns(stat.mtime, time.time_ns(), time.monotonic_ns())
            self._note(tp, new, zk_version=stat.version, written_ns=stamp)
            return True

        return changed

    def _controller_changed(self, data: bytes | None, stat: Any) -> None:
        self.controller = json.loads(data)["brokerid"] if data else None
        self._write("controller", controller=self.controller)

    def _epoch_changed(self, data: bytes | None, stat: Any) -> None:
        if not data:
            return
        epoch = int(data)
        with self._lock:
            if self.controller_epoch and epoch > self.controller_epoch:
                self.seen["controller_moves"] += epoch - self.controller_epoch
            self.controller_epoch = epoch
            self.controller_epochs.append(epoch)
        self._write("controller_epoch", epoch=epoch)

    def _brokers_changed(self, children: list[str]) -> None:
        self.brokers = frozenset(int(c) for c in children if c.isdigit())
        self._write("broker", brokers=sorted(self.brokers))

    # --- what the harness asks

    def delete_controller(self) -> None:
        """Makes the controller resign: the brokers race for the znode."""
        try:
            self._zk.delete("/controller")
        except NoNodeError:
            pass
