"""The health check of a broker's container: exit code 0 where it serves clients.

usage: python -I -m highwater.cli.healthcheck HOST:PORT [BROKER_ID]

Made for a container's health check: it answers by the exit code, gives the reason on one line, and
imports next to nothing. "Serves" means: it answers Metadata, names itself among the live brokers,
and knows the controller.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from highwater.cluster.serving import view


def check(host: str, port: int, broker_id: int | None, timeout_s: float = 2.0) -> str | None:
    """None where the broker serves, else the problem."""
    try:
        seen = view(host, port, timeout_s)
    except OSError as error:
        return f"{host}:{port} does not answer: {error}"
    if broker_id is not None and broker_id not in seen.brokers:
        return f"broker {broker_id} is not among the live brokers {sorted(seen.brokers)}"
    if seen.controller < 0:
        return "no controller is known yet"
    return None


def main(arguments: Sequence[str]) -> int:
    try:
        address, *rest = arguments
        host, _, port = address.rpartition(":")
        wrong = check(host or "127.0.0.1", int(port), int(rest[0]) if rest else None)
    except ValueError:
        print("usage: healthcheck HOST:PORT [BROKER_ID]", file=sys.stderr)
        return 2
    print(wrong or "serving")
    return 0 if wrong is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
