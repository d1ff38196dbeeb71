"""Targets by role, resolved at the moment a fault fires.

broker-2, broker 2, 2        that broker
zookeeper, clients           those members
controller-101               that controller, in KRaft mode with controllers apart
app, app-2                   that copy of the application under test
coordinator of group G       the leader of the group's partition of __consumer_offsets
controller                   the member that is the controller now
leader of safe-0             the leader of that partition now
follower of safe-0           a member of its ISR that does not lead it (chosen by the seed)
last ISR member of safe-0    the last of them
followers of safe-0          all of them
any broker                   one that runs (chosen by the seed)
broker other than $L, controller   one that runs and is none of these (chosen by the seed)
not the controller           one that runs and is not the controller
other brokers                in `to`: every broker that is not in `from`
$L                           the target that an earlier fault named by `as`
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from typing import Protocol

from highwater.cluster.faults.witness import PartitionState
from highwater.cluster.interface import ZOOKEEPER, ClusterError, broker
from highwater.cluster.links.link_rules import CLIENTS
from highwater.kafka.types import TopicPartition

OF = re.compile(r"^(leader|follower|followers|last isr member) of (?:tp )?(.+)-(\d+)$", re.I)
OTHER_THAN = "broker other than "
ROLES = ("controller", "not the controller", "any broker")
APP = re.compile(r"^app(-\d+)?$")
APART = re.compile(r"^controller-\d+$")
COORDINATOR = re.compile(r"^coordinator of group (.+)$", re.I)
OFFSETS_TOPIC = "__consumer_offsets"
NUMBER = re.compile(r"^(?:broker[ -]?)?(\d+)$")


class View(Protocol):
    """The facts that a resolver needs."""

    @property
    def partitions(self) -> Mapping[TopicPartition, PartitionState]: ...

    @property
    def controller(self) -> int | None: ...


def resolve(
    text: str,
    view: View,
    running: list[int],
    rng: random.Random,
    names: Mapping[str, list[str]],
    others_than: list[str] | None = None,
    named: Callable[[int], str] = broker,
) -> list[str]:
    """The members that a target names now; raises ClusterError where there are none.  `named`:
    gives the member's name for a node id."""
    text = text.strip()
    lower = text.lower()
    if text.startswith("$"):
        if text[1:] not in names:
            raise ClusterError(f"no earlier fault is called {text[1:]}")
        return list(names[text[1:]])
    if lower in (ZOOKEEPER, CLIENTS) or APP.match(lower) or APART.match(lower):
        return [lower]
    if number := NUMBER.match(lower):
        return [broker(int(number.group(1)))]
    if match := OF.match(text):
        tp = TopicPartition(match.group(2), int(match.group(3)))
        return [broker(n) for n in _of(match.group(1).lower(), tp, view, rng)]
    if match := COORDINATOR.match(text):
        count = sum(tp.topic == OFFSETS_TOPIC for tp in view.partitions)
        number_of_it = _java_hash(match.group(1)) % count if count else 0
        return [
            broker(n) for n in _of("leader", TopicPartition(OFFSETS_TOPIC, number_of_it), view, rng)
        ]
    if lower == "controller":
        if view.controller is None:
            raise ClusterError("there is no controller now")
        return [named(view.controller)]
    if lower == "other brokers" and others_than is not None:
        return [broker(n) for n in running if broker(n) not in others_than]
    if lower.startswith(OTHER_THAN):
        barred = [
            member
            for part in text[len(OTHER_THAN) :].split(",")
            for member in resolve(part, view, running, rng, names, named=named)
        ]
        others = [broker(n) for n in running if broker(n) not in barred]
        if not others:
            raise ClusterError(f"no broker runs that is a {text!r}")
        return [rng.choice(others)]
    if lower in ("any broker", "not the controller"):
        chosen = [n for n in running if lower == "any broker" or n != view.controller]
        if not chosen:
            raise ClusterError(f"no broker runs that is {text!r}")
        return [broker(rng.choice(chosen))]
    raise ClusterError(f"target {text!r} is not understood")


def _java_hash(text: str) -> int:
    """Utils.abs of String.hashCode; modulo the number of partitions it is a group's partition."""
    number = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        number = (31 * number + int.from_bytes(units[at : at + 2])) & 0xFFFFFFFF
    return 0 if number == 1 << 31 else min(number, (1 << 32) - number)


def _of(role: str, tp: TopicPartition, view: View, rng: random.Random) -> list[int]:
    state = view.partitions.get(tp)
    if state is None:
        raise ClusterError(f"there is no partition {tp}")
    if role == "leader":
        if state.leader < 0:
            raise ClusterError(f"{tp} has no leader now")
        return [state.leader]
    followers = [n for n in state.isr if n != state.leader]
    if not followers:
        raise ClusterError(f"{tp} has no follower in its ISR now")
    if role == "followers":
        return followers
    return [followers[-1] if role == "last isr member" else rng.choice(sorted(followers))]
