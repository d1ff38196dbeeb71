"""Joint events: brings events together that break a promise only if they coincide.

Chance alone seldom brings three events together within a few milliseconds.  A joint is a short list
of acts, as data and not code (`joint_acts`).  Its cast (the leader, a follower and a third replica
of one partition, the controller) is drawn when it begins, and the length of each act from a range.
`highwater sim --joints` draws joints by the seed; the faults of the seed's plan go on at the same
time.  One joint in four is improvised: its acts are drawn, too (`improvised`).

If an act waits for something that does not come, the joint is given up ("nothing to break"); an
improvised joint goes on without that act.  At its end a joint undoes its own acts: it starts the
brokers that it killed, resumes those that it paused, heals links, and moves its partition back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from highwater.simulation.faults.improvised import IMPROVISED
from highwater.simulation.faults.joint_acts import (
    ANYONE,
    CONTROLLER,
    DATA,
    FOLLOWER,
    GROUPS,
    LEADER,
    SHARES,
    THIRD,
    TRANSACTIONS,
    Act,
    Cancel,
    CutAfterWrite,
    CutFromZooKeeper,
    Depose,
    DeposeAtWrite,
    DeposeOnly,
    Elect,
    End,
    Freeze,
    Grow,
    Heal,
    HoldNext,
    Joint,
    Kill,
    LoseAnswer,
    LosePower,
    Move,
    Pass,
    Prefer,
    Start,
    Stop,
    Thaw,
    Time,
    Trim,
    UntilDelivered,
    UntilDown,
    UntilGivingUp,
    UntilHeld,
    UntilWritten,
    Write,
)
from highwater.simulation.faults.staged_faults import Fault
from highwater.simulation.wire_tap import (
    ANSWER,
    CONSUMER_GROUP_HEARTBEAT,
    FETCH,
    LEADER_AND_ISR,
    OFFSETS_FOR_LEADER_EPOCH,
    READ_SHARE_STATE,
    REQUEST,
    WRITE_SHARE_STATE,
    WRITE_TXN_MARKERS,
)
from highwater.simulation.workloads.administrators import GOVERNED
from highwater.simulation.workloads.consumers.consumer_client import TOPIC as POOLED
from highwater.simulation.workloads.sharing.share_client import TOPIC as HANDED_OUT
from highwater.simulation.workloads.trimmed import TRIMMED

if TYPE_CHECKING:
    from highwater.world.chance import Random

EVERY_S = 5.0
IMPROVISED_SHARE = 0.25


def _lead(who: str) -> tuple[Act, ...]:
    return Prefer(who), Pass(Time(0.05, 0.3)), Elect()


JOINTS = {
    "there and back, and an answer between": Joint(
        (
            *(Prefer(FOLLOWER), Pass(Time(0.2, 0.4))),
            *(HoldNext(FETCH, ANSWER, THIRD, LEADER, Time(0.6, 1.4, "lag")), UntilHeld()),
            *(Elect(), Pass(Time(0.0, 1.0)), *_lead(LEADER), Pass(Time(0.0, 1.0))),
        )
    ),
    "an unknown write, the controller's, an election": Joint(
        (
            *(LoseAnswer(LEADER), Freeze(FOLLOWER), UntilWritten(), Prefer(THIRD)),
            *(Pass(Time(0.0, 0.3)), Elect(), Pass(Time(0.0, 1.0)), Thaw(FOLLOWER)),
        )
    ),
    "a marker over a new coordinator": Joint(
        (
            *(HoldNext(WRITE_TXN_MARKERS, REQUEST, LEADER, ANYONE, Time(1.0, 6.0)), UntilHeld()),
            *(Kill(LEADER), Pass(Time(1.0, 8.0)), Start(LEADER), Pass(Time(0.5, 1.0))),
        ),
        TRANSACTIONS,
    ),
    "a marker over a moved coordinator": Joint(
        (
            *(HoldNext(WRITE_TXN_MARKERS, REQUEST, LEADER, ANYONE, Time(1.0, 6.0)), UntilHeld()),
            *(*_lead(FOLLOWER), Pass(Time(2.0, 6.0))),
        ),
        TRANSACTIONS,
    ),
    "a marker's answer over a moved coordinator": Joint(
        (
            *(HoldNext(WRITE_TXN_MARKERS, ANSWER, LEADER, ANYONE, Time(1.0, 6.0)), UntilHeld()),
            *(*_lead(FOLLOWER), Pass(Time(0.5, 3.0)), *_lead(LEADER)),
        ),
        TRANSACTIONS,
    ),
    "a marker over a moved coordinator, and the next transaction": Joint(
        (
            *(Write(), HoldNext(WRITE_TXN_MARKERS, REQUEST, LEADER, DATA, Time(3.0, 6.0))),
            *(End(commit=True), UntilHeld(), *_lead(FOLLOWER), Write(), UntilDelivered()),
            *(Pass(Time(0.0, 0.5)), Write(), End(commit=False)),
        ),
        TRANSACTIONS,
    ),
    "a marker over a dead coordinator, and the next transaction": Joint(
        (
            *(
                Write(),
                HoldNext(WRITE_TXN_MARKERS, REQUEST, LEADER, DATA, Time(1.2, 2.0, "session")),
            ),
            *(End(commit=False), UntilHeld(), Kill(LEADER), Write(), UntilDelivered()),
            *(Start(LEADER), Pass(Time(0.0, 0.5)), Write(), End(commit=True)),
        ),
        TRANSACTIONS,
    ),
    "a marker's answer over a coordinator there and back, and the next transaction": Joint(
        (
            *(Write(), HoldNext(WRITE_TXN_MARKERS, ANSWER, LEADER, DATA, Time(1.0, 4.0))),
            *(End(commit=True), UntilHeld(), *_lead(FOLLOWER), *_lead(LEADER)),
            *(Write(), End(commit=False), Write(), UntilDelivered(), Write(), End(commit=True)),
        ),
        TRANSACTIONS,
    ),
    "a beginning is deleted while an answer is held, and another leads": Joint(
        (
            *(HoldNext(FETCH, ANSWER, FOLLOWER, LEADER, Time(0.3, 1.2, "lag")), UntilHeld()),
            *(Trim(), Pass(Time(0.0, 0.3)), *_lead(FOLLOWER), Pass(Time(0.0, 0.5)), Trim()),
            *(Pass(Time(0.0, 0.3)), *_lead(THIRD), Pass(Time(0.0, 1.0))),
        ),
        TRIMMED,
    ),
    "a move is cancelled over a controller's change": Joint(
        (
            *(Move((LEADER, FOLLOWER)), Pass(Time(0.3, 1.0)), DeposeAtWrite()),
            HoldNext(FETCH, ANSWER, THIRD, LEADER, Time(1.0, 4.0)),
            *(Move((FOLLOWER, LEADER, THIRD)), UntilWritten(), Pass(Time(0.0, 1.0)), Cancel()),
            Pass(Time(0.3, 1.5)),
        )
    ),
    "partitions are added as the controller goes": Joint(
        (DeposeAtWrite(), Grow(), UntilWritten(), Pass(Time(0.5, 2.0)), Elect()), GOVERNED
    ),
    "a leader wakes after its session": Joint(
        (
            *(Freeze(LEADER), Pass(Time(0.5, 0.95, "session")), CutFromZooKeeper(LEADER)),
            *(Thaw(LEADER), Pass(Time(0.2, 0.9, "session")), Heal(), Pass(Time(0.0, 1.0))),
        )
    ),
    "a role that comes late, after two elections": Joint(
        (
            HoldNext(LEADER_AND_ISR, REQUEST, CONTROLLER, THIRD, Time(0.5, 4.0)),
            *(*_lead(FOLLOWER), UntilHeld(), Pass(Time(0.0, 1.0)), *_lead(LEADER)),
        )
    ),
    "a restart before the controller has its answer": Joint(
        (
            HoldNext(LEADER_AND_ISR, ANSWER, CONTROLLER, FOLLOWER, Time(0.5, 3.0)),
            *(*_lead(FOLLOWER), UntilHeld(), Kill(FOLLOWER), Pass(Time(0.0, 0.1))),
            *(Start(FOLLOWER), Pass(Time(0.5, 2.0))),
        )
    ),
    "the end of an epoch is told across an election": Joint(
        (
            HoldNext(OFFSETS_FOR_LEADER_EPOCH, ANSWER, FOLLOWER, LEADER, Time(0.3, 2.0)),
            *(Kill(FOLLOWER), Pass(Time(0.5, 2.0)), Start(FOLLOWER), UntilHeld()),
            *(*_lead(THIRD), Pass(Time(0.3, 1.0))),
        )
    ),
    "the power goes after an orderly stop": Joint(
        (
            *(Stop(LEADER), UntilDown(LEADER), LosePower(LEADER), Pass(Time(0.0, 1.0))),
            *(Start(LEADER), Pass(Time(0.5, 2.0))),
        )
    ),
    "a controller is replaced between its write and its request": Joint(
        (
            HoldNext(LEADER_AND_ISR, REQUEST, CONTROLLER, FOLLOWER, Time(0.5, 4.0)),
            *(Prefer(FOLLOWER), UntilHeld(), Depose(), Pass(Time(0.0, 1.0)), Elect()),
            Pass(Time(0.5, 2.0)),
        )
    ),
}


LAST = {
    "a marker to a leader that is back and was told nothing": Joint(
        (
            # the first one fails if the administrator's connection leads to a former life
            *(Elect(), *_lead(FOLLOWER), Pass(Time(0.1, 0.5)), Write(), DeposeOnly(DATA)),
            HoldNext(WRITE_TXN_MARKERS, REQUEST, FOLLOWER, DATA, Time(2.0, 4.0)),
            *(End(commit=True), UntilHeld(), CutFromZooKeeper(CONTROLLER), Kill(DATA)),
            *(Pass(Time(0.0, 0.1)), Start(DATA), Pass(Time(0.5, 0.9, "session")), Heal()),
            Pass(Time(0.0, 0.5)),
        ),
        TRANSACTIONS,
    ),
    "two epochs of one leader while the end of an epoch is told": Joint(
        (
            HoldNext(OFFSETS_FOR_LEADER_EPOCH, ANSWER, FOLLOWER, LEADER, Time(1.0, 2.5)),
            *(Kill(FOLLOWER), Pass(Time(0.5, 2.0)), Start(FOLLOWER), UntilHeld()),
            *(Prefer(THIRD), Pass(Time(0.1, 0.5)), Prefer(LEADER), UntilDelivered()),
        )
    ),
    "the news of an ISR is cut off": Joint(
        (
            *(Freeze(FOLLOWER), Pass(Time(1.1, 1.5, "lag")), CutAfterWrite(LEADER), Thaw(FOLLOWER)),
            *(UntilWritten(), Pass(Time(0.7, 0.95, "session")), Heal(), Pass(Time(0.0, 0.5))),
        )
    ),
}
"""Joints that are played one after the other when everything is healed: a later change would repair
what the last one breaks."""
LAST_SHARE = 0.5
"""The share of seeds in which each of them is played."""

OF_CONSUMERS = {
    "a coordinator moves while a member gives up partitions": Joint(
        (UntilGivingUp(), *_lead(FOLLOWER), Pass(Time(0.5, 2.0)), *_lead(LEADER)), GROUPS
    ),
    "a coordinator dies while a member gives up partitions": Joint(
        (UntilGivingUp(), Kill(LEADER), Pass(Time(1.0, 4.0)), Start(LEADER)), GROUPS
    ),
    "a heartbeat comes late, after the next one": Joint(
        (
            HoldNext(CONSUMER_GROUP_HEARTBEAT, REQUEST, ANYONE, LEADER, Time(1.1, 2.2)),
            *(UntilHeld(), UntilDelivered(), Pass(Time(0.0, 0.5))),
        ),
        GROUPS,
    ),
    "a heartbeat's answer comes too late, in a rebalance": Joint(
        (
            UntilGivingUp(),
            HoldNext(CONSUMER_GROUP_HEARTBEAT, ANSWER, ANYONE, LEADER, Time(1.1, 2.2)),
            *(UntilHeld(), UntilDelivered(), Pass(Time(0.0, 0.5))),
        ),
        GROUPS,
    ),
    "partitions are added while a member gives up others": Joint(
        (UntilGivingUp(), Grow(POOLED), Pass(Time(0.0, 1.0))), GROUPS
    ),
    "partitions are added while members come to their target, and a coordinator moves": Joint(
        (UntilGivingUp(), Grow(POOLED), Pass(Time(0.0, 0.3)), *_lead(FOLLOWER)), GROUPS
    ),
}
"""Joints of runs with a consumer group; they are drawn from a random stream of their own."""

OF_SHARES = {
    "a leader moves while an acknowledgement is held": Joint(
        (
            *(HoldNext(WRITE_SHARE_STATE, REQUEST, LEADER, ANYONE, Time(0.5, 4.0)), UntilHeld()),
            *(*_lead(FOLLOWER), Pass(Time(0.5, 2.0)), *_lead(LEADER)),
        ),
        HANDED_OUT,
    ),
    "a leader dies while an acknowledgement is held": Joint(
        (
            *(HoldNext(WRITE_SHARE_STATE, ANSWER, LEADER, ANYONE, Time(0.5, 2.0)), UntilHeld()),
            *(Kill(LEADER), Pass(Time(1.0, 4.0)), Start(LEADER)),
        ),
        HANDED_OUT,
    ),
    "a share coordinator moves while an acknowledgement is held": Joint(
        (
            *(HoldNext(WRITE_SHARE_STATE, REQUEST, ANYONE, LEADER, Time(0.5, 4.0)), UntilHeld()),
            *(*_lead(FOLLOWER), Pass(Time(0.5, 2.0)), *_lead(LEADER)),
        ),
        SHARES,
    ),
    "a share coordinator dies while an acknowledgement is held": Joint(
        (
            *(HoldNext(WRITE_SHARE_STATE, ANSWER, ANYONE, LEADER, Time(0.5, 2.0)), UntilHeld()),
            *(Kill(LEADER), Pass(Time(1.0, 4.0)), Start(LEADER)),
        ),
        SHARES,
    ),
    "a lock ends while its acknowledgement is held": Joint(
        (
            HoldNext(WRITE_SHARE_STATE, ANSWER, LEADER, ANYONE, Time(1.7, 3.0)),
            *(UntilHeld(), UntilDelivered(), Pass(Time(0.0, 0.5))),
        ),
        HANDED_OUT,
    ),
    "a session closes while its acknowledgement is held": Joint(
        (
            HoldNext(WRITE_SHARE_STATE, ANSWER, LEADER, ANYONE, Time(1.05, 1.4)),
            *(UntilHeld(), UntilDelivered(), Pass(Time(0.0, 0.5))),
        ),
        HANDED_OUT,
    ),
    "a state is read while the leader moves on": Joint(
        (
            HoldNext(READ_SHARE_STATE, ANSWER, FOLLOWER, ANYONE, Time(0.5, 3.0)),
            *(*_lead(FOLLOWER), UntilHeld(), *_lead(THIRD), Pass(Time(0.5, 2.0))),
        ),
        HANDED_OUT,
    ),
}
"""Joints of runs with a share group, drawn in the same way.  Members give up a request after 1 s,
and their session with it; a lock ends after 1.5 s."""

KINDS = frozenset((*JOINTS, *LAST, *OF_CONSUMERS, *OF_SHARES, IMPROVISED))
"""The kinds of faults that are joints."""


def last_joints(stream: Callable[[str], Random]) -> list[Fault]:
    """The last joints of a run.  Each is drawn from a random stream of its own, so that a new one
    changes no other."""
    drawn = {kind: stream(f"last joint: {kind}").random() for kind in LAST}
    return [Fault(0.0, kind, "any", 0.0) for kind, at in drawn.items() if at < LAST_SHARE]


def _times(random: Random, seconds: float) -> Iterator[float]:
    at = random.uniform(0.5, EVERY_S)
    while at < seconds * 0.9:
        yield round(at, 3)
        at += 1.0 + random.expovariate(1 / EVERY_S)


def joints(random: Random, seconds: float) -> list[Fault]:
    """A joint every few seconds, one after the other."""
    planned = []
    for at in _times(random, seconds):
        if random.random() < IMPROVISED_SHARE:
            planned.append(Fault(at, IMPROVISED, str(random.randrange(10**6)), 0.0))
        else:
            planned.append(Fault(at, random.choice(list(JOINTS)), "any", 0.0))
    return planned


def joints_of_groups(
    random: Random, seconds: float, kinds: Mapping[str, Joint] = OF_CONSUMERS
) -> list[Fault]:
    """Joints of a consumer group, or of a share group, as often."""
    names = list(kinds)
    return [Fault(at, random.choice(names), "any", 0.0) for at in _times(random, seconds)]
