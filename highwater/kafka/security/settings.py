"""The security properties that hold for one listener.

`listener.name.NAME.P` goes before `P`, and `P` before its default; NAME is in lower case.  Values
are secrets: an object of this class shows none.

Source: kafka.common.config.AbstractConfig.valuesWithPrefixOverride.
"""

from __future__ import annotations

from collections.abc import Mapping

from highwater.kafka.config.checks import ConfigError, complaint
from highwater.kafka.config.property_row import text_of
from highwater.kafka.config.property_table import BROKER


class ListenerSettings:
    """`given` are all properties of the broker, as text."""

    def __init__(self, given: Mapping[str, str], listener: str, protocol: str) -> None:
        self.listener = listener
        self.protocol = protocol
        self.own = f"listener.name.{listener.lower()}."
        self._given = given

    def changed(self, changes: Mapping[str, str]) -> ListenerSettings:
        """These settings with some properties, given by their whole names, replaced."""
        return ListenerSettings({**self._given, **changes}, self.listener, self.protocol)

    def name(self, prop: str) -> str:
        """The name under which the property is given: the listener's own, or the general one."""
        return self.own + prop if self.own + prop in self._given else prop

    def get(self, prop: str) -> str:
        """The value; "" where there is none."""
        value = self._given.get(self.name(prop))
        return (text_of(BROKER[prop].default) if value is None else value).strip()

    def of_mechanism(self, mechanism: str, prop: str) -> tuple[str, str]:
        """The mechanism's own value, else the listener's, else the general one; and its name."""
        mine = f"{self.own}{mechanism.lower()}.{prop}"
        if mine in self._given:
            return mine, self._given[mine].strip()
        return self.name(prop), self.get(prop)

    def secret(self, prop: str) -> bytes | None:
        """A password's bytes; None where it is not given."""
        return self.get(prop).encode() or None

    def items(self, prop: str) -> list[str]:
        return [item.strip() for item in self.get(prop).split(",") if item.strip()]

    def wrong(self, prop: str, problem: str, remedy: str) -> ConfigError:
        """An error that names the property as it was given; a secret is not shown."""
        return self.wrong_at(self.name(prop), problem, remedy, self.get(prop))

    def wrong_at(self, name: str, problem: str, remedy: str, value: str = "") -> ConfigError:
        return ConfigError([complaint(name, value, problem, remedy)])
