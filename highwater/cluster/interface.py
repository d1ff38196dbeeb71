"""The verbs that every runtime offers to faults, tests and the command line.

A cluster has members: brokers by number, and ZooKeeper.  `kill` is SIGKILL, `stop` SIGTERM (a
broker's controlled shutdown), `start` brings a member back on the same ports with the same data.
Links between members are cut, and single messages held, through `links`; where a runtime has no
proxies, `links` is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from highwater.cluster.links.link_rules import ZOOKEEPER, Links, broker
from highwater.cluster.lives import Lives

if TYPE_CHECKING:
    from highwater.cluster.hosts import Hosts

__all__ = [
    "CLIENT_MESSAGES",
    "ELSEWHERE",
    "PATIENCE_S",
    "TRACEBACK",
    "ZOOKEEPER",
    "Cluster",
    "ClusterError",
    "broker",
    "broker_number",
    "controller",
    "controller_ids",
    "exceptions_in",
    "node",
    "require_member",
    "require_paused",
    "require_running",
]


ELSEWHERE = "elsewhere"
"""The kind of a ZooKeeper that runs already, and is no member of the cluster."""
PATIENCE_S = 90.0
"""The harness's patience for anything that has to happen: a start, an election, a visible cut.

No check depends on it.  A Highwater broker starts in a second and one of Apache Kafka's in six; on
a machine of two shared cores each has taken more than five times as long.
"""

BROKER_LINKS, SEGMENTS = "links between brokers", "segments"
CLIENT_MESSAGES, DELETE = "messages of clients", "delete"
"""Things that a cluster may lack and that are neither verbs nor members."""

TRACEBACK = "Traceback (most recent call last):"


def exceptions_in(text: str) -> str:
    """The number of exceptions in a broker's output, and the last one, in words."""
    last = text[text.rindex(TRACEBACK) :].splitlines()[1:]
    said = next((line for line in last if line and not line[0].isspace()), "")
    return f"logged {text.count(TRACEBACK)} exceptions, the last: {said}"


class ClusterError(Exception):
    """A verb failed; the message is one clear line."""


def require_running(cluster: Cluster, member: str) -> None:
    """Raises ClusterError if this is no member, or one that does not run."""
    require_member(cluster, member)
    if not cluster.running(member):
        up = [m for m in cluster.members() if cluster.running(m)]
        raise ClusterError(f"{member} does not run; what runs is {', '.join(up) or 'nothing'}")


def require_awake(cluster: Cluster, member: str) -> None:
    """Raises ClusterError for a member that does not run, or is paused and can do nothing."""
    require_running(cluster, member)
    if cluster.paused(member):
        raise ClusterError(f"{member} is paused: resume it first")


def require_paused(cluster: Cluster, member: str) -> None:
    """Raises ClusterError for a member that does not run, or is not paused."""
    require_running(cluster, member)
    if not cluster.paused(member):
        still = [m for m in cluster.members() if cluster.paused(m)]
        raise ClusterError(f"{member} is not paused; what is: {', '.join(still) or 'nothing'}")


def require_member(cluster: Cluster, member: str, *further: str) -> None:
    """Raises ClusterError, with the known names, if this is neither a member nor in `further`."""
    names = [*cluster.members(), *further]
    if member not in names:
        raise ClusterError(f"no member {member!r}: there are {', '.join(names)}")


FIRST_CONTROLLER = 101
"""The node id of the first controller, where KRaft controllers are processes of their own."""


def controller_ids(count: int) -> list[int]:
    """The node ids of `count` controllers that are processes of their own."""
    return list(range(FIRST_CONTROLLER, FIRST_CONTROLLER + count))


def controller(number: int) -> str:
    """The name of the member that is this controller, where it is no broker."""
    return f"controller-{number}"


def node(cluster: Cluster, number: int) -> str:
    """The member with this node id: a broker, or a controller in a process of its own."""
    apart = controller(number)
    return apart if apart in cluster.members() else broker(number)


def broker_number(member: str) -> int:
    """The number in "broker-2"; raises ClusterError where the name is no broker's."""
    name, _, number = member.partition("-")
    if name != "broker" or not number.isdigit():
        raise ClusterError(f"{member} is no broker: brokers are named broker-1, broker-2, ...")
    return int(number)


class Cluster(Protocol):
    runtime: str
    brokers: list[int]
    links: Links | None
    hosts: Hosts | None
    """The brokers' disks and clocks; None where the harness cannot spoil them."""
    lives: Lives
    """The starts and ends of the members' processes."""

    @property
    def lacks(self) -> Mapping[str, str]:
        """The faults that this cluster cannot have, with the reason: verbs, members, and `delete`
        (of the controller's znode)."""

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers for clients under test; through the proxies, if any."""

    @property
    def inner_bootstrap(self) -> str:
        """The bootstrap servers for clients on the cluster's own machine, as in `bootstrap`."""

    @property
    def direct_bootstrap(self) -> str:
        """The bootstrap servers for the harness itself; never through a proxy."""

    @property
    def zookeeper_connect(self) -> str:
        """ZooKeeper's address for the witnesses; never through a proxy."""

    @property
    def zookeeper_kind(self) -> str:
        """java, embedded or ELSEWHERE, where the harness did not start it; empty: there is none."""

    def members(self) -> list[str]: ...

    def running(self, member: str) -> bool: ...

    def paused(self, member: str) -> bool: ...

    def pid_of(self, member: str) -> int | None:
        """The pid of a member; None where it does not run, or the runtime shows no pids."""

    def port_of(self, member: str) -> int:
        """The port at which clients reach it."""

    def metrics_address(self, number: int) -> str | None:
        """host:port of a broker's metrics and traces; None where it has none."""

    def write_state(self, **further: Any) -> None:
        """Writes the folder's state.json, with further fields."""

    def data_dirs(self, number: int) -> list[Path]:
        """A broker's log directories, readable by this process."""

    async def kill(self, member: str) -> None:
        """Kills a running member; ClusterError where it does not run, as in `stop` and `pause`."""

    async def stop(self, member: str, timeout_s: float = PATIENCE_S) -> int:
        """Stops a member; gives the exit code."""

    async def start(self, member: str, ready: bool = True, timeout_s: float = PATIENCE_S) -> None:
        """Starts a member; waits until it serves, unless `ready` is False."""

    async def wait_ready(self, member: str, timeout_s: float = PATIENCE_S) -> None:
        """Waits until a started member serves; raises StartError where it does not."""

    async def fill_disk(self, member: str) -> int:
        """Lets a broker write nothing more to any file, and waits until it has ended; gives the
        exit code.  Raises ClusterError, with the disk as before, where it does not end."""

    async def pause(self, member: str) -> None: ...

    async def resume(self, member: str) -> None: ...

    def unexpected_ends(self) -> list[str]:
        """Members that ended unasked, with their last words."""

    def logged_exceptions(self) -> list[str]:
        """Exceptions that a broker logged and did not handle."""
