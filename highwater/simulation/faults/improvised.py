"""Joints whose acts are drawn at random, too: each act is one that can follow those before it.

A broker that is down can start, one that stands still can go on, and a message can be awaited once
a hold is armed.  No more than two of the cast are down or stand still at once, and power is lost
only after an orderly stop, where acks=all promises that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from highwater.simulation.faults.joint_acts import (
    ANYONE,
    CONTROLLER,
    FOLLOWER,
    LEADER,
    THIRD,
    TRANSACTIONS,
    Act,
    Cancel,
    CutFromZooKeeper,
    Depose,
    DeposeAtWrite,
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
    UntilDown,
    UntilHeld,
    UntilWritten,
    Write,
)
from highwater.simulation.wire_tap import (
    ANSWER,
    CONTROL,
    FETCH,
    OFFSETS_FOR_LEADER_EPOCH,
    REQUEST,
    WRITE_TXN_MARKERS,
)
from highwater.simulation.workloads.administrators import GOVERNED
from highwater.simulation.workloads.trimmed import TRIMMED
from highwater.world.chance import seeded

if TYPE_CHECKING:
    from highwater.world.chance import Random

IMPROVISED = "improvised"
TOPICS = (TRANSACTIONS, TRIMMED, GOVERNED)
"""Topics that some joints need for their acts; an improvised joint may be about one, too."""
LEAST, MOST = 4, 8
POWER = 3
"""How many acts a power loss needs: stop, wait, lose power."""
_CAST = (LEADER, FOLLOWER, THIRD)


def improvised(number: str, topics: list[str | None]) -> Joint:
    """The joint of that number, about one of these topics."""
    random = seeded("improvised", number)
    topic = random.choice(topics)
    return Joint(tuple(_Draw(random, topic).acts()), topic, skips=True)


class _Draw:
    def __init__(self, random: Random, topic: str | None) -> None:
        self._random = random
        self._topic = topic
        self._armed = self._watched = self._cut = self._moved = self._open = False
        self._down: list[str] = []
        self._frozen: list[str] = []

    def acts(self) -> list[Act]:
        """The acts, LEAST to MOST of them."""
        found: list[Act] = []
        number = self._random.randint(LEAST, MOST)
        while len(found) < number:
            found += self._random.choice(self._possible(MOST - len(found)))()
        return found

    def _possible(self, room: int) -> list[Callable[[], list[Act]]]:
        """What can come next, if there is room for `room` more acts."""
        possible = [self._pass, self._prefer, self._elect, self._elect, self._depose, self._move]
        possible += [self._until_held] * 3 if self._armed else [self._hold] * 3
        possible += [self._until_written] * 3 if self._watched else [self._lose, self._depose_at]
        if self._up() and len(self._down) + len(self._frozen) < 2:
            possible += [self._kill, self._freeze] + [self._power] * (room >= POWER)
        if self._up() and not self._cut:
            possible.append(self._cut_off)
        possible += [self._start] * 2 * bool(self._down) + [self._thaw] * 2 * bool(self._frozen)
        possible += [self._heal] * self._cut + [self._cancel] * 2 * self._moved
        if self._topic == TRANSACTIONS:
            possible += [self._write] * 2 + [self._end] * 2 * self._open
        possible += [self._trim] * 4 * (self._topic == TRIMMED)
        possible += [self._grow] * 2 * (self._topic == GOVERNED)
        return possible

    def _up(self) -> list[str]:
        return [who for who in _CAST if who not in self._down and who not in self._frozen]

    def _one_up(self) -> str:
        return self._random.choice(self._up())

    def _pass(self) -> list[Act]:
        return [Pass(Time(0.0, self._random.choice((0.1, 0.5, 2.0))))]

    def _prefer(self) -> list[Act]:
        return [Prefer(self._random.choice(_CAST))]

    def _elect(self) -> list[Act]:
        return [Elect()]

    def _depose(self) -> list[Act]:
        return [Depose()]

    def _hold(self) -> list[Act]:
        self._armed = True
        what = self._random.choice((REQUEST, ANSWER))
        time = Time(0.2, self._random.choice((1.0, 4.0)))
        if self._topic == TRANSACTIONS and self._random.random() < 0.5:
            return [HoldNext(WRITE_TXN_MARKERS, what, LEADER, ANYONE, time)]
        api = self._random.choice((FETCH, FETCH, OFFSETS_FOR_LEADER_EPOCH, *CONTROL))
        source, target = self._random.sample(_CAST, 2)
        return [HoldNext(api, what, CONTROLLER if api in CONTROL else source, target, time)]

    def _until_held(self) -> list[Act]:
        self._armed = False
        return [UntilHeld()]

    def _lose(self) -> list[Act]:
        self._watched = True
        return [LoseAnswer(self._random.choice(_CAST))]

    def _depose_at(self) -> list[Act]:
        self._watched = True
        return [DeposeAtWrite()]

    def _until_written(self) -> list[Act]:
        self._watched = False
        return [UntilWritten()]

    def _kill(self) -> list[Act]:
        self._down.append(who := self._one_up())
        return [Kill(who)]

    def _power(self) -> list[Act]:
        self._down.append(who := self._one_up())
        return [Stop(who), UntilDown(who), LosePower(who)]

    def _start(self) -> list[Act]:
        return [Start(self._down.pop())]

    def _freeze(self) -> list[Act]:
        self._frozen.append(who := self._one_up())
        return [Freeze(who)]

    def _thaw(self) -> list[Act]:
        return [Thaw(self._frozen.pop())]

    def _cut_off(self) -> list[Act]:
        self._cut = True
        return [CutFromZooKeeper(self._one_up())]

    def _heal(self) -> list[Act]:
        self._cut = False
        return [Heal()]

    def _move(self) -> list[Act]:
        self._moved = True
        return [Move(tuple(self._random.sample(_CAST, self._random.choice((2, 3)))))]

    def _cancel(self) -> list[Act]:
        return [Cancel()]

    def _write(self) -> list[Act]:
        self._open = True
        return [Write()]

    def _end(self) -> list[Act]:
        self._open = False
        return [End(self._random.random() < 0.5)]

    def _trim(self) -> list[Act]:
        return [Trim()]

    def _grow(self) -> list[Act]:
        return [Grow()]
