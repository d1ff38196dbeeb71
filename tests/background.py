"""A process cluster for tests that are not async, and look into it.

    with BackgroundCluster(folder) as cluster:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        cluster.kill(cluster.leader_of("orders", 0))

Theory of operation.  A thread runs trio with the cluster and its proxies inside; every verb is a
call into that thread.  The thread starts the processes and lives as long as they do, because
PR_SET_PDEATHSIG needs that.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import trio

from highwater.cluster.ask import metadata
from highwater.cluster.interface import ClusterError, broker, require_member, require_paused
from highwater.cluster.links.link_rules import CLIENTS, Links
from highwater.cluster.processes.process_cluster import ProcessCluster, process_cluster
from highwater.cluster.processes.process_settings import Settings
from highwater.cluster.run_folder import TopicInfo
from highwater.cluster.run_topics import create_topics, delete_topic

T = TypeVar("T")


class BackgroundCluster:
    """A process cluster; its members are brokers 1 to `brokers`, and "zookeeper"."""

    def __init__(self, folder: Path, brokers: int = 3, **properties: str) -> None:
        """Further broker properties as keywords: `log_segment_bytes="1048576"`."""
        self._begin(
            Settings(
                folder.absolute(),
                brokers=brokers,
                proxies=True,
                quick_end=True,
                internal_topics=True,
                properties={k.replace("_", "."): v for k, v in properties.items()},
            )
        )

    @classmethod
    def of(cls, settings: Settings) -> BackgroundCluster:
        """A cluster with any settings of the process runtime, such as other programs."""
        made = cls.__new__(cls)
        made._begin(settings)
        return made

    def _begin(self, settings: Settings) -> None:
        self._settings = settings
        self._cluster: ProcessCluster | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._stop: trio.Event | None = None
        self._started: queue.Queue[BaseException | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="highwater-cluster", daemon=True)

    def __enter__(self) -> BackgroundCluster:
        self._thread.start()
        error = self._started.get()
        if error is not None:
            self._thread.join()
            raise error
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None and self._stop is not None:
            trio.from_thread.run_sync(self._stop.set, trio_token=self._token)
        self._thread.join()

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as error:
            while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
                error = error.exceptions[0]
            self._started.put(error)

    async def _serve(self) -> None:
        async with process_cluster(self._settings) as cluster:
            self._cluster = cluster
            self._token = trio.lowlevel.current_trio_token()
            self._stop = trio.Event()
            self._started.put(None)
            await self._stop.wait()

    def _call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        return trio.from_thread.run(function, *args, trio_token=self._token)

    @property
    def cluster(self) -> ProcessCluster:
        if self._cluster is None:
            raise ClusterError("the cluster was not started: use it in a with statement")
        return self._cluster

    @property
    def folder(self) -> Path:
        """Data, properties and output of every member."""
        return self._settings.folder

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap

    # --- verbs

    def kill(self, member: int | str) -> None:
        """SIGKILL."""
        self._call(self.cluster.kill, _name(member))

    def stop(self, member: int | str) -> int:
        """SIGTERM, a controlled shutdown; gives the exit code."""
        return self._call(self.cluster.stop, _name(member))

    def start(self, member: int | str) -> None:
        """Starts a member on the same port with the same data; returns when it serves."""
        self._call(self.cluster.start, _name(member))

    def restart(self, member: int | str) -> None:
        self.stop(member)
        self.start(member)

    def pause(self, member: int | str) -> None:
        """SIGSTOP: connections stay, nothing answers."""
        self._call(self.cluster.pause, _name(member))
        if not self.cluster.paused(_name(member)):
            raise ClusterError(f"{_name(member)} does not stand still after SIGSTOP")

    def resume(self, member: int | str) -> None:
        """SIGCONT."""
        name = _name(member)
        require_paused(self.cluster, name)
        self._call(self.cluster.resume, name)
        if self.cluster.paused(name):
            raise ClusterError(f"{name} still stands still after SIGCONT")

    def cut(self, one: int | str, other: int | str, one_way: bool = False) -> None:
        """Cuts a link between two members; "clients" and "zookeeper" are members too."""
        self._call(self._cut, _name(one), _name(other), one_way)

    async def _cut(self, one: str, other: str, one_way: bool) -> None:
        for name in (one, other):
            if name != CLIENTS:
                require_member(self.cluster, name, CLIENTS)
        if one == other:
            raise ClusterError(f"a cut is between two members, and both are {one}")
        self._links().cut(one, other)
        if not one_way:
            self._links().cut(other, one)

    def heal(self) -> None:
        """Opens every link."""
        self._call(self._heal)

    async def _heal(self) -> None:
        self._links().heal_all()

    def _links(self) -> Links:
        if self.cluster.links is None:
            raise ClusterError("this cluster was started without proxies: no link can be cut")
        return self.cluster.links

    def mend(self) -> None:
        """Restores the state at the start: links open, every member running."""
        if self.cluster.links is not None:
            self.heal()
        for member in self.cluster.members():
            if self.cluster.paused(member):
                self.resume(member)
            if not self.cluster.running(member):
                self.start(member)

    # --- questions

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        min_insync: int | None = None,
    ) -> None:
        """Makes a topic, by default with replication factor 3 and min.insync.replicas 2, or as many
        as there are brokers; accepts an existing topic with as many partitions."""
        factor = (
            min(3, len(self.cluster.brokers)) if replication_factor is None else replication_factor
        )
        in_sync = min(2, factor) if min_insync is None else min_insync
        topic = TopicInfo(name, partitions, factor, in_sync)
        self._call(create_topics, self.cluster, [topic])

    def delete_topic(self, name: str) -> None:
        """Returns when no running broker knows the topic."""
        self._call(delete_topic, self.cluster, name)

    def leader_of(self, topic: str, partition: int) -> int:
        """The leader in the controller's metadata (or else in a live broker's); -1 for none."""
        return self._partition(topic, partition)[0]

    def isr_of(self, topic: str, partition: int) -> list[int]:
        return self._partition(topic, partition)[1]

    def controller(self) -> int:
        """The controller in a live broker's metadata; -1 for none."""
        return self._call(self._ask_controller)

    async def _ask_controller(self) -> int:
        cluster = self.cluster
        for number in cluster.brokers:
            if cluster.running(broker(number)) and not cluster.paused(broker(number)):
                try:
                    return int((await metadata(cluster.address(number), [])).controller_id)
                except OSError:
                    continue
        raise ClusterError("no broker answers")

    def _partition(self, topic: str, partition: int) -> tuple[int, list[int]]:
        return self._call(self._ask_partition, topic, partition)

    async def _ask_partition(self, topic: str, partition: int) -> tuple[int, list[int]]:
        """Asks the controller if it answers: a broker cut off from it has old metadata."""
        cluster = self.cluster
        known: tuple[int, list[int]] | None = None
        for number in cluster.brokers:
            if not cluster.running(broker(number)) or cluster.paused(broker(number)):
                continue
            try:
                answer = await metadata(cluster.address(number), [topic])
            except OSError:
                continue
            for found in answer.topics[0].partitions:
                if found.partition_index == partition:
                    state = found.leader_id, list(found.isr_nodes)
                    if answer.controller_id == number:
                        return state
                    known = known or state
        if known is None:
            raise ClusterError(f"no broker knows {topic}-{partition}")
        return known


def _name(member: int | str) -> str:
    return broker(member) if isinstance(member, int) else member
