"""Candidates on simulated machines, each beside a broker that answers the controller and takes
notes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from highwater.controller.shell.candidate import Candidate
from highwater.kafka import znodes
from highwater.kafka.config import Config
from highwater.kafka.replica_assignment import ReplicaAssignment
from highwater.kafka.types import BrokerId, Endpoint, TopicPartition
from highwater.kafka.wire import controller_messages as control
from highwater.kafka.wire.codec import decode_request, encode_response
from highwater.kafka.wire.header import parse_request_header, response_header
from highwater.world.api import Connection, NodeExists, NoNode, ZooKeeper
from highwater.world.sim import ZOOKEEPER, Kernel, Simulation, SimWorld, run_simulation

PORT = 9092
PLAINTEXT = "PLAINTEXT"
SESSION_MS = 6000


async def make(zk: ZooKeeper, path: str) -> None:
    try:
        await zk.create(path)
    except NodeExists:
        pass
    except NoNode:
        await make(zk, path.rpartition("/")[0])
        await make(zk, path)


class Member:
    """One life of one broker: registration, candidacy, and answers to the controller."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = BrokerId(broker_id)
        self.host = cluster.hosts[broker_id]
        self.world: SimWorld = cluster.simulation.start(self.host)
        self.candidate: Candidate | None = None
        self.zk: ZooKeeper | None = None
        self.epoch = -1
        self.requests: list[Any] = []
        self.states: dict[TopicPartition, Any] = {}
        self.answering = True
        self.error = 0
        self.deleted: list[TopicPartition] = []
        self.connected: list[int] = []

    @property
    def active(self) -> bool:
        return self.world.process.alive and self.candidate is not None and self.candidate.active

    async def main(self) -> None:
        listener = await self.world.network.listen("", PORT)
        async with (
            self.world.zookeeper(ZOOKEEPER, SESSION_MS, 5000) as zk,
            trio.open_nursery() as nursery,
        ):
            self.zk = zk
            for path in znodes.PERSISTENT_PATHS:
                await make(zk, path)
            endpoint = Endpoint(PLAINTEXT, PLAINTEXT, self.host.name, PORT)
            data = znodes.encode_broker([endpoint], None, self.world.clock.wall_ms())
            nursery.start_soon(self._accept, listener, nursery)
            path = znodes.broker_path(self.broker_id)
            if await zk.exists(path) is not None:
                await zk.delete(path)  # as a broker that holds its log directories may
            _, stat = await zk.create(path, data, ephemeral=True)
            self.epoch = stat.czxid
            self.candidate = Candidate(
                self.cluster.config, self.world, self.broker_id, lambda: self.epoch, zk,
                cluster_id="the-cluster", listener_of=PLAINTEXT, inter_broker_listener=PLAINTEXT,
            )  # fmt: skip
            await self.candidate.run()
            nursery.cancel_scope.cancel()

    async def _accept(self, listener: Any, nursery: trio.Nursery) -> None:
        while True:
            connection = await listener.accept()
            self.connected.append(connection.peer[1])
            nursery.start_soon(self._serve, connection)

    async def _serve(self, connection: Connection) -> None:
        buffer = b""
        chunk = bytearray(65536)
        try:
            while True:
                n = connection.recv_into(memoryview(chunk))
                if n is None:
                    await connection.wait_readable()
                    continue
                if n == 0:
                    return
                buffer += chunk[:n]
                while len(buffer) >= 4:
                    size = int.from_bytes(buffer[:4])
                    if len(buffer) < 4 + size:
                        break
                    frame, buffer = buffer[4 : 4 + size], buffer[4 + size :]
                    answer = self._answer(frame)
                    if answer is not None:
                        await self._send(connection, len(answer).to_bytes(4) + answer)
        except OSError:
            pass
        finally:
            connection.close()

    async def _send(self, connection: Connection, data: bytes) -> None:
        while data:
            taken = connection.send([data])
            if taken is None:
                await connection.wait_writable()
            else:
                data = data[taken:]

    def _answer(self, frame: bytes) -> bytes | None:
        header = parse_request_header(frame)
        if not self.answering:
            return None
        head = response_header(header.api_key, header.api_version, header.correlation_id)
        if header.api_key == 18:
            return head + b"\0\0\0\0\0\0"
        request = decode_request(
            header.api_key, header.api_version, memoryview(frame)[header.body_position :]
        )
        self.requests.append(request)
        return head + bytes(encode_response(self._response(request), header.api_version))

    def _response(self, request: Any) -> Any:
        match request.API_KEY:
            case 4:
                errors = []
                for topic in request.topic_states:
                    for p in topic.partition_states:
                        self.states[TopicPartition(topic.topic_name, p.partition_index)] = p
                        errors.append(
                            control.LeaderAndIsrPartitionError(
                                topic_name=topic.topic_name,
                                partition_index=p.partition_index,
                                error_code=0,
                            )
                        )
                return control.LeaderAndIsrResponse(error_code=self.error, partition_errors=errors)
            case 5:
                errors = []
                for topic in request.topic_states:
                    for p in topic.partition_states:
                        if p.delete_partition:
                            self.deleted.append(TopicPartition(topic.topic_name, p.partition_index))
                        errors.append(
                            control.StopReplicaPartitionError(
                                topic_name=topic.topic_name,
                                partition_index=p.partition_index,
                                error_code=0,
                            )
                        )
                return control.StopReplicaResponse(error_code=self.error, partition_errors=errors)
            case _:
                return control.UpdateMetadataResponse(error_code=self.error)


