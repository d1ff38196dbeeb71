"""`--target compose:FILE`: the Kafka brokers of any Compose project that runs.

Theory of operation.  Compose lists the project's containers, and the engine says where each of them
is: the ports that it publishes, its addresses in the project's networks, and its names there.  Some
port of some container answers Metadata, and the answer has every broker's address on the listener
that it came through; an address may be a container's name.  A port is used if each broker that its
answer names can be reached from here and is one of the containers.  That excludes listeners that
advertise addresses which only other containers can reach.  From then on it is a cluster at an
address (`remote_cluster`), whose commands are the engine's: kill, stop, start, pause, unpause.

The file and the containers stay as they are, and a run ends with each of them running.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from highwater.child_processes import StartError
from highwater.cluster.ask import metadata
from highwater.cluster.links.rewriting import Address
from highwater.cluster.remote.remote_cluster import AddressTarget, Commands
from highwater.kafka.wire.codec import BadMessage

DOCKER = Commands(
    kill="docker kill {container}",
    stop="docker stop --time 40 {container}",
    start="docker start {container}",
    pause="docker pause {container}",
    resume="docker unpause {container}",
)
ANSWER_S = 3.0
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Container:
    """A running container of the project, and the addresses at which its ports can be reached."""

    id: str
    service: str
    published: Mapping[int, int] = field(default_factory=dict)
    """Port of this machine -> the container's port behind it."""
    addresses: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    """Its names among other containers."""
    ports: tuple[int, ...] = ()
    """The ports that the image or the Compose file exposes."""

    def ways_in(self) -> Iterator[Address]:
        for port in self.published:
            yield "127.0.0.1", port
        for address in self.addresses:
            for port in self.ports:
                yield address, port


def container_of(told: Mapping[str, Any], local: frozenset[str]) -> Container:
    """The container that `docker inspect` describes; `local`: this machine's own names."""
    settings = told["NetworkSettings"]
    exposed = {int(port.partition("/")[0]) for port in told["Config"].get("ExposedPorts") or {}}
    published: dict[int, int] = {}
    for inside, bound in (settings.get("Ports") or {}).items():
        number, _, protocol = inside.partition("/")
        if protocol != "tcp":
            continue
        exposed.add(int(number))
        published |= {int(b["HostPort"]): int(number) for b in bound or () if b["HostPort"]}
    networks = list((settings.get("Networks") or {}).values())
    labels = told["Config"].get("Labels") or {}
    service = labels.get("com.docker.compose.service", "")
    names = {service, told["Name"].lstrip("/"), told["Config"].get("Hostname", "")}
    names.update(name for network in networks for name in network.get("Aliases") or ())
    return Container(
        told["Id"][:12],
        service,
        published,
        tuple(network["IPAddress"] for network in networks if network.get("IPAddress")),
        frozenset(names) - local - {""},
        tuple(sorted(exposed)),
    )


def place_of(
    advertised: Address, containers: Sequence[Container], local: frozenset[str]
) -> tuple[Address, Container] | None:
    """The address from here for an advertised one, and its container; None if there is none."""
    host, port = advertised
    for container in containers:
        if host in local and port in container.published:
            return ("127.0.0.1", port), container
        if host in container.addresses:
            return advertised, container
        if host in container.names and container.addresses:
            return (container.addresses[0], port), container
    return None


LOCAL = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "host.docker.internal", "::1"})


def find(file: str, services: Sequence[str] = ()) -> AddressTarget:
    """The brokers of this file's project; raises StartError, with the remedy.

    `services`: the services that are brokers; empty: those that answer as brokers.
    """
    containers = _containers(Path(file), services)
    known, ids = trio.run(_brokers, containers)
    if not known:
        ways = ", ".join(f"{c.service} ({_ports(c)})" for c in containers)
        raise StartError(
            f"compose:{file}: no listener without TLS and login names brokers that can be reached"
            f" from here: {ways}; publish one whose advertised address is localhost and its port"
        )
    return AddressTarget(file, known, DOCKER, containers=ids)


def _ports(container: Container) -> str:
    return ", ".join(map(str, container.published)) or "no published port"


def _containers(file: Path, services: Sequence[str]) -> list[Container]:
    if not file.is_file():
        raise StartError(f"compose:{file}: there is no such file")
    ids = _docker("compose", "-f", str(file), "ps", "--quiet", *services).split()
    if not ids:
        named = f" of {', '.join(services)}" if services else ""
        raise StartError(
            f"compose:{file}: no container{named} runs;"
            f" `docker compose -f {file} up -d --wait` starts the project"
        )
    return [container_of(told, LOCAL) for told in json.loads(_docker("inspect", *ids))]


def _docker(*arguments: str) -> str:
    try:
        done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise StartError(f"docker is not installed: {error.strerror}") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:]
        raise StartError(f"`docker {' '.join(arguments[:3])}`: {said[0] if said else 'failed'}")
    return done.stdout


async def _brokers(containers: Sequence[Container]) -> tuple[dict[int, Address], dict[int, str]]:
    """Each broker's address from here, and its container, by the first port through which all
    brokers can be reached; empty where there is none."""
    ways = [way for container in containers for way in container.ways_in()]
    answers: dict[Address, dict[int, Address]] = {}
    limit = trio.CapacityLimiter(_AT_ONCE)

    async def look(way: Address) -> None:
        async with limit:
            with trio.move_on_after(ANSWER_S):
                try:
                    answer = await metadata(way, [], timeout_s=ANSWER_S)
                except (OSError, BadMessage, trio.BrokenResourceError):
                    return
                answers[way] = {b.node_id: (b.host, b.port) for b in answer.brokers}

    async with trio.open_nursery() as nursery:
        for way in ways:
            nursery.start_soon(look, way)
    for way in ways:
        places = {n: place_of(a, containers, LOCAL) for n, a in answers.get(way, {}).items()}
        found = {n: place for n, place in places.items() if place is not None}
        if found and len(found) == len(places):
            for number, (address, _) in found.items():
                await look(address)
                if number not in answers.get(address, {}):
                    break
            else:
                ids = {number: container.id for number, (_, container) in found.items()}
                return {n: address for n, (address, _) in found.items()}, ids
    return {}, {}
