"""The security of a broker's listeners, and of its own connections to other brokers.

A broker connects to the others on two listeners: the inter-broker one, and the control plane's for
the controller's requests.  Each link speaks that listener's protocol, with that listener's
properties.  Where it is PLAINTEXT the world's own network is used, and nothing stands in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Protocol

from highwater.kafka.security.delegation_tokens import SECRET, SECRET_BEFORE, DelegationTokens
from highwater.kafka.security.scram_users import ScramUsers
from highwater.kafka.security.settings import ListenerSettings

if TYPE_CHECKING:
    from highwater.kafka.config import Config
    from highwater.kafka.security.authentication import SaslSettings
    from highwater.kafka.security.sasl import SaslLogin
    from highwater.kafka.security.tls import ClientTls, ServerTls
    from highwater.world.api import Clock, Connection, Disk, Listener, Network, World, ZooKeeper


class Reloading(Protocol):
    def prepared(self, changes: Mapping[str, str]) -> Callable[[], None]: ...


class SecuredNetwork:
    """A network whose connections are secured before anyone gets them."""

    def __init__(
        self, network: Network, tls: ClientTls | None, login: SaslLogin | None = None
    ) -> None:
        self._network = network
        self._tls = tls
        self._login = login

    async def listen(self, host: str, port: int, backlog: int = 50) -> Listener:
        return await self._network.listen(host, port, backlog)

    async def connect(self, host: str, port: int) -> Connection:
        connection = await self._network.connect(host, port)
        try:
            if self._tls is not None:
                connection = await self._tls.connect(connection, host)
            if self._login is not None:
                await self._login.authenticate(connection)
            return connection
        except BaseException:
            connection.close()
            raise


class SecuredWorld:
    """A world with another network."""

    def __init__(self, world: World, network: Network) -> None:
        self.clock: Clock = world.clock
        self.disk: Disk = world.disk
        self.random: Random = world.random
        self.network = network
        self._world = world

    def zookeeper(
        self, connect: str, session_timeout_ms: int, connection_timeout_ms: int
    ) -> AbstractAsyncContextManager[ZooKeeper]:
        return self._world.zookeeper(connect, session_timeout_ms, connection_timeout_ms)


@dataclass(frozen=True, slots=True)
class Security:
    """The worlds of clients, of links to brokers, and of the controller's; TLS and SASL by
    listener.
    """

    clients: World
    tls: Mapping[str, ServerTls]
    sasl: Mapping[str, SaslSettings]
    users: ScramUsers
    tokens: DelegationTokens
    brokers: World
    controller: World
    reloading: Mapping[str, Sequence[Reloading]] = field(default_factory=dict)
    """The functions that read stores again, by listener."""

    def prepared(self, changes: Mapping[str, str]) -> Callable[[], None]:
        """Reads all stores again, with these properties in place of those at the start; gives what
        takes them into use.  Raises ConfigError, and changes nothing then."""
        every = [one for several in self.reloading.values() for one in several]
        uses = [one.prepared(changes) for one in every]

        def use() -> None:
            for take in uses:
                take()

        return use


def open_security(config: Config, world: World) -> Security:
    """Reads stores and credentials; raises ConfigError with one line."""
    listeners = config.parsed_listeners
    protocols = {e.listener: e.security_protocol for e in listeners.bound}
    settings = {
        name: ListenerSettings(config.originals, name, protocol)
        for name, protocol in protocols.items()
    }
    tls = {name: _server_tls(s, world.disk) for name, s in settings.items() if _encrypted(s)}
    users = ScramUsers()
    given = config.originals
    tokens = DelegationTokens(given.get(SECRET) or given.get(SECRET_BEFORE) or "")
    sasl = {
        name: _sasl(s, users, world, tokens)
        for name, s in settings.items()
        if s.protocol.startswith("SASL")
    }
    between = {listeners.inter_broker, listeners.controller_channel}
    own = {name: _client_tls(settings[name], world.disk) for name in between}
    worlds = {name: _link(settings[name], world, own[name]) for name in between}
    reloading = {
        name: [one for one in (tls.get(name), own.get(name)) if one is not None]
        for name in settings
    }
    return Security(
        world,
        tls,
        sasl,
        users,
        tokens,
        worlds[listeners.inter_broker],
        worlds[listeners.controller_channel],
        reloading,
    )


def _encrypted(settings: ListenerSettings) -> bool:
    return settings.protocol.endswith("SSL")


def _server_tls(settings: ListenerSettings, disk: Disk) -> ServerTls:
    from highwater.kafka.security.tls import ServerTls  # cryptography is loaded where it is used

    return ServerTls(settings, disk)


def _sasl(
    settings: ListenerSettings, users: ScramUsers, world: World, tokens: DelegationTokens
) -> SaslSettings:
    from highwater.kafka.security.sasl import sasl_settings

    return sasl_settings(settings, users, world, tokens)


def _client_tls(settings: ListenerSettings, disk: Disk) -> ClientTls | None:
    if not _encrypted(settings):
        return None
    from highwater.kafka.security.tls import ClientTls

    return ClientTls(settings, disk)


def _link(settings: ListenerSettings, world: World, tls: ClientTls | None) -> World:
    if settings.protocol == "PLAINTEXT":
        return world
    login = None
    if settings.protocol.startswith("SASL"):
        from highwater.kafka.security.sasl import SaslLogin

        login = SaslLogin(settings)
    return SecuredWorld(world, SecuredNetwork(world.network, tls, login))
