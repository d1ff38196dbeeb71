"""Topics and groups of one test: names of their own, gone after it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from highwater.pytest_plugin.errors import Plainly
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


class Groups:
    """The fixture `group`."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, name: str = "group") -> str:
        """A name, NAME-gN; the group is there when its first member joins."""
        own = f"{name}-g{next(_numbers)}"
        self.made.append(own)
        return own
