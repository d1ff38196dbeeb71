"""--sync: a change is answered when it is on the disk itself; one fsync serves all that wait."""

from __future__ import annotations

import re
import select
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from highwater.zookeeper import jute
from highwater.zookeeper.jute import Type
from highwater.zookeeper.sockets import DiskFails, Options, Server
from highwater.zookeeper.store import Store
from tests.integration.zookeeper.raw_client import Raw, create, path_and
from tests.integration.zookeeper.two_servers import Address, exchange
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


@dataclass(slots=True)
class Disk:
    """Its fsync takes until it is `free`."""

    free: threading.Event = field(default_factory=threading.Event)
    calls: int = 0
    broken: bool = False

    def fsync(self, _: int) -> None:
        self.calls += 1
        assert self.free.wait(30)
        if self.broken:
            raise OSError("it is broken")


@dataclass(slots=True)
class Running:
    address: Address = ("127.0.0.1", 0)
    failed: list[BaseException] = field(default_factory=list)


@contextmanager
def synced(folder: Path, disk: Disk, snapshot_after: int = 1 << 30) -> Iterator[Running]:
    """A server in a thread of its own."""
    running, ready, over = Running(), threading.Event(), trio.Event()
    token: list[trio.lowlevel.TrioToken] = []
    store = Store(folder, snapshot_after, disk.fsync)

    async def main() -> None:
        token.append(trio.lowlevel.current_trio_token())
        async with trio.open_nursery() as nursery:
            port = await nursery.start(Server(500, store, Options(sync=True)).serve, 0)
            running.address = "127.0.0.1", port
            ready.set()
            await over.wait()
            nursery.cancel_scope.cancel()

    def run() -> None:
        try:
            trio.run(main)
        except BaseExceptionGroup as errors:
            running.failed.append(errors)

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(30)
    try:
        yield running
    finally:
        disk.free.set()
        if thread.is_alive():
            token[0].run_sync_soon(over.set)
        thread.join(30)
        store.close()


def clients(address: Address, count: int, ends: ExitStack) -> list[Raw]:
    found = [Raw(address) for _ in range(count)]
    for raw in found:
        assert raw.connect()
        ends.callback(raw.drop)
    return found


def received(address: Address) -> int:
    found = re.search(rb"Received: (\d+)", exchange(address, b"srvr"))
    assert found is not None
    return int(found[1])


def request(xid: int, kind: int, body: bytes = b"") -> bytes:
    return jute.frame(struct.pack(">ii", xid, kind) + body)


def answered(raws: list[Raw]) -> list[Raw]:
    return [raw for raw in raws if select.select([raw.socket], [], [], 0)[0]]


def send_all(address: Address, sent: list[tuple[Raw, bytes]]) -> None:
    """And waits until the server has read each."""
    before, words = received(address), 0
    for raw, data in sent:
        raw.send(data)

    def there() -> bool:
        nonlocal words
        words += 1
        return received(address) >= before + len(sent) + words

    eventually(there, "all requests are read", within_s=20)


def test_one_fsync_serves_all_that_wait_and_nobody_is_answered_before_it(tmp_path: Path) -> None:
    disk = Disk()
    disk.free.set()
    with synced(tmp_path, disk) as zk, ExitStack() as ends:
        writers, (reader,) = clients(zk.address, 20, ends), clients(zk.address, 1, ends)
        disk.free.clear()
        before = disk.calls
        changes = [
            (raw, request(1, Type.CREATE, create(f"/{number}", b"x", 0)))
            for number, raw in enumerate(writers)
        ]
        send_all(zk.address, changes)
        send_all(zk.address, [(reader, request(1, Type.EXISTS, path_and("/7", b"\0")))])
        assert answered([*writers, reader]) == []
        disk.free.set()
        for raw in (*writers, reader):
            frame = raw.frame()
            assert frame is not None
            assert struct.unpack_from(">iqi", frame)[2] == 0
        assert 1 <= disk.calls - before <= 2, "that of the first, and one for all others"


