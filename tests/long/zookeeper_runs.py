"""The embedded ZooKeeper: damaged files, fuzzed frames, kills, and answers compared with Java's.

usage: python -m tests.long.zookeeper_runs damage|frames|sockets|kills|answers COUNT [FIRST]
       python -m tests.long.zookeeper_runs told FOLDER

`told` adds up the sentences that are the last lines of the text files in FOLDER.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import trio

from tests.fuzzing.zookeeper_files import check_damaged, template
from tests.fuzzing.zookeeper_frames import FRAMES, attack, check_frames
from tests.integration.zookeeper.test_killed import killed
from tests.integration.zookeeper.test_same_answers import compared
from tests.long.fuzz_surfaces import added_up

PER_TEMPLATE = 50
LONGEST_S = 20.0
"""Of one start; it takes a millisecond or two."""
MOST_MIB = 400
LONGEST_LIFE_S = 0.1
REQUESTS_AN_EXPIRY = 1000


def damage(count: int, first: int = 0) -> Counter[str]:
    """So many starts."""
    found: Counter[str] = Counter()
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # it is not the disk that is tried
    with tempfile.TemporaryDirectory(dir=memory) as place:
        for number in range(first, first + count):
            if number % PER_TEMPLATE == 0 or number == first:
                group = number // PER_TEMPLATE
                made = template(Random(f"files {group}"), Path(place) / "whole")
            begun = time.monotonic()
            with _named("damage", number):
                found[check_damaged(Random(number), made, Path(place) / "damaged")] += 1
                assert time.monotonic() - begun < LONGEST_S
    return found


def frames(count: int, first: int = 0) -> Counter[str]:
    """About so many, against many servers."""
    found: Counter[str] = Counter()
    for number in range(first, first + -(-count // FRAMES)):
        with _named("frames", number):
            found.update(check_frames(Random(f"frames {number}")))
    return found


def sockets(count: int, first: int = 0) -> Counter[str]:
    """So many connections."""
    trio.run(attack, range(first, first + count))
    return Counter({"connections": count})


def kills(count: int, first: int = 0) -> Counter[str]:
    """So many lives of one server."""
    with tempfile.TemporaryDirectory() as place:
        changes = killed(Path(place), count, first, LONGEST_LIFE_S)
    return Counter({"kills": count, "answered changes": changes})


def answers(count: int, first: int = 0) -> Counter[str]:
    """So many requests to both servers, some of whose sessions are lost, leave or expire."""
    with tempfile.TemporaryDirectory() as place:
        codes, told = compared(Path(place), first, count, count // REQUESTS_AN_EXPIRY)
    found = Counter({"requests": count, "events": told, "of them done": codes[0]})
    ways = ("close", "leave", "reconnect", "expire")
    return found + Counter({f"times {way}": codes[way] for way in ways})


@contextmanager
def _named(what: str, number: int) -> Iterator[None]:
    """What fails says by which number it is made again."""
    try:
        yield
    except Exception as error:
        error.add_note(f"{what} {number}")
        raise


RUNS: dict[str, Callable[[int, int], Counter[str]]] = {
    "damage": damage, "frames": frames, "sockets": sockets, "kills": kills, "answers": answers,
}  # fmt: skip


def run(what: str, count: int, first: int = 0) -> str:
    begun = time.monotonic()
    found = RUNS[what](count, first)
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    assert mib < MOST_MIB, f"{mib} MiB"
    told = ", ".join(f"{number:,} {name}" for name, number in sorted(found.items()))
    return f"{what} {first:,}: {told}, {time.monotonic() - begun:.0f} s"


if __name__ == "__main__" and sys.argv[1] == "told":
    texts = sorted(path for path in Path(sys.argv[2]).glob("*.txt") if path.stem != "told")
    print(added_up([line for text in texts for line in text.read_text().splitlines()[-1:]]))
elif __name__ == "__main__":
    print(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0))
