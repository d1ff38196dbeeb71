"""A cluster at an address: when a broker that a command has ended counts as gone."""

from __future__ import annotations

import trio

from highwater.cluster.interface import broker
from highwater.cluster.links.link_rules import Links
from highwater.cluster.links.proxy import Proxy
from highwater.cluster.ports import free_ports
from highwater.cluster.remote.remote_cluster import Commands, RemoteCluster


async def test_a_dead_broker_behind_something_that_still_listens_is_gone() -> None:
    """The other cluster's own proxies, or a container's published port, take connections for it."""
    slow, dead = free_ports(2)

    async def take_and_end(stream: trio.SocketStream) -> None:
        await trio.sleep(0.05)  # later than the client has its connection

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_tcp, take_and_end, slow)
        proxy = Proxy(Links(), free_ports(1)[0], owner=broker(2), opaque=True)
        await nursery.start(proxy.serve, dead)
        known = {1: ("127.0.0.1", slow), 2: ("127.0.0.1", dead)}
        cluster = RemoteCluster(known, Commands(kill="true"))
        with trio.fail_after(2):
            for member in cluster.members():
                await cluster.kill(member)
                assert not cluster.running(member)
        nursery.cancel_scope.cancel()


async def test_a_broker_that_still_takes_connections_is_not_gone() -> None:
    [port] = free_ports(1)

    async def wait(stream: trio.SocketStream) -> None:
        await stream.receive_some(1)

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_tcp, wait, port)
        cluster = RemoteCluster({1: ("127.0.0.1", port)}, Commands(kill="true"))
        with trio.move_on_after(0.7) as limit:
            await cluster.kill(broker(1))
        assert limit.cancelled_caught
        assert cluster.running(broker(1))
        nursery.cancel_scope.cancel()
