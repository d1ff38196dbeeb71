"""The language of joints: acts, and who plays in them.

A joint is a short list of acts, as data and not code (`joints`).  The brokers that play are drawn
when it begins, and the length of each act is drawn from a range (`joint_players`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from highwater.kafka.topic_names import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)

if TYPE_CHECKING:
    from highwater.simulation.cluster import SimCluster
    from highwater.world.chance import Random

LEADER, FOLLOWER, THIRD, CONTROLLER, ANYONE = "leader", "follower", "third", "controller", "anyone"
DATA = "data's leader"
"""The leader of the partition to which the joint's own producer writes."""
TRANSACTIONS, GROUPS = TRANSACTION_STATE_TOPIC, GROUP_METADATA_TOPIC
SHARES = SHARE_GROUP_STATE_TOPIC


@dataclass(frozen=True, slots=True)
class Time:
    """A length that is drawn: between two multiples of a second, of replica.lag.time.max.ms, or of
    the session's time-out."""

    least: float
    most: float
    unit: str = "seconds"

    def draw(self, random: Random, cluster: SimCluster) -> float:
        shape = cluster.shape
        unit = {
            "seconds": 1.0,
            "lag": shape.lag_ms / 1000,
            "session": shape.session_timeout_ms / 1000,
        }[self.unit]
        return random.uniform(self.least, self.most) * unit


@dataclass(frozen=True, slots=True)
class OfOne:
    """An act by one of the cast, or upon one."""

    who: str


@dataclass(frozen=True, slots=True)
class HoldNext:
    """Delays the next message of one API from one of the cast to another."""

    api_key: int
    what: str
    source: str
    target: str
    time: Time


@dataclass(frozen=True, slots=True)
class UntilHeld:
    """Waits until the message is held."""


@dataclass(frozen=True, slots=True)
class UntilDelivered:
    """Waits until the held message has arrived."""


@dataclass(frozen=True, slots=True)
class UntilGivingUp:
    """Waits until a member of a consumer group keeps partitions that it is to give up."""


class LoseAnswer(OfOne):
    """Lets ZooKeeper make the broker's next write of the partition's state, and ends its connection
    before the answer: the broker cannot know that it succeeded."""


class CutAfterWrite(OfOne):
    """Lets ZooKeeper answer the broker's next write of the partition's state, and cuts the broker
    off from ZooKeeper after that."""


@dataclass(frozen=True, slots=True)
class DeposeAtWrite:
    """Deletes the controller's znode at the instant when the topic's znode is written."""


@dataclass(frozen=True, slots=True)
class UntilWritten:
    """Waits until the write that this joint watches for has taken place."""


class Prefer(OfOne):
    """Changes the order of the replicas, which the controller writes with a new leader epoch."""


@dataclass(frozen=True, slots=True)
class Elect:
    """Has the preferred leader elected."""


class Kill(OfOne):
    """Kills a broker as SIGKILL does."""


class Start(OfOne):
    """Starts a broker again, on its data."""


class Stop(OfOne):
    """Stops a broker by a controlled shutdown."""


class UntilDown(OfOne):
    """Waits until a broker has ended."""


class LosePower(OfOne):
    """Takes a broker's machine's power and gives it back; the broker stays down."""


class Freeze(OfOne):
    """Pauses a broker, whose sockets still take what comes."""


class Thaw(OfOne):
    """Lets a paused broker go on."""


class CutFromZooKeeper(OfOne):
    """Cuts a broker off from ZooKeeper."""


@dataclass(frozen=True, slots=True)
class Heal:
    """Heals the links that this joint has cut."""


@dataclass(frozen=True, slots=True)
class Depose:
    """Deletes the controller's znode."""


class DeposeOnly(OfOne):
    """Deletes the controller's znode until another broker than this one is the controller."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Lets time pass."""

    time: Time


@dataclass(frozen=True, slots=True)
class Write:
    """The joint's own producer writes to a partition that the coordinator (the joint's leader) does
    not lead: in its open transaction, or else in its next one, under the same producer epoch."""


@dataclass(frozen=True, slots=True)
class End:
    """The joint's own producer ends its transaction."""

    commit: bool


@dataclass(frozen=True, slots=True)
class Trim:
    """Requests DeleteRecords, up to the HW or below.  As for the three acts below, the next act
    does not wait for the answer."""


@dataclass(frozen=True, slots=True)
class Grow:
    """Requests CreatePartitions, for one partition more: of the joint's topic, or of this one."""

    topic: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """Requests AlterPartitionReassignments, to these of the cast."""

    target: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Requests AlterPartitionReassignments, to cancel the present move."""


Act = (
    HoldNext | UntilHeld | UntilDelivered | UntilGivingUp | LoseAnswer | CutAfterWrite
    | DeposeAtWrite | UntilWritten | Prefer | Elect | Kill | Start | Stop | UntilDown | LosePower
    | Freeze | Thaw | CutFromZooKeeper | Heal | Depose | DeposeOnly | Pass | Write | End | Trim
    | Grow | Move | Cancel
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Joint:
    """A joint.  `topic`: the topic of its partition; if it is None, one of the workload's.
    `skips`: whether it goes on without an act that has nothing to break."""

    acts: tuple[Act, ...]
    topic: str | None = None
    skips: bool = False
