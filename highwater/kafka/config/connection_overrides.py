"""max.connections.per.ip.overrides: the connections that single addresses may have."""

from __future__ import annotations


def parse_overrides(text: str) -> dict[str, int]:
    """Parses "127.0.0.1:200,host2:100".  Raises ValueError, which names the item."""
    found: dict[str, int] = {}
    for item in text.split(","):
        address, _, count = item.strip().rpartition(":")
        if address and count.isascii() and count.isdigit():
            found[address.strip("[]")] = int(count)
        elif item.strip():
            raise ValueError(f"{item.strip()!r} is not ADDRESS:COUNT")
    return found
