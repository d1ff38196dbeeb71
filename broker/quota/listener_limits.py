"""A listener's own limits on connections: `listener.name.NAME.max.connections` and
`.max.connection.creation.rate`.

Source: kafka.network.SocketServer.ListenerReconfigurableConfigs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from highwater.broker.quota.connection_limits import ListenerLimits
from highwater.kafka.config import INT_MAX
from highwater.kafka.config.checks import parse_value
from highwater.kafka.config.unserved import of_listener

if TYPE_CHECKING:
    from highwater.kafka.config import Config

LIMIT = re.compile(r"listener\.name\.[^.]+\.max\.connection(?:s|\.creation\.rate)")


def limits_of(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that limit a listener's connections."""
    return {name: value for name, value in properties.items() if LIMIT.fullmatch(name)}


def listener_limits(config: Config, changes: Mapping[str, str]) -> dict[str, ListenerLimits]:
    """The limits of listeners that have some; `changes`, which are checked, win over the file."""
    given = {**limits_of(config.originals), **changes}

    def value(listener: str, name: str) -> int:
        whole = f"listener.name.{listener.lower()}.{name}"
        row = of_listener(whole)
        found = parse_value(row, given[whole]) if row is not None and whole in given else INT_MAX
        assert isinstance(found, int)
        return found

    found = {}
    for endpoint in config.parsed_listeners.bound:
        name = endpoint.listener
        limits = ListenerLimits(
            value(name, "max.connections"), value(name, "max.connection.creation.rate")
        )
        if limits != ListenerLimits():
            found[name] = limits
    return found
