"""An agent's settings at its start: a JSON object in which only `folder` has no default."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from highwater.agent import api_schemas as schemas
from highwater.agent.errors import ControlError
from highwater.child_processes import StartError
from highwater.cluster import internal_topics
from highwater.cluster.client_files import PROTOCOLS
from highwater.cluster.interface import PATIENCE_S, Cluster
from highwater.cluster.processes import zookeeper_choice
from highwater.kafka.security.scram_arguments import ScramArgumentError, ScramUser, parse_all

if TYPE_CHECKING:
    from highwater.cluster.compose.compose_cluster import ComposeCluster

_PORT: schemas.Schema = {"type": "integer", "minimum": 0, "maximum": 65535}
SCHEMA = schemas.obj(
    ["folder"],
    folder=schemas.TEXT,
    brokers={"type": "integer", "minimum": 1, "maximum": 9},
    profile={"type": "string", "enum": ["test", "kafka"]},
    program=schemas.TEXT,
    runtime={"type": "string", "enum": ["process", "compose"]},
    properties=schemas.mapping({"type": ["string", "integer", "number", "boolean"]}),
    proxies=schemas.FLAG,
    quick_end=schemas.FLAG,
    security={"type": "string", "enum": list(PROTOCOLS)},
    scram=schemas.array(schemas.TEXT),
    external_ports=schemas.array(_PORT),
    zookeeper=schemas.TEXT,
    zookeeper_sync=schemas.FLAG,
    zookeeper_port=_PORT,
    control_port=_PORT,
    control_host=schemas.TEXT,
    control_token=schemas.TEXT,
    advertised=schemas.array(schemas.TEXT),
)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    folder: Path
    brokers: int = 3
    profile: str = "test"
    program: str = "highwater"
    """highwater, apache, or apache:VERSION (`highwater.cluster.target`)."""
    runtime: str = "process"
    properties: Mapping[str, str] = field(default_factory=dict)
    proxies: bool = True
    """Without them no link can be cut and no message held."""
    quick_end: bool = True
    """Kill everything at the end, because no one needs the data."""
    security: str = "plaintext"
    """plaintext, or what the clients' ports require: ssl, sasl_plaintext or sasl_ssl; then access
    rules hold.  Only the process runtime has the latter three."""
    scram: tuple[str, ...] = field(default=(), repr=False)
    """SCRAM users, each in the form that --add-scram takes."""
    external_ports: tuple[int, ...] = ()
    """Fixed ports for clients; empty: free ones."""
    zookeeper: str = ""
    """java, embedded or HOST:PORT[,...][/CHROOT]; empty: the kind that the folder had before, else
    embedded.  Only for the process runtime."""
    zookeeper_sync: bool = False
    """Whether ZooKeeper's writes reach the disk itself before they are answered."""
    zookeeper_port: int = 0
    """The port to prefer for ZooKeeper; 0: any."""
    control_port: int = 0
    control_host: str = "127.0.0.1"
    """Beyond loopback, each call must carry the token."""
    control_token: str = field(default="", repr=False)
    """The token that calls must carry; empty: one is made where it is needed."""
    advertised: tuple[str, ...] = ()
    """HOST:PORT of each broker as clients on other machines reach its external port."""

    @classmethod
    def from_json(cls, raw: Any) -> AgentSettings:
        """The settings in this JSON; StartError names a value that makes no sense, and one that
        would."""
        try:
            schemas.check(raw, {"type": "object"}, "the settings")
            schemas.check(raw, SCHEMA, "the settings")
        except ControlError as error:
            raise StartError(error.message) from None
        given = {f.name: raw[f.name] for f in fields(cls) if f.name in raw}
        given["folder"] = Path(given["folder"]).absolute()
        for name in ("external_ports", "advertised", "scram"):
            given[name] = tuple(given.get(name, ()))
        given["properties"] = {k: _text(v) for k, v in given.get("properties", {}).items()}
        made = cls(**given)
        _check_program(made)
        for name in ("external_ports", "advertised"):
            if (many := len(getattr(made, name))) not in (0, made.brokers):
                raise StartError(
                    f"{made.brokers} brokers need as many {name}, and there are {many}"
                )
        for address in made.advertised:
            host, _, port = address.rpartition(":")
            if not (host and port.isdecimal() and 0 < int(port) < 65536) or set(host) & set(", \n"):
                raise StartError(f"advertised {address!r} is no HOST:PORT, such as localhost:9092")
        if made.advertised and not (made.proxies and made.runtime == "process"):
            raise StartError("advertised addresses need proxies and the process runtime")
        made._check_security()
        zookeeper_choice.checked(made.zookeeper)
        if made.zookeeper and made.runtime == "compose":
            raise StartError("the compose runtime has ZooKeeper's own image: leave zookeeper out")
        if made.runtime == "compose" and (made.brokers != 3 or made.program != "highwater"):
            raise StartError("the compose runtime has three brokers, and Highwater's")
        return made

    def _check_security(self) -> None:
        secured = self.security != "plaintext"
        if (secured or self.scram) and self.runtime == "compose":
            raise StartError(
                "security is for the process runtime: compose.yaml's listeners are plain"
            )
        if secured and self.advertised:
            raise StartError("security and advertised addresses do not go together: leave one out")
        self.scram_users()

    def scram_users(self) -> list[ScramUser]:
        """Raises StartError, which shows no password."""
        try:
            return parse_all(self.scram)
        except ScramArgumentError as error:
            raise StartError(f"a SCRAM user: {error}") from None

    def unknown_properties(self) -> list[str]:
        """One line for each property that no broker knows.  The table of all properties is loaded
        only if there is one to look up."""
        if not self.properties:
            return []
        from highwater.kafka.config.unknown import unknown_properties

        return unknown_properties(self.properties)

    def open_cluster(self) -> AbstractAsyncContextManager[Cluster]:
        _check_program(self)
        if self.runtime == "compose":
            from highwater.cluster.compose.compose_cluster import ComposeSettings, compose_cluster

            settings = ComposeSettings(
                self.folder,
                self.properties,
                self.profile,
                self.external_ports,
                keep=not self.quick_end,
            )
            return _with_internal_topics(compose_cluster(settings))
        return self._processes()

    @asynccontextmanager
    async def _processes(self) -> AsyncIterator[Cluster]:
        from highwater.cluster.processes.process_cluster import process_cluster
        from highwater.cluster.processes.process_settings import Settings
        from highwater.cluster.processes.programs import Highwater, Program

        program: Program = Highwater()
        if self.program == "apache":
            from highwater.cluster.processes import apache

            program = apache.program()
        elif self.program != "highwater":
            from highwater.cluster.target import release

            program = release(self.program).program()
        settings = Settings(
            self.folder,
            brokers=self.brokers,
            profile=self.profile,
            external_ports=self.external_ports,
            zookeeper=self.zookeeper,
            zookeeper_sync=self.zookeeper_sync,
            zookeeper_port=self.zookeeper_port,
            proxies=self.proxies,
            lends=True,
            program=program,
            properties=self.properties,
            quick_end=self.quick_end,
            security=self.security,
            scram=self.scram_users(),
            internal_topics=True,
            advertised=self.advertised,
        )
        async with process_cluster(settings) as cluster:
            yield cluster


def _check_program(made: AgentSettings) -> None:
    """Raises StartError for an unknown program, or one that lacks what the settings require."""
    if made.program in ("highwater", "apache"):
        return
    from highwater.cluster.target import release

    if release(made.program).kraft and (made.security != "plaintext" or made.scram):
        raise StartError(f"security needs ZooKeeper here, and {made.program} has none")


@asynccontextmanager
async def _with_internal_topics(
    starting: AbstractAsyncContextManager[ComposeCluster],
) -> AsyncIterator[Cluster]:
    async with starting as cluster:
        await internal_topics.create(cluster, PATIENCE_S)
        yield cluster


def _text(value: Any) -> str:
    """A property's value as server.properties has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
