"""The doors of one copy: proxies on bootstrap ports of its own.

Client ids do not tell copies apart, but ports do, whatever the language of the client.  A copy's
doors stand in front of the ports that every client uses, so that all other faults still reach the
copy.  They replace each address in an answer by that of a door.  Their `Links` are their own, so a
rule there takes messages of this copy alone.

No message can be read under TLS, nor beyond the first 64 KiB of a frame.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from highwater.cluster.interface import Cluster, broker
from highwater.cluster.links.link_rules import CLIENTS, Links, Rule
from highwater.cluster.links.observer import Observer
from highwater.cluster.links.proxy import Proxy
from highwater.cluster.links.rewriting import Address
from highwater.cluster.ports import free_ports


class Doors:
    def __init__(self, cluster: Cluster, observer: Observer) -> None:
        self.links = Links()
        self._observer = observer
        self._numbers = list(cluster.brokers)
        addresses = [entry.rpartition(":") for entry in cluster.bootstrap.split(",")]
        self._behind: Sequence[Address] = [(host, int(port)) for host, _, port in addresses]
        *self._ports, self._nowhere = free_ports(len(self._behind) + 1)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    async def serve(self, nursery: trio.Nursery) -> None:
        places = zip(self._numbers, self._behind, self._ports, strict=True)
        for number, (host, behind), port in places:
            proxy = Proxy(
                self.links,
                behind,
                owner=broker(number),
                host=host,
                replace=self._replace,
                observer=self._observer,
            )
            await nursery.start(proxy.serve, port)

    def _replace(self, number: int | None, own: Address) -> Address:
        if number in self._numbers:
            return "127.0.0.1", self._ports[self._numbers.index(number)]
        if own in self._behind:
            return "127.0.0.1", self._ports[self._behind.index(own)]
        return "127.0.0.1", self._nowhere

    def connected(self) -> bool:
        return any(source == CLIENTS for source, _ in self.links.connections)

    def drop(self, *rules: Rule) -> None:
        """Ends all connections of the copy, and with them the messages that these rules hold."""
        self.links.reset(*((CLIENTS, broker(number)) for number in self._numbers))
        for rule in rules:
            self.links.release(rule)
