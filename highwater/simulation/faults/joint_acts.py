"""The language of joints: acts, and who plays in them.

A joint is a short list of acts, data and no code (`joints`).  Who plays is drawn when it begins,
and how long each act takes is drawn from its range (`joint_players`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from highwater.kafka.topic_names import TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from highwater.simulation.cluster import SimCluster
    from highwater.world.chance import Random

LEADER, FOLLOWER, THIRD, CONTROLLER, ANYONE = "leader", "follower", "third", "controller", "anyone"
DATA = "data's leader"
"""The leader of the partition to which the joint's own producer writes."""
TRANSACTIONS = TRANSACTION_STATE_TOPIC


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
    """What happens to one of the cast, or what one does."""

    who: str


@dataclass(frozen=True, slots=True)
class HoldNext:
    """The next message of that API from one to another is on its way for so long."""

    api_key: int
    what: str
    source: str
    target: str
    time: Time


@dataclass(frozen=True, slots=True)
class UntilHeld:
    """Goes on once the message is held."""


@dataclass(frozen=True, slots=True)
class UntilDelivered:
    """Goes on once the held message has come."""


class LoseAnswer(OfOne):
    """The next write of the partition's state by that broker takes place in ZooKeeper, and its
    connection ends before the answer: it cannot know."""


class CutAfterWrite(OfOne):
    """The next write of the partition's state by that broker is answered, and then no bytes pass
    between it and ZooKeeper."""


@dataclass(frozen=True, slots=True)
class DeposeAtWrite:
    """The controller's znode is deleted in the instant in which the topic's znode is written."""


@dataclass(frozen=True, slots=True)
class UntilWritten:
    """Goes on once the write that this joint watches for has taken place."""


class Prefer(OfOne):
    """Another order of the replicas: a write of the controller, with a new leader epoch."""


@dataclass(frozen=True, slots=True)
class Elect:
    """The preferred leader is elected."""


class Kill(OfOne):
    """kill -9."""


class Start(OfOne):
    """It starts again, on its data."""


class Stop(OfOne):
    """A controlled shutdown."""


class UntilDown(OfOne):
    """Goes on once it has ended."""


class LosePower(OfOne):
    """Its machine loses power, and gets it back; the broker stays down."""


class Freeze(OfOne):
    """It stands still, and its sockets take what comes."""


class Thaw(OfOne):
    """It goes on."""


class CutFromZooKeeper(OfOne):
    """No bytes between it and ZooKeeper."""


@dataclass(frozen=True, slots=True)
class Heal:
    """The links that this joint cut."""


@dataclass(frozen=True, slots=True)
class Depose:
    """The controller's znode is deleted."""


class DeposeOnly(OfOne):
    """The controller's znode is deleted for as long as this broker is the controller."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Time passes."""

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
    """DeleteRecords, up to the HW or below.  Like the next three it is asked for, and the next act
    does not wait for the answer."""


@dataclass(frozen=True, slots=True)
class Grow:
    """CreatePartitions: one more."""


@dataclass(frozen=True, slots=True)
class Move:
    """AlterPartitionReassignments: to these of the cast."""

    target: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """AlterPartitionReassignments: the move that is under way ends."""


Act = (
    HoldNext | UntilHeld | UntilDelivered | LoseAnswer | CutAfterWrite | DeposeAtWrite
    | UntilWritten | Prefer | Elect | Kill | Start | Stop | UntilDown | LosePower | Freeze | Thaw
    | CutFromZooKeeper | Heal | Depose | DeposeOnly | Pass | Write | End | Trim | Grow | Move
    | Cancel
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Joint:
    """`topic`: the partition is one of this topic; without, one of the workload's.  `skips`: an act
    that has nothing to break is left out, and the joint goes on."""

    acts: tuple[Act, ...]
    topic: str | None = None
    skips: bool = False
