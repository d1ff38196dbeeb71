"""A broker's server.properties, as the process runtime writes it, for a cluster with ZooKeeper or
in KRaft mode (KIP-500), where the quorum's voters are the brokers or processes of their own.

In KRaft mode a voter's address is that of its proxy.  So links between voters can be cut like those
between brokers, and a broker's requests to the controller can be held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from highwater.cluster.shared import Ports

CONTROLLER = "CONTROLLER"
"""The listener of a KRaft controller."""
KRAFT_TEST = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.fetch.timeout.ms": "5000",
    "controller.quorum.election.timeout.ms": "2000",
}
"""KRaft's counterparts of zookeeper.session.timeout.ms in the profile `test`, but longer: otherwise
a voter that waits for a CPU would start election after election, and every broker be fenced."""


def endpoints(chosen: Mapping[str, int], **outside: str) -> str:
    places = {name: f"127.0.0.1:{port}" for name, port in chosen.items()} | outside
    return ",".join(f"{name}://{place}" for name, place in places.items())


def common(ports: Ports, data: Path, brokers: int, protocols: Mapping[str, str]) -> dict[str, str]:
    """The properties of both modes; `protocols`: listener -> its protocol, unless it is plain."""
    factor = min(3, brokers)
    return {
        "listeners": endpoints(ports.bound),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocols.get(name, 'PLAINTEXT')}" for name in ports.bound
        ),
        "inter.broker.listener.name": "INTERNAL",
        "log.dirs": str(data),
        "default.replication.factor": str(factor),
        "min.insync.replicas": str(min(2, factor)),
        "num.partitions": "3",
    }


def with_zookeeper(
    number: int, ports: Ports, connect: str, outside: Mapping[str, str]
) -> dict[str, str]:
    """`outside`: listener -> HOST:PORT, where clients on other machines reach it."""
    return {
        "broker.id": str(number),
        "advertised.listeners": endpoints(ports.advertised, **outside),
        "control.plane.listener.name": "CONTROL",
        "zookeeper.connect": connect,
        "inter.broker.protocol.version": "2.6",
    }


def kraft(
    number: int,
    ports: Mapping[int, Ports],
    outside: Mapping[str, str],
    metadata: Path,
    controllers: Sequence[int] = (),
) -> dict[str, str]:
    """`ports`: those of every broker; `metadata`: the folder of the log of cluster metadata;
    `controllers`: the controllers, in the brokers' order, where the brokers are none."""
    own = {n: port for n, port in ports[number].advertised.items() if n != CONTROLLER}
    made = {
        "process.roles": "broker" if controllers else "broker,controller",
        "node.id": str(number),
        **_quorum(ports, controllers),
        "advertised.listeners": endpoints(own, **outside),
        "metadata.log.dir": str(metadata),
    }
    if controllers:
        bound = {n: port for n, port in ports[number].bound.items() if n != CONTROLLER}
        made["listeners"] = endpoints(bound)
    return made


def kraft_controller(
    number: int, ports: Mapping[int, Ports], metadata: Path, controllers: Sequence[int]
) -> dict[str, str]:
    """The properties that only a controller in a process of its own has.  It needs the brokers'
    properties, too, because the controller gives a new topic its defaults."""
    beside = ports[sorted(ports)[controllers.index(number)]]
    return {
        "process.roles": "controller",
        "node.id": str(number),
        **_quorum(ports, controllers),
        "listeners": endpoints({CONTROLLER: beside.bound[CONTROLLER]}),
        "metadata.log.dir": str(metadata),
    }


def _quorum(ports: Mapping[int, Ports], controllers: Sequence[int]) -> dict[str, str]:
    ids = controllers or sorted(ports)
    places = zip(ids, sorted(ports), strict=True)
    voters = (f"{n}@127.0.0.1:{ports[beside].advertised[CONTROLLER]}" for n, beside in places)
    return {
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": CONTROLLER,
    }
