"""The fixture `chaos`: the verbs of docs/faults.md.

Each call returns when the fault's effect was seen.  As a context manager the fault ends with its
block; otherwise with `end`, or with the test.  A target is a broker's number, a member's name
("broker-2", "zookeeper") or a role, as "leader of orders-t1-0" or "controller".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from highwater.agent.client import ControlError
from highwater.pytest_plugin.errors import Ending, Plainly

if TYPE_CHECKING:
    from highwater.agent.client import Control

__tracebackhide__ = True  # an error in a test points at the test
Target = int | str
Side = Literal["request", "response"]
OTHERS = "other brokers"


class Fault(Ending):
    """One fault; `with` ends it."""

    def __init__(self, control: Control, told: dict[str, Any]) -> None:
        self._control = control
        self.id: int = told["id"]
        self.name: str = told["name"]
        self.target: str = told["target"]
        """The members that the target named when the fault fired."""
        self.effect: str | None = told["effect"]
        """Its effect as it was seen; None for a fault whose effect shows only when it ends."""
        self.ended = "ended" in told
        """Whether it is over; verbs as `restart` are over at once."""

    def end(self) -> None:
        """Starts, resumes, heals or releases; does nothing where it is over already.

        Raises FixtureError where the fault was never seen to act: no message met a `hold`.
        """
        if self.ended:
            return
        self.ended = True
        with Plainly():
            try:
                self.effect = self._control.end_fault(self.id)["effect"]
            except ControlError as error:
                if error.kind != "refused":  # another call ended it
                    raise

    def __repr__(self) -> str:
        return f"<{self.name} of {self.target}: {self.effect}>"


class Chaos:
    """See the module's docstring."""

    def __init__(self, control: Control, any_broker: Callable[[], int]) -> None:
        self._control = control
        self._any_broker = any_broker
        self.last: Fault | None = None
        """The latest fault of the test."""

    def _fire(self, name: str, target: Target | None = None, **fields: Any) -> Fault:
        """`from_` is the field `from`."""
        member = "" if target is None else self._member(target)
        for end in ("from_", "to"):
            if fields.get(end) is not None:
                fields[end] = self._member(fields[end])
        with Plainly():
            self.last = Fault(self._control, self._control.fault(name, member, **fields))
        return self.last

    def _member(self, target: Target) -> str:
        if target == "any broker":  # chosen here, where the test's seed is
            target = self._any_broker()
        return f"broker-{target}" if isinstance(target, int) else target

    # --- processes

    def kill(self, target: Target) -> Fault:
        """SIGKILL; the end starts it again on its port and data."""
        return self._fire("kill", target)

    def stop(self, target: Target) -> Fault:
        """SIGTERM, a controlled shutdown; the end starts it."""
        return self._fire("stop", target)

    def start(self, target: Target) -> Fault:
        return self._fire("start", target)

    def restart(self, target: Target, how: Literal["kill", "stop"] = "stop") -> Fault:
        return self._fire("restart", target, how=how)

    def pause(self, target: Target) -> Fault:
        """SIGSTOP: connections stay, nothing answers; the end resumes it."""
        return self._fire("pause", target)

    def resume(self, target: Target) -> Fault:
        return self._fire("resume", target)

    def stand_still(self) -> Fault:
        """Pauses every member at once, as a virtual machine that its host stops."""
        return self._fire("stand_still")

    def kill_all(self) -> Fault:
        """Kills every broker at the same moment; the end starts them."""
        return self._fire("kill_all")

    def start_all(self) -> Fault:
        return self._fire("start_all")

    # --- machines

    def disk_full(self, target: Target) -> Fault:
        """A broker can write no more, and halts; the end starts it, with room on its disk."""
        return self._fire("disk_full", target)

    def slow_disk(self, target: Target, *, latency_ms: float) -> Fault:
        """Each of a broker's writes and flushes takes so much longer."""
        return self._fire("slow_disk", target, latency=latency_ms)

    def clock_jump(self, target: Target, *, by_s: float) -> Fault:
        """A broker's wall clock is so many seconds off, below 0 back, until the end."""
        return self._fire("clock_jump", target, by=by_s)

    # --- links

    def cut(self, target: Target, other: Target = OTHERS, *, one_way: bool = False) -> Fault:
        """No bytes between two members, "clients" and "zookeeper" included; with `one_way` only
        from the first to the second."""
        return self._fire("cut", from_=target, to=other, one_way=one_way)

    def latency(
        self,
        target: Target,
        other: Target = OTHERS,
        *,
        latency_ms: float,
        jitter_ms: float = 0,
        one_way: bool = False,
    ) -> Fault:
        """Delays the traffic between two members by so much, give or take the jitter."""
        return self._fire(
            "latency",
            from_=target,
            to=other,
            one_way=one_way,
            latency=latency_ms,
            jitter=jitter_ms,
        )

    def bandwidth(
        self,
        target: Target,
        other: Target = OTHERS,
        *,
        kib_per_s: float,
        one_way: bool = False,
    ) -> Fault:
        """At most so much goes each way between two members, on each connection."""
        return self._fire("bandwidth", from_=target, to=other, one_way=one_way, rate=kib_per_s)

    def reset_peer(self, target: Target, other: Target = OTHERS) -> Fault:
        """Resets the connections between two members, as a firewall that forgot them does."""
        return self._fire("reset_peer", from_=target, to=other)

    def isolate(self, target: Target) -> Fault:
        """Cuts a broker off from all others and from ZooKeeper; clients still reach it."""
        return self._fire("isolate", target)

    def heal(self) -> Fault:
        """Opens every link."""
        return self._fire("heal")

    def hold(
        self,
        api: str,
        side: Side = "request",
        *,
        source: Target | None = None,
        to: Target | None = None,
        count: int | None = None,
        path: str | None = None,
    ) -> Fault:
        """Holds messages of one API back, as hold("Fetch", "response", source=1, to=2); the end
        releases them.  `count`: so many (all where 0); `path`: a pattern of znodes, with
        to="zookeeper" and one of its operations, as "setData"."""
        return self._fire("hold", api=api, side=side, from_=source, to=to, count=count, path=path)

    def drop(
        self,
        api: str,
        side: Side = "request",
        *,
        source: Target | None = None,
        to: Target | None = None,
        count: int | None = None,
        path: str | None = None,
    ) -> Fault:
        """As `hold`, but the messages never arrive."""
        return self._fire("drop", api=api, side=side, from_=source, to=to, count=count, path=path)

    def answer(
        self,
        api: str,
        error: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        client: str | None = None,
        side: Side = "request",
        source: Target | None = None,
        to: Target | None = None,
        count: int | None = None,
        every: int | None = None,
        probability: float | None = None,
        throttle_ms: int | None = None,
    ) -> Fault:
        """Answers clients with an error, as answer("Produce", "NOT_LEADER_OR_FOLLOWER"), and the
        broker is not asked; with side="response" the broker has done it all the same.  `client`: a
        pattern of the client id; `count`: so many messages (all where 0)."""
        return self._fire(
            "answer",
            api=api,
            error=error,
            topic=topic,
            partition=partition,
            client=client,
            side=side,
            from_=source,
            to=to,
            count=count,
            every=every,
            probability=probability,
            throttle_ms=throttle_ms,
        )

    def release(self) -> Fault:
        """Lets all messages go that are held."""
        return self._fire("release")

    # --- leaders and controllers

    def swap_leader(self, topic: str, partition: int = 0, leader: int | None = None) -> Fault:
        """Makes another replica lead, by a reassignment and a preferred election."""
        return self._fire("swap_leader", f"{topic}-{partition}", leader=leader)

    def preferred_election(self, topic: str, partition: int = 0) -> Fault:
        """Makes the first replica lead."""
        return self._fire("preferred_election", f"{topic}-{partition}")

    def move_controller(self, how: Literal["delete", "kill"] = "delete") -> Fault:
        """Another controller: its znode is deleted, or its broker killed (the end starts it)."""
        return self._fire("move_controller", how=how)

    def expire_session(self, target: Target) -> Fault:
        """Ends a broker's ZooKeeper session while the broker lives."""
        return self._fire("expire_session", target)

    # --- logs

    def roll(self, topic: str) -> Fault:
        """A new segment for each replica of a topic or partition."""
        return self._fire("roll", topic)

    def retain(self, topic: str) -> Fault:
        """Deletes now what is due by the topic's retention."""
        return self._fire("retain", topic)

    def compact(self, topic: str) -> Fault:
        """Compacts a topic or partition now, however little of it is dirty."""
        return self._fire("compact", topic)
