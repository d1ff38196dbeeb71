"""Decides to which machines a line of the history goes.  Pure."""

from __future__ import annotations

from typing import Any, Final

TRANSACTIONS: Final = "transactions"
"""The group of all transactions; a topic's group is TOPIC + its name."""
TOPIC: Final = "topic "


def groups_of(line: dict[str, Any]) -> list[str]:
    """The groups that need this line: machines of `machines`."""
    f, topic = line.get("f"), line.get("topic")
    found = []
    if topic is not None and (f in ("send", "assign") or (f == "poll" and "offset" in line)):
        found.append(TOPIC + topic)
    committed = f == "poll" and line.get("isolation") == "read_committed" and "offset" in line
    if committed or f in ("init_txn", "end_txn", "assign") or (f == "send" and line.get("txn")):
        found.append(TRANSACTIONS)
    return found
