"""Names that are no broker property: a typing mistake would otherwise go unnoticed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from highwater.kafka.config.property_table import BROKER
from highwater.kafka.config.unserved import inert, of_listener, unserved

_ALIKE = 0.85
"""How alike the known name must be, from 0 to 1, to be proposed."""


def unknown_properties(names: Iterable[str]) -> list[str]:
    """One line for each name that is no property, with the nearest one that is."""
    lines = []
    for name in names:
        if name not in BROKER and not (of_listener(name) or unserved(name) or inert(name)):
            near = difflib.get_close_matches(name, BROKER, 1, _ALIKE)
            hint = f"; did you mean {near[0]}?" if near else ""
            lines.append(f"{name}: unknown property, ignored{hint}")
    return lines
