"""Fuzzing without a broker's process: znodes in a simulated cluster, logins, calls, and the ports.

usage: python -m tests.long.fuzz_surfaces znodes|logins|calls|metrics|control|tls COUNT [FIRST]
       python -m tests.long.fuzz_surfaces told FOLDER

`told` adds up the sentences that are the last lines of the text files in FOLDER.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import trio

from tests.fuzzing.attacked import PORTS
from tests.fuzzing.listeners import check_route
from tests.fuzzing.sasl import check_login
from tests.fuzzing.znodes import play

ROUNDS = 30
AT_ONCE = 500
"""Connections to one server, which then has to serve a good one."""
PURE: dict[str, Callable[[Random], str]] = {"logins": check_login, "calls": check_route}
SURFACES = ("znodes", *PURE, *PORTS)


def surface(what: str, count: int, first: int = 0) -> str:
    """That many inputs, from seed `first` on; what came of them in a sentence."""
    begun = time.monotonic()
    found: Counter[str] = Counter()
    numbers = range(first, first + count)
    if what == "znodes":
        logging.getLogger().setLevel(logging.WARNING)
        for number in numbers:
            played = play(f"znodes {number}", ROUNDS)
            found["changes"] += len(played.done)
            found["acknowledged records"] += len(played.acknowledged)
    elif what in PURE:
        for number in numbers:
            found[_one(what, number)] += 1
    else:
        for at in range(first, first + count, AT_ONCE):
            trio.run(PORTS[what], numbers[at - first : at - first + AT_ONCE])
        found["connections"] = count
    told = ", ".join(f"{number:,} {name}" for name, number in sorted(found.items()))
    return f"{what} {first:,} to {first + count:,}: {told}, {time.monotonic() - begun:.0f} s"


def added_up(sentences: list[str]) -> str:
    """One sentence of those of all parts.

    >>> added_up(["znodes 0 to 5: 7 changes, 3 s", "znodes 5 to 9: 1,000 changes, 4 s"])
    'znodes: 1,007 changes, 7 s'
    """
    found: dict[str, Counter[str]] = {}
    for sentence in sentences:
        what, _, told = sentence.partition(": ")
        counts = found.setdefault(what.split()[0], Counter())
        for number, name in re.findall(r"(\d[\d,]*) ([^,]+)", told):
            counts[name] += int(number.replace(",", ""))
    return "; ".join(
        f"{what}: " + ", ".join(f"{number:,} {name}" for name, number in counts.items())
        for what, counts in sorted(found.items())
    )


def _one(what: str, number: int) -> str:
    try:
        return PURE[what](Random(f"{what} {number}"))
    except Exception as error:
        raise AssertionError(f"{what} {number}: {error!r}") from error


if __name__ == "__main__" and sys.argv[1] == "told":
    texts = sorted(Path(sys.argv[2]).glob("*.txt"))
    ends = [text.read_text().splitlines()[-1:] for text in texts if text.stem != "told"]
    print(added_up([line for end in ends for line in end]))
elif __name__ == "__main__":
    print(surface(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0))
