"""The ports of a cluster of processes: those of the folder's previous cluster, or free ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product

from highwater.cluster.ports import free_ports, is_free, require_free
from highwater.cluster.processes.process_settings import Settings
from highwater.cluster.shared import Ports


def choose(
    settings: Settings, brokers: Sequence[int], *, with_zookeeper: bool = True
) -> tuple[int, dict[int, Ports]]:
    """ZooKeeper's port, and the brokers'; the former is 0 where it runs elsewhere."""
    earlier = _earlier(settings, brokers, with_zookeeper)
    if earlier is not None:
        return earlier
    listeners = settings.listeners
    each = 2 * len(listeners) + 2
    external = settings.external_ports
    free = iter(free_ports(len(brokers) * each + 1, without=external))
    wish = settings.zookeeper_port
    can_be = wish and wish not in external and is_free(wish)
    zookeeper_port = (wish if can_be else next(free)) * with_zookeeper
    ports = {}
    for index, number in enumerate(brokers):
        bound = {listener: next(free) for listener in listeners}
        advertised = bound
        if settings.proxies:
            advertised = {listener: next(free) for listener in listeners}
        if external:
            advertised[listeners[-1]] = external[index]
        ports[number] = Ports(
            bound,
            advertised,
            next(free) if settings.proxies else zookeeper_port,
            next(free),
        )
    for port in external:
        require_free(port, "a broker's port", "stop what listens there, or give other ports")
    return zookeeper_port, ports


def _earlier(
    settings: Settings, brokers: Sequence[int], with_zookeeper: bool
) -> tuple[int, dict[int, Ports]] | None:
    """The ports of the previous cluster in this folder, if it had as many brokers."""
    try:
        state = json.loads((settings.folder / "state.json").read_text())
        ports = {int(n): Ports(**p) for n, p in state["ports"].items()}
        zookeeper_port = int(state["zookeeper_port"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    listeners = settings.listeners
    if bool(zookeeper_port) is not with_zookeeper:
        return None
    if any(set(p.bound) != set(listeners) for p in ports.values()):
        return None
    fixed = tuple(p.advertised[listeners[-1]] for _, p in sorted(ports.items()))
    wanted = settings.external_ports
    if sorted(ports) != list(brokers) or (wanted and wanted != fixed):
        return None
    for of, name in product(ports.values(), listeners):
        if (of.bound[name] != of.advertised[name]) is not settings.proxies:
            return None
    for number in brokers:
        both = {*ports[number].bound.items(), *ports[number].advertised.items()}
        for listener, port in sorted(both):
            require_free(port, f"broker {number}, {listener}", "stop what listens there")
    if zookeeper_port:
        require_free(zookeeper_port, "ZooKeeper", "stop what listens there")
    return zookeeper_port, ports
