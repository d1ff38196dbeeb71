"""The conditions that a caller can wait for, in words."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from highwater.agent import topic_calls
from highwater.agent.errors import ControlError
from highwater.agent.fault_desk import FaultDesk
from highwater.agent.group_calls import NotNow, described, open_transactions, progress
from highwater.cluster.faults.stage import Stage
from highwater.cluster.interface import ClusterError, broker
from highwater.kafka.types import TopicPartition

Condition = Callable[[], Awaitable[bool]]
POLL_S = 0.02
LONGEST_S = 3600.0
FORMS = (
    "healthy",
    "isr of TOPIC is full",
    "isr of TOPIC-N is full",
    "isr of TOPIC-N is COUNT",
    "leader of TOPIC-N is TARGET",
    "leader of TOPIC-N is not TARGET",
    "leader of TOPIC-N changed since FAULT",
    "group GROUP is stable",
    "group GROUP is stable with COUNT members",
    "lag of GROUP is below COUNT",
    "no transaction is open",
)
_ISR = re.compile(r"isr of (\S+) is (full|\d+)")
_CHANGED = re.compile(r"leader of (\S+) changed since (\d+)")
_STABLE = re.compile(r"group (\S+) is stable(?: with (\d+) members?)?")
_LAG = re.compile(r"lag of (\S+) is below (\d+)")
_LEADER = re.compile(r"leader of (\S+) is (not )?(.+)")


class Wait:
    """One wait for a condition."""

    def __init__(self, stage: Stage, desk: FaultDesk) -> None:
        self._stage = stage
        self._desk = desk
        self._seen: list[str] = []
        """What the condition saw last, in words; empty if it is about partitions."""

    async def until(self, text: str, within_s: float) -> float:
        """Waits until `text` is true; gives the seconds that it took.  ControlError where `text` is
        no condition, or does not come true in time."""
        await self._stage.zookeeper.catch_up()
        began = trio.current_time()
        condition, about = self._condition(text.strip())
        with trio.move_on_after(within_s):
            while not await self._holds(condition):
                await trio.sleep(POLL_S)
            return trio.current_time() - began
        state = {
            "partitions": [self._line(tp) for tp in about],
            "problems": self._stage.problems(),
            "seen": self._seen,
        }
        told = [*state["partitions"], *self._seen, *state["problems"]]
        seen = "; ".join(told[:6]) or "nothing is amiss"
        raise ControlError("timeout", f"after {within_s:g} s not yet: {text}; {seen}", state)

    async def _holds(self, condition: Condition) -> bool:
        try:
            return await condition()
        except NotNow as error:
            self._seen = [str(error)]
            return False

    def _condition(self, text: str) -> tuple[Condition, list[TopicPartition]]:
        """The condition, and the partitions that it is about."""
        if text == "healthy":
            return self._healthy, []
        if text == "no transaction is open":
            return self._no_transaction, []
        if match := _STABLE.fullmatch(text):
            return self._stable(match.group(1), match.group(2)), []
        if match := _LAG.fullmatch(text):
            return self._lag(match.group(1), int(match.group(2))), []
        if match := _ISR.fullmatch(text):
            return self._isr(match.group(1), match.group(2))
        if match := _CHANGED.fullmatch(text):
            return self._changed(match.group(1), int(match.group(2)))
        if match := _LEADER.fullmatch(text):
            return self._leader(match.group(1), bool(match.group(2)), match.group(3))
        raise ControlError(
            "bad_request", f"until {text!r} is not understood; write one of: {'; '.join(FORMS)}"
        )

    async def _healthy(self) -> bool:
        cluster = self._stage.cluster
        self._seen = [f"{m} is paused" for m in cluster.members() if cluster.paused(m)]
        return not self._seen and not self._stage.problems()

    async def _no_transaction(self) -> bool:
        found = await open_transactions(self._stage)
        self._seen = [f"{t['transactional_id']} is {t['state']}" for t in found]
        return not found

    def _stable(self, name: str, members: str | None) -> Condition:
        async def holds() -> bool:
            found = await described(self._stage.cluster, name)
            self._seen = [f"{name} is {found}"]
            return found.state == "Stable" and members in (None, str(len(found.members)))

        return holds

    def _lag(self, name: str, bound: int) -> Condition:
        async def holds() -> bool:
            found = await described(self._stage.cluster, name)
            _, lag = await progress(self._stage, name, found)
            late = sorted((-behind, tp) for tp, behind in lag.items() if behind)
            self._seen = [f"{name} is {found}"]
            self._seen += [
                f"{name} is {-behind} behind in {tp}, which {found.reader(tp)} reads"
                for behind, tp in late
            ]
            self._seen += [] if lag else [f"{name} has committed nothing"]
            return bool(lag) and sum(lag.values()) < bound

        return holds

    def _isr(self, name: str, size: str) -> tuple[Condition, list[TopicPartition]]:
        partitions = self._partitions(name) if size == "full" else [self._partition(name)]
        witness = self._stage.zookeeper

        async def holds() -> bool:
            for tp in partitions:
                state = witness.partitions.get(tp)
                wanted = len(witness.replicas.get(tp, ())) if size == "full" else int(size)
                if state is None or len(state.isr) != wanted:
                    return False
            return True

        return holds, partitions

    def _changed(self, name: str, number: int) -> tuple[Condition, list[TopicPartition]]:
        tp = self._partition(name)
        fired = self._desk.get(number)
        if tp not in fired.before:
            raise ControlError("refused", f"there was no {tp} when fault {number} began")
        before = fired.before[tp].leader

        async def holds() -> bool:
            return self._leader_of(tp) not in (-1, before)

        return holds, [tp]

    def _leader(
        self, name: str, negated: bool, target: str
    ) -> tuple[Condition, list[TopicPartition]]:
        tp = self._partition(name)
        try:
            members = self._stage.targets(target)
        except ClusterError as error:
            raise ControlError("bad_request", f"leader of {tp}: {error}") from None

        async def holds() -> bool:
            leader = self._leader_of(tp)
            return leader >= 0 and (broker(leader) in members) is not negated

        return holds, [tp]

    def _leader_of(self, tp: TopicPartition) -> int:
        state = self._stage.zookeeper.partitions.get(tp)
        return -1 if state is None else state.leader

    def _partition(self, name: str) -> TopicPartition:
        topic, _, number = name.rpartition("-")
        tp = TopicPartition(topic, int(number)) if number.isdigit() else None
        if tp is None or tp not in self._stage.zookeeper.replicas:
            known = ", ".join(
                str(tp)
                for tp in sorted(self._stage.zookeeper.replicas)
                if tp.topic not in topic_calls.INTERNAL
            )
            raise ControlError("not_found", f"no partition {name!r}; there are: {known or 'none'}")
        return tp

    def _partitions(self, name: str) -> list[TopicPartition]:
        found = [tp for tp in sorted(self._stage.zookeeper.replicas) if tp.topic == name]
        return found or [self._partition(name)]

    def _line(self, tp: TopicPartition) -> str:
        state = self._stage.zookeeper.partitions.get(tp)
        if state is None:
            return f"{tp} has no state"
        return f"{tp} has the leader {state.leader} and the ISR {list(state.isr)}"


def within(body: dict[str, Any]) -> float:
    return min(float(body.get("within", 30)), LONGEST_S)
