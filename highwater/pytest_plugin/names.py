"""Topics and groups of one test: names of their own, gone after it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from highwater.pytest_plugin.choices import GROUP_PROTOCOLS
from highwater.pytest_plugin.errors import FixtureError, Plainly
from highwater.pytest_plugin.fixture_settings import as_text

if TYPE_CHECKING:
    from highwater.agent.client import Control

_numbers = itertools.count(1)


class Topic(str):
    """A topic's name; with its number of partitions."""

    partitions: int

    def __new__(cls, name: str, partitions: int) -> Topic:
        made = super().__new__(cls, name)
        made.partitions = partitions
        return made


class Topics:
    """The fixture `topic`."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self.made: list[str] = []

    def __call__(
        self,
        name: str = "topic",
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> Topic:
        """Makes the topic NAME-tN; returns when every broker knows it and its leaders.

        `replication_factor`: 3 where None, or as many as there are brokers; `config`: properties
        of the topic, as {"cleanup.policy": "compact"}.  Raises FixtureError.
        """
        __tracebackhide__ = True
        own = f"{name}-t{next(_numbers)}"
        with Plainly():
            self._control.create_topic(own, partitions, replication_factor, as_text(config or {}))
        self.made.append(own)
        return Topic(own, partitions)


class Group(str):
    """A group's name; with the protocol that its members are to speak."""

    protocol: str
    """`classic`, `consumer` (KIP-848), or `share`: a share group (KIP-932)."""

    def __new__(cls, name: str, protocol: str) -> Group:
        made = super().__new__(cls, name)
        made.protocol = protocol
        return made

    @property
    def settings(self) -> dict[str, str | int]:
        """A member's settings, as confluent-kafka and the Java client name them: the group's name,
        its protocol, and how soon a member that died is noticed.  Of members of the other
        protocols the brokers say that (the profile `test`: after the same time).
        """
        further: dict[str, dict[str, str | int]] = {
            "classic": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500},
            "consumer": {"group.protocol": "consumer"},
        }
        return {"group.id": str(self), **further.get(self.protocol, {})}


class Groups:
    """The fixture `group`; `protocol`: of groups for which the test names none."""

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol
        self.made: list[str] = []

    def __call__(self, name: str = "group", *, protocol: str | None = None) -> Group:
        """A name, NAME-gN; the group is there when its first member joins.

        `protocol`: `classic`, `consumer` or `share`; None: that of the marker, else of the command
        line.
        """
        __tracebackhide__ = True
        protocol = self._protocol if protocol is None else protocol
        if protocol not in GROUP_PROTOCOLS:
            known = ", ".join(GROUP_PROTOCOLS)
            raise FixtureError(f"no group protocol {protocol!r}; there are {known}")
        own = Group(f"{name}-g{next(_numbers)}", protocol)
        self.made.append(own)
        return own
