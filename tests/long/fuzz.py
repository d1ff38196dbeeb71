"""Fuzzed requests against a broker, beside a client that behaves; and damaged files (`files`).

*guarded*: the fuzzing client may do all but administer the cluster, and may not touch the topic of
the well-behaved one, whose acknowledged records must all be there in the end.  *open*: it may do
anything, also act as the controller, and the broker must live on.

The broker answers or closes, never dies, writes no traceback and at most a line for a connection,
and its memory stays within a bound.  `scripts/long fuzz` runs it in parts, each with seeds of its
own, and goes on with the first that has not ended.

usage: python -m tests.long.fuzz requests|open|files COUNT [FOLDER [FIRST]]
"""

from __future__ import annotations

import logging
import shutil
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

import psutil
import trio

from highwater.broker.handlers import TABLE
from highwater.kafka.security.jaas import PLAIN
from highwater.kafka.wire.messages import (
    CreateAclsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.fuzzing.files import check_damaged, template
from tests.fuzzing.requests import request
from tests.integration.robustness.rig import (
    Address,
    BrokerProcess,
    ZooKeeper,
    call,
    frame_of,
    fresh_port,
    leader_of,
)
from tests.long.beside import Beside
from tests.waiting import eventually

TOPIC = "served"
AT_ONCE = 8
PER_CONNECTION = 20
PATIENCE_S = 0.3
"""Some requests wait for something that does not come: the client leaves then."""
PART = 50
HELD_UP_S = 60
MORE_MIB = 150
APIS = [
    (key, version)
    for key, entry in TABLE.items()
    if entry.api.name != "MaintainLogs"  # kafka-python has no codec for it
    for version in range(entry.api.versions[0], entry.api.versions[1] + 1)
]
_TOPIC_TYPE, _CLUSTER_TYPE, _LITERAL, _ALLOW = 2, 4, 3, 3
_CLUSTER_OPERATIONS = (8, 5, 10, 12)
"""Describe, Create, DescribeConfigs, IdempotentWrite."""


def fuzzed_broker(folder: Path, zookeeper: ZooKeeper) -> tuple[BrokerProcess, Address]:
    """A broker, and the address of the listener that is fuzzed."""
    folder.mkdir(parents=True, exist_ok=True)
    port = fresh_port()
    broker = BrokerProcess(folder, zookeeper.fresh_path())
    broker.properties |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},FUZZ://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,FUZZ:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.fuzz.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.fuzz.plain.sasl.jaas.config": f'{PLAIN} required user_fuzz="f-s3cret";',
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "s3cret",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    broker.serving()
    for topic in (TOPIC, "fuzzed", "fuzzed-2"):
        eventually(
            lambda topic=topic: leader_of(broker.address, topic, create=True) == 1,  # type: ignore[misc]
            topic,
            lambda: broker.output,
        )
    rule = CreateAclsRequest.AclCreation
    rules = [(_TOPIC_TYPE, TOPIC, "User:nobody", 3)]
    rules += [(_CLUSTER_TYPE, "kafka-cluster", "User:fuzz", o) for o in _CLUSTER_OPERATIONS]
    made = call(
        broker.address,
        CreateAclsRequest(
            creations=[
                rule(
                    resource_type=kind, resource_name=name, resource_pattern_type=_LITERAL,
                    principal=who, host="*", operation=operation, permission_type=_ALLOW,
                )
                for kind, name, who, operation in rules
            ]
        ),
        2,
    )  # fmt: skip
    assert all(result.error_code == 0 for result in made.results), made
    return broker, ("127.0.0.1", port)


async def logged_in(stream: trio.SocketStream) -> None:
    await stream.send_all(frame_of(SaslHandshakeRequest(mechanism="PLAIN"), 1))
    await answer(stream)
    token = b"\0fuzz\0f-s3cret"
    await stream.send_all(frame_of(SaslAuthenticateRequest(auth_bytes=token), 2))
    await answer(stream)


