"""A full data plane of a broker, while its controller sends a request (L5).

A handler that asks ZooKeeper waits for the answer.  So with its link to ZooKeeper cut, a few
clients that ask a broker for a topic's configuration keep all handlers of its data plane busy, and
all other requests of clients and followers wait in the request channel.  The control plane spares
the controller that wait (KIP-291): a LeaderAndIsr that arrives now must be applied, and answered,
within a virtual second.

The LeaderAndIsr is a recent one from the controller, without its partitions: it has the current
epochs, and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from highwater.broker.context import Plane
from highwater.kafka.wire.codec import decode_request, encode_request
from highwater.kafka.wire.controller_messages import LeaderAndIsrRequest
from highwater.simulation import wire_tap
from highwater.simulation.cluster import PORT
from highwater.simulation.workloads.plain_client import Failed, SimClient

if TYPE_CHECKING:
    from highwater.simulation.cluster import BrokerNode, SimCluster

APPLIED_WITHIN_S = 1.0
_CLIENTS = 12
_QUIET_S = 0.2
_LOOK_S = 0.02


class FullChannel:
    """`fill` fills a broker's channel, and checks that the broker still obeys its controller."""

    def __init__(self, cluster: SimCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._clients: list[SimClient] = []

    async def fill(self, node: BrokerNode) -> str | None:
        """Fills the channel; gives the reason why that failed, or None."""
        cluster, life = self._cluster, node.world
        if not cluster.shape.control_plane:
            return "both planes share a channel"
        if life is not None and life.process.frozen:
            return (
                f"{node.name} stands still, and may have been told something that it has not read"
            )
        told = cluster.tap.told[node.name]
        await trio.sleep(_QUIET_S)
        sent = self._empty_leader_and_isr(node)
        if sent is None or life is None or cluster.tap.told[node.name] != told or _is_told(node):
            return f"{node.name} is down, has no controller, or is being told something"
        fabric, zookeeper = cluster.simulation.fabric, cluster.simulation.zookeeper.host
        links = [(node.host, zookeeper), (zookeeper, node.host)]
        if not all(fabric.passable(*link) for link in links):
            return f"{node.name} has lost ZooKeeper already"
        for link in links:
            fabric.cut(*link)
        try:
            async with trio.open_nursery() as nursery:
                teller, *askers = self._all_clients()
                for client in askers:
                    nursery.start_soon(self._ask, client, node)
                late = await self._late(teller, node, sent) if await self._is_full(node) else None
                nursery.cancel_scope.cancel()
        finally:
            for link in links:
                fabric.heal(*link)
            for client in self._clients:
                client.close()
        if late is None:
            return f"the channel of {node.name} did not fill, or nobody could be told"
        if late <= APPLIED_WITHIN_S:
            return None
        if node.world is not life or not node.running or node.shutdown.is_set():
            return f"{node.name} went down"
        if cluster.tap.told[node.name] != told:
            return f"the controller told {node.name} something else, which came first"
        cluster.rules.broken(
            "L5",
            f"{node.name} had not applied a LeaderAndIsr after {late:.1f} s, while requests of "
            "clients waited in its data plane",
        )
        return None

    def _empty_leader_and_isr(self, node: BrokerNode) -> wire_tap.Sent | None:
        services = node.services
        if services is None:
            return None
        for sent in reversed(self._cluster.tap.control[node.name]):
            now = (services.fence.controller_epoch, services.broker_epoch)
            if sent.api_key == wire_tap.LEADER_AND_ISR and sent.epochs == now:
                given = decode_request(sent.api_key, sent.version, memoryview(sent.body))
                request = LeaderAndIsrRequest(
                    controller_id=given.controller_id,
                    controller_epoch=given.controller_epoch,
                    broker_epoch=given.broker_epoch,
                    ungrouped_partition_states=[],
                    topic_states=[],
                    live_leaders=[],
                )
                return sent._replace(body=bytes(encode_request(request, sent.version)))
        return None

    def _all_clients(self) -> list[SimClient]:
        simulation = self._cluster.simulation
        bootstrap = [(node.name, PORT) for node in self._cluster.nodes.values()]
        for n in range(len(self._clients), _CLIENTS):
            world = simulation.start(simulation.add_host(f"asker-{n}"))
            self._clients.append(SimClient(world, f"asker-{n}", bootstrap))
        return self._clients

    async def _ask(self, client: SimClient, node: BrokerNode) -> None:
        while True:
            try:
                await client.describe_topic((node.name, PORT), self._topic)
            except Failed:
                await client.pause()

    async def _is_full(self, node: BrokerNode) -> bool:
        with trio.move_on_after(APPLIED_WITHIN_S):
            while node.running and node.broker is not None:
                if len(node.broker.server.planes[Plane.DATA].channel):
                    return True
                await trio.sleep(_LOOK_S)
        return False

    async def _late(self, client: SimClient, node: BrokerNode, sent: wire_tap.Sent) -> float | None:
        """Seconds until the answer; None where the broker was gone or frozen, or it failed."""
        started, patience = trio.current_time(), 2 * APPLIED_WITHIN_S
        failures: list[Failed] = []
        over = trio.Event()
        excused = False

        async def tell() -> None:
            try:
                await client.control(node.name, self._cluster.control_port, sent)
            except Failed as failed:
                failures.append(failed)
            over.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell)
            while not over.is_set() and trio.current_time() < started + patience:
                await trio.sleep(_LOOK_S)
                excused = excused or node.world is None or node.world.process.frozen
            nursery.cancel_scope.cancel()
        return None if excused or failures else trio.current_time() - started


def _is_told(node: BrokerNode) -> bool:
    """Whether a control request is running: a LeaderAndIsr with new topics may still wait for
    ZooKeeper, and the next request rightly waits for it.
    """
    return node.broker is not None and node.broker.server.planes[Plane.CONTROL].busy