def test_a_read_waits_for_no_disk_where_no_change_is_under_way(tmp_path: Path) -> None:
    disk = Disk()
    disk.free.set()
    with synced(tmp_path, disk) as zk, ExitStack() as ends:
        (raw,) = clients(zk.address, 1, ends)
        assert raw.ask(Type.CREATE, create("/a", b"", 0))[0] == 0
        disk.free.clear()
        before = disk.calls
        for _ in range(10):
            assert raw.ask(Type.EXISTS, path_and("/a", b"\0"))[0] == 0
        assert disk.calls == before


def test_the_answers_of_a_connection_are_in_the_order_of_its_requests(tmp_path: Path) -> None:
    disk = Disk()
    disk.free.set()
    with synced(tmp_path, disk, 2000) as zk, ExitStack() as ends:
        (raw,) = clients(zk.address, 1, ends)
        count = 400
        for xid in range(1, count, 4):
            raw.send(
                request(xid, Type.CREATE, create(f"/{xid}", b"", 0))
                + request(xid + 1, Type.EXISTS, path_and(f"/{xid}", b"\0"))
                + request(xid + 2, Type.DELETE, path_and(f"/{xid}", jute.number(-1)))
                + request(xid + 3, Type.GET_CHILDREN, path_and("/", b"\0"))
            )
        for xid in range(1, count + 1):
            frame = raw.frame()
            assert frame is not None
            answer, _, code = struct.unpack_from(">iqi", frame)
            assert (answer, code) == (xid, 0)
        assert disk.calls < count / 2, "each serves several"
    assert len(list(tmp_path.glob("log.*"))) > 1, "and logs were begun meanwhile"


def test_a_request_beyond_the_thousandth_that_waits_is_not_read(tmp_path: Path) -> None:
    disk = Disk()
    disk.free.set()
    with synced(tmp_path, disk) as zk, ExitStack() as ends:
        (raw,) = clients(zk.address, 1, ends)
        disk.free.clear()
        before = received(zk.address)
        raw.send(b"".join(request(xid, Type.SYNC, jute.text("/")) for xid in range(1, 3)))
        for xid in (1, 2):
            frame = raw.frame()
            assert frame is not None
            assert int.from_bytes(frame[:4]) == xid
        changes = [request(xid, Type.SET_DATA, path_and("/", jute.buffer(b""), jute.number(-1)))
                   for xid in range(3, 1503)]  # fmt: skip
        raw.send(b"".join(changes))
        eventually(lambda: received(zk.address) >= before + 1000, "a thousand are read")
        disk_had = received(zk.address)
        assert disk_had < before + 1400
        disk.free.set()
        for xid in range(3, 1503):
            frame = raw.frame()
            assert frame is not None
            assert int.from_bytes(frame[:4]) == xid


def test_a_disk_that_fails_acknowledges_nothing(tmp_path: Path) -> None:
    disk = Disk()
    disk.free.set()
    with synced(tmp_path, disk) as zk, ExitStack() as ends:
        raws = clients(zk.address, 3, ends)
        disk.free.clear()
        disk.broken = True
        changes = [
            (raw, request(1, Type.CREATE, create(f"/{number}", b"", 0)))
            for number, raw in enumerate(raws)
        ]
        send_all(zk.address, changes)
        disk.free.set()
        for raw in raws:
            assert raw.rest(b"") == b"", "the end, and no answer"
        eventually(lambda: zk.failed, "the server has ended", within_s=10)
    (errors,) = zk.failed
    assert isinstance(errors, BaseExceptionGroup)
    assert errors.subgroup(DiskFails) is not None


def test_what_an_earlier_life_left_to_the_kernel_is_told_when_it_is_on_the_disk(
    tmp_path: Path,
) -> None:
    disk = Disk()
    disk.free.set()
    with synced(tmp_path, disk, 100) as zk, ExitStack() as ends:
        (raw,) = clients(zk.address, 1, ends)
        assert raw.ask(Type.CREATE, create("/a", bytes(200), 0))[0] == 0
        raw.drop()
    logs = len(list(tmp_path.glob("log.*")))
    before = disk.calls
    with synced(tmp_path, disk) as zk:
        raw.address = zk.address
        assert raw.connect(), "no change, but an answer"
        raw.drop()
    assert disk.calls - before >= logs > 1
