"""Ranges of ports for runs side by side, as the setting HIGHWATER_PORTS; the standard library
alone, because a test run that starts no cluster imports it."""

from __future__ import annotations

LOW, HIGH = 20000, 32000
SETTING = "HIGHWATER_PORTS"


def share_of_ports(part: int, parts: int) -> str:
    """The value of HIGHWATER_PORTS for run `part` (from 0) of `parts` runs side by side."""
    each = (HIGH - LOW) // parts
    return f"{LOW + part * each}-{LOW + (part + 1) * each}"