async def answer(stream: trio.SocketStream) -> bool:
    """Whether there was one; it is thrown away."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        more = await stream.receive_some(65536)
        if not more:
            return False
        data += more
    return True


async def _connection(address: Address, seed: str, secured: bool, sent: list[int]) -> None:
    """A few requests, one after another, until the broker closes or does not answer."""
    chance = Random(seed)
    async with await trio.open_tcp_stream(*address) as stream:
        try:
            if secured and chance.random() < 0.9:
                await logged_in(stream)
            for number in range(PER_CONNECTION):
                key, version = chance.choice(APIS)
                await stream.send_all(request(chance, key, version, number))
                sent[0] += 1
                with trio.move_on_after(PATIENCE_S) as waited:
                    if not await answer(stream):
                        return
                if waited.cancelled_caught:
                    return
        except trio.BrokenResourceError:
            pass


async def storm(address: Address, first: int, count: int, secured: bool, sent: list[int]) -> None:
    numbers = iter(range(first, first + count))

    async def worker() -> None:
        for number in numbers:
            await _connection(address, f"connection {number}", secured, sent)

    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.deadline = trio.current_time() + HELD_UP_S
        for _ in range(AT_ONCE):
            nursery.start_soon(worker)


def requests(
    folder: Path, zookeeper: ZooKeeper, count: int, *, secured: bool, first: int = 0
) -> str:
    """That many requests, from seed `first` on; what came of them in a sentence."""
    shutil.rmtree(folder, ignore_errors=True)  # of a part that was cut off
    broker, address = fuzzed_broker(folder, zookeeper)
    assert broker.child is not None
    process = psutil.Process(broker.child.pid.pid)
    address = address if secured else broker.address
    beside = Beside(broker.address, TOPIC, 50) if secured else None
    begun, before = time.monotonic(), process.memory_info().rss
    peak, done, told, sent = before, 0, "", [0]
    try:
        while sent[0] < count:
            trio.run(storm, address, first + done, PART, secured, sent)
            done += PART
            assert broker.running, broker.output[-5000:]
            assert beside is None or beside.running, f"it is held up after {done} connections"
            peak = max(peak, process.memory_info().rss)
            (folder / "done").write_text(f"{first + done} {sent[0]}")
        faults = _tracebacks(broker.output)
        assert not faults, f"{len(faults)} kinds:\n" + "\n\n".join(faults.values())
        grown = (peak - before) / (1 << 20)
        assert grown < MORE_MIB, f"{grown:.0f} MiB more after {done} connections"
        if beside is not None:
            found, kept = beside.interval(), beside.end()
            assert kept["missing"] == 0, kept
            told = f", {kept['acknowledged']:,} acknowledged records all there, "
            told += f"p99 beside {found['p99']:.0f} ms"
        assert broker.stop() == 0, broker.output[-3000:]
    finally:
        if beside is not None:
            beside.kill()
        broker.end()
    seconds = time.monotonic() - begun
    return (
        f"{sent[0]:,} requests in {done:,} connections, {seconds:.0f} s, {grown:.0f} MiB more{told}"
    )


def _tracebacks(text: str) -> dict[str, str]:
    """One of each kind, by its last place and its error."""
    found: dict[str, str] = {}
    for part in text.split("Traceback (most recent call last):\n")[1:]:
        lines = part.splitlines()
        end = next((n for n, line in enumerate(lines) if not line.startswith(" ")), len(lines) - 1)
        places = [line for line in lines[:end] if line.startswith("  File ")]
        found.setdefault(f"{places[-1]}: {lines[end]}", "\n".join(lines[: end + 1]))
    return found


def files(folder: Path, count: int) -> str:
    """That many damaged logs, and what came of them; goes on where it was cut off."""
    folder.mkdir(parents=True, exist_ok=True)
    kept, mark = folder / "kept", folder / "files-done"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    whole = template(kept)
    first = int(mark.read_text()) if mark.exists() else 0
    logging.disable(logging.ERROR)
    found: Counter[str] = Counter()
    for number in range(first, count):
        try:
            found[check_damaged(Random(f"files {number}"), kept, whole, folder / "log")] += 1
        except Exception as error:
            raise AssertionError(f"files {number}: {error!r}") from error
        if number % 100 == 99:
            mark.write_text(str(number + 1))
    told = ", ".join(f"{number:,} {what}" for what, number in sorted(found.items()))
    return f"damaged logs {first:,} to {count:,}: {told}"


def main(what: str, count: str, folder: str = "", first: str = "0") -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(folder or name).absolute() / what
        if what == "files":
            print(files(place, int(count)))
            return
        zookeeper = ZooKeeper(Path(name) / "zookeeper")
        try:
            secured = what == "requests"
            print(requests(place, zookeeper, int(count), secured=secured, first=int(first)))
        finally:
            zookeeper.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
