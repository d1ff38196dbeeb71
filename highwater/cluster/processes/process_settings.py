"""The settings of a cluster of processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from highwater.cluster.interface import controller_ids
from highwater.cluster.processes import server_properties
from highwater.cluster.processes.programs import Highwater, Program
from highwater.cluster.shared import SECURE
from highwater.kafka.security.scram_arguments import ScramUser

LISTENERS = ("INTERNAL", "CONTROL", "EXTERNAL")
KRAFT_LISTENERS = ("INTERNAL", server_properties.CONTROLLER, "EXTERNAL")


@dataclass(slots=True)
class Settings:
    folder: Path
    brokers: int = 3
    profile: str = "test"
    external_ports: tuple[int, ...] = ()
    """Fixed ports for clients (`up`); empty: free ones."""
    advertised: tuple[str, ...] = ()
    """HOST:PORT for each broker, where clients outside this machine or container reach its external
    port by another address; the proxies then listen for them on every address."""
    zookeeper_port: int = 0
    """The port to prefer for ZooKeeper; another is taken if it is in use.  0: any."""
    zookeeper: str = ""
    """java, embedded or HOST:PORT[,...][/CHROOT]; empty: the kind that the folder had before, else
    embedded."""
    zookeeper_sync: bool = False
    """Whether ZooKeeper's writes reach the disk itself before they are answered."""
    proxies: bool = False
    lends: bool = False
    """Whether Highwater's brokers borrow the proxies' ports until a fault touches a link
    (`lending`)."""
    security: str = "plaintext"
    """plaintext, ssl, sasl_plaintext or sasl_ssl.  For the latter three a further listener with
    this protocol gets the fixed ports, and access rules hold (`secured`)."""
    secured_links: bool = False
    """Whether the listeners between brokers speak that protocol, too.  Then there can be no
    proxies, because they could not see whose links they carry."""
    scram: Sequence[ScramUser] = ()
    """Users that are in ZooKeeper before the first broker starts."""
    program: Program = field(default_factory=Highwater)
    programs: dict[int, Program] = field(default_factory=dict)
    """Broker -> its program, where it differs (a mixed cluster); looked up at each start."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Further broker properties."""
    quick_end: bool = False
    """Whether to kill everything at the end, because nobody needs the data of a clean shutdown."""
    internal_topics: bool = False
    """Whether the start includes making __consumer_offsets and __transaction_state, for users whose
    first group comes after the first fault.  Otherwise the first client makes them, as in Kafka."""

    @property
    def secured(self) -> bool:
        return self.security != "plaintext"

    @property
    def listeners(self) -> tuple[str, ...]:
        own = KRAFT_LISTENERS if self.kraft else LISTENERS
        return (*own, SECURE) if self.secured else own

    @property
    def between_secured(self) -> tuple[str, ...]:
        """The listeners between brokers that are secured."""
        return ("INTERNAL", "CONTROL") if self.secured and self.secured_links else ()

    @property
    def kraft(self) -> bool:
        """Whether there is no ZooKeeper."""
        return self.program.kraft

    @property
    def controllers(self) -> list[int]:
        """The node ids of controllers in processes of their own, one for each broker; empty if the
        brokers are the quorum's voters themselves."""
        return controller_ids(self.brokers * self.program.apart)

    def program_of(self, number: int) -> Program:
        return self.programs.get(number, self.program)

    def numbers_of(self, name: str) -> list[int]:
        """The brokers that start with the program of this name."""
        return [n for n in range(1, self.brokers + 1) if self.program_of(n).name == name]
