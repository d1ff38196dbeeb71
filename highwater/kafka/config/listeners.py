"""The listener properties: bound and advertised endpoints, and each listener's role.

`listeners` names the sockets to bind, `advertised.listeners` the addresses that clients are told,
`listener.security.protocol.map` the protocol of each name.  One name is the inter-broker listener,
and one may be the control plane's (KIP-291).  Names are upper-cased, as in Kafka
(`ListenerName.normalised`).  All of `KafkaConfig`'s checks of listeners are here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from highwater.kafka.types import Endpoint

if TYPE_CHECKING:
    from highwater.kafka.config import Config

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_ENDPOINT = re.compile(r"(?P<name>.*)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?[0-9]+)")


class ListenerError(ValueError):
    """A listener property that cannot be used: the property and its value, the mistake, and the
    remedy.
    """

    def __init__(self, name: str, value: str, problem: str, remedy: str) -> None:
        super().__init__(f"{name}={value}: {problem}; {remedy}")
        self.property = name


@dataclass(frozen=True, slots=True)
class Listeners:
    """The endpoints of one broker.  An empty host means every interface (or, advertised, the
    machine's name).
    """

    bound: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    inter_broker: str
    control_plane: str | None

    @property
    def data_plane(self) -> tuple[Endpoint, ...]:
        """The bound endpoints except the control plane's."""
        return tuple(e for e in self.bound if e.listener != self.control_plane)

    @property
    def control_plane_endpoint(self) -> Endpoint | None:
        return next((e for e in self.bound if e.listener == self.control_plane), None)

    @property
    def controller_channel(self) -> str:
        """The name of the listener that receives the controller's requests."""
        return self.control_plane or self.inter_broker

    def registered(
        self, addresses: Mapping[str, tuple[str, int]], host_name: str
    ) -> tuple[Endpoint, ...]:
        """The endpoints for /brokers/ids/N: a port of 0 becomes the bound one, an empty host the
        machine's name.
        """
        return tuple(
            e._replace(
                host=e.host or host_name,
                port=e.port or addresses.get(e.listener, (e.host, e.port))[1],
            )
            for e in self.advertised
        )


def parse_listeners(config: Config) -> Listeners:
    """All listener properties of a configuration, checked; raises ListenerError at the first
    mistake.
    """
    protocols = _protocol_map(config.listener_security_protocol_map)
    bound = _endpoints("listeners", config.listeners, protocols)
    _distinct_ports("listeners", config.listeners, bound)
    if config.advertised_listeners is None:
        advertised, advertised_name, text = bound, "listeners", config.listeners
    else:
        advertised_name, text = "advertised.listeners", config.advertised_listeners
        advertised = _endpoints(advertised_name, text, protocols)
    inter_broker = _inter_broker(config, protocols)
    control_plane = None
    if config.control_plane_listener_name is not None:
        control_plane = _known(
            "control.plane.listener.name", config.control_plane_listener_name, protocols
        )
    parsed = Listeners(bound, advertised, inter_broker, control_plane)
    _check_roles(config, parsed)
    for endpoint in advertised:
        if endpoint.host == "0.0.0.0":
            problem = "0.0.0.0 cannot be reached by clients"
            raise ListenerError(
                advertised_name, text, problem, "advertise an address that clients can reach"
            )
    return parsed


def _protocol_map(text: str) -> dict[str, str]:
    name = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for item in _items(text):
        listener, separator, protocol = item.partition(":")
        if not separator:
            raise ListenerError(name, text, f"{item!r} has no colon", "write NAME:PROTOCOL")
        if protocol.strip() not in SECURITY_PROTOCOLS:
            problem = f"{protocol.strip()!r} is not a security protocol"
            raise ListenerError(name, text, problem, f"use one of {', '.join(SECURITY_PROTOCOLS)}")
        protocols[listener.strip().upper()] = protocol.strip()
    return protocols


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _endpoints(name: str, text: str, protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    found: list[Endpoint] = []
    for item in _items(text):
        match = _ENDPOINT.fullmatch(item)
        if match is None:
            remedy = "write NAME://host:port, such as PLAINTEXT://localhost:9092"
            raise ListenerError(name, text, f"{item!r} is not a listener", remedy)
        listener, port = match["name"].upper(), int(match["port"])
        if listener not in protocols:
            remedy = f"add {listener}:PLAINTEXT to listener.security.protocol.map"
            raise ListenerError(name, text, f"listener {listener} has no security protocol", remedy)
        if not 0 <= port <= 65535:
            raise ListenerError(name, text, f"port {port} is out of range", "use 0 to 65535")
        found.append(Endpoint(listener, protocols[listener], match["host"], port))
    if not found:
        raise ListenerError(name, text, "no listener is named", "name one at least")
    _distinct_names(name, text, found)
    return tuple(found)


def _distinct_names(name: str, text: str, endpoints: Sequence[Endpoint]) -> None:
    names = [e.listener for e in endpoints]
    for listener in dict.fromkeys(names):
        hosts = [e.host for e in endpoints if e.listener == listener]
        if len(hosts) == 1 or (len(hosts) == 2 and (":" in hosts[0]) != (":" in hosts[1])):
            continue  # an IPv4 and an IPv6 address may share a name (KIP-797)
        problem = f"listener name {listener} is used {len(hosts)} times"
        raise ListenerError(name, text, problem, "give each listener a name of its own")


def _distinct_ports(name: str, text: str, endpoints: Sequence[Endpoint]) -> None:
    used: dict[int, list[Endpoint]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            used.setdefault(endpoint.port, []).append(endpoint)
    for port, users in used.items():
        if len(users) == 1 or (
            len(users) == 2 and (":" in users[0].host) != (":" in users[1].host)
        ):
            continue
        problem = f"port {port} is used by {' and '.join(e.listener for e in users)}"
        raise ListenerError(name, text, problem, "give each listener a port of its own")


def _known(name: str, value: str, protocols: Mapping[str, str]) -> str:
    listener = value.strip().upper()
    if listener not in protocols:
        remedy = f"add {listener}:PLAINTEXT to listener.security.protocol.map"
        raise ListenerError(name, value, f"listener {listener} has no security protocol", remedy)
    return listener


def _inter_broker(config: Config, protocols: Mapping[str, str]) -> str:
    name, given = "inter.broker.listener.name", config.inter_broker_listener_name
    if given is not None:
        if "security.inter.broker.protocol" in config.originals:
            problem = "security.inter.broker.protocol is set, too"
            raise ListenerError(name, given, problem, "set only one of the two")
        return _known(name, given, protocols)
    protocol = config.security_inter_broker_protocol
    if protocol not in SECURITY_PROTOCOLS:
        problem = f"{protocol!r} is not a security protocol"
        remedy = f"use one of {', '.join(SECURITY_PROTOCOLS)}"
        raise ListenerError("security.inter.broker.protocol", protocol, problem, remedy)
    return protocol


def _check_roles(config: Config, parsed: Listeners) -> None:
    bound = [e.listener for e in parsed.bound]
    advertised = [e.listener for e in parsed.advertised]
    for listener in advertised:
        if listener not in bound:
            problem = f"{listener} is not among listeners ({', '.join(bound)})"
            remedy = "add it to listeners, or stop advertising it"
            value = config.advertised_listeners or ""
            raise ListenerError("advertised.listeners", value, problem, remedy)
    remedy = f"name one that is advertised: {', '.join(advertised)}"
    if parsed.inter_broker not in advertised:
        name = "inter.broker.listener.name"
        if config.inter_broker_listener_name is None:
            name = "security.inter.broker.protocol"
            remedy = f"set inter.broker.listener.name to one of {', '.join(advertised)}"
        problem = f"no listener {parsed.inter_broker} is advertised"
        raise ListenerError(name, parsed.inter_broker, problem, remedy)
    control = parsed.control_plane
    if control is None:
        return
    name = "control.plane.listener.name"
    if control not in advertised:
        raise ListenerError(name, control, f"no listener {control} is advertised", remedy)
    if control == parsed.inter_broker:
        problem = "it is the inter-broker listener, too"
        raise ListenerError(name, control, problem, "use a listener of its own")
