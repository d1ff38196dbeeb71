"""What a client of the cluster's ZooKeeper waits for: one write after another, and many at once.

For `highwater bench control`: a leader writes a partition's ISR by setData, and a broker's death
makes a leader of many partitions write many of them at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient

AT_ONCE = 200
_BURSTS = 20
_EVERY_S = 0.005
_DATA = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2,3]}'


@contextmanager
def connected(connect: str) -> Iterator[Any]:
    """A client of ZooKeeper."""
    client = KazooClient(connect)
    client.start(10)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def _client(connect: str) -> Iterator[Any]:
    """A client, and the znodes to which it writes."""
    with connected(connect) as client:
        try:
            for number in range(AT_ONCE):
                client.ensure_path(f"/bench/{number}")
            yield client
        finally:
            client.delete("/bench", recursive=True)


def burst_ms(connect: str) -> list[float]:
    """Each time, milliseconds until the last of so many writes is answered."""
    found = []
    with _client(connect) as client:
        for _ in range(_BURSTS):
            began = time.perf_counter()
            asked = [client.set_async(f"/bench/{n}", _DATA) for n in range(AT_ONCE)]
            for one in asked:
                one.get(30)
            found.append((time.perf_counter() - began) * 1000)
    return found


def single_ms(connect: str, over: Callable[[], bool]) -> list[float]:
    """Milliseconds that each write waited, one after another, until it is over."""
    found = []
    with _client(connect) as client:
        while not over():
            began = time.perf_counter()
            client.set("/bench/0", _DATA)
            found.append((time.perf_counter() - began) * 1000)
            time.sleep(_EVERY_S)
    return found