class Cluster:
    def __init__(self, simulation: Simulation, config: Config, nursery: trio.Nursery) -> None:
        self.simulation = simulation
        self.config = config
        self.nursery = nursery
        self.hosts = {b: simulation.add_host(f"b{b}") for b in (1, 2, 3)}
        self.tool_world = simulation.start(simulation.add_host("tool"))
        self.members: dict[int, Member] = {}
        self.tool: ZooKeeper

    def start(self, broker_id: int) -> Member:
        member = self.members[broker_id] = Member(self, broker_id)
        self.nursery.start_soon(member.world.process.run, member.main)
        return member

    def kill(self, broker_id: int) -> None:
        self.members[broker_id].world.process.kill()

    def active(self) -> list[int]:
        return [b for b, m in self.members.items() if m.active]

    def controller(self) -> Member:
        (active,) = self.active()
        return self.members[active]

    async def until(self, condition: Callable[[], Any], seconds: float = 30) -> Any:
        with trio.fail_after(seconds):
            while not (found := condition()):
                await trio.sleep(0.005)
        return found

    async def started(self) -> None:
        for broker_id in (1, 2, 3):
            self.start(broker_id)
        await self.until(lambda: len(self.active()) == 1)
        await self.until(lambda: self.known() == {1, 2, 3})

    def known(self) -> set[int]:
        if len(self.active()) != 1:
            return set()
        candidate = self.controller().candidate
        assert candidate is not None
        return set(candidate.runtime.machine.state.brokers)

    async def create_topic(self, name: str, *replicas: tuple[int, ...], wait: bool = True) -> None:
        partitions = {
            p: ReplicaAssignment(tuple(BrokerId(b) for b in r)) for p, r in enumerate(replicas)
        }
        data = znodes.encode_topic(znodes.TopicState(partitions))
        await self.tool.create(znodes.topic_path(name), data)
        tp = TopicPartition(name, len(replicas) - 1)
        if not wait:
            return
        await self.until(lambda: all(tp in self.members[b].states for b in replicas[-1]))

    async def led(self, tp: TopicPartition, members: list[Member]) -> None:
        """Waits until these brokers have heard of the partition."""
        await self.until(lambda: all(tp in m.states for m in members))

    async def state(self, tp: TopicPartition) -> znodes.PartitionState:
        data, stat = await self.tool.get(znodes.state_path(tp))
        return znodes.decode_partition_state(tp, data, stat.version)

    async def epoch(self) -> int:
        return znodes.decode_controller_epoch((await self.tool.get(znodes.CONTROLLER_EPOCH))[0])


def run(
    body: Callable[[Cluster], Awaitable[None]],
    *,
    seeds: int = 3,
    probe_ms: int = 300,
    **settings: Any,
) -> None:
    """Runs a test in simulations of three brokers that have started.

    A controller that resigns because of an exception is replaced, so only its log shows it.
    """
    failures = _Failures()
    logger = logging.getLogger("controller")
    logger.addHandler(failures)
    try:
        _run(body, seeds, Config(highwater_broker_probe_ms=probe_ms, **settings))
    finally:
        logger.removeHandler(failures)
    assert not failures.seen


class _Failures(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.seen.append(str(record.exc_info[1]))


def _run(body: Callable[[Cluster], Awaitable[None]], seeds: int, config: Config) -> None:
    async def main(kernel: Kernel) -> None:
        async with trio.open_nursery() as nursery:
            cluster = Cluster(Simulation(kernel), config, nursery)
            async with cluster.tool_world.zookeeper(ZOOKEEPER, 60_000, 5000) as tool:
                cluster.tool = tool
                await cluster.started()
                await body(cluster)
                nursery.cancel_scope.cancel()

    for seed in range(seeds):
        run_simulation(seed, main)
