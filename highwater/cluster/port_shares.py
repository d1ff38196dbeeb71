"""Ranges of ports for runs side by side, as the setting HIGHWATER_PORTS; the standard library
alone, because a test run that starts no cluster imports it."""

from __future__ import annotations

LOW, HIGH = 20000, 32000
SETTING = "HIGHWATER_PORTS"


def share_of_ports(part: int, parts: int) -> str:
    """A value of HIGHWATER_PORTS for the `part`th (from 0) of so many that run side by side."""
    each = (HIGH - LOW) // parts
    return f"{LOW + part * each}-{LOW + (part + 1) * each}"
