"""What a client may not do, and the four-letter words: on our server as on Java's."""

from __future__ import annotations

import re
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from highwater.zookeeper import jute
from highwater.zookeeper.four_letter_words import allowed
from highwater.zookeeper.jute import Type
from tests.integration.zookeeper.raw_client import Raw, create, path_and
from tests.integration.zookeeper.two_servers import Address, exchange, java, server
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
MOST = 0xFFFFF


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Address, Address]]:
    """Ours and Java's."""
    folder = tmp_path_factory.mktemp("both")
    with server(folder / "ours") as ours, java(folder / "java") as theirs:
        yield ours.address, theirs


PING = jute.frame(struct.pack(">ii", -2, Type.PING))


def large(size: int) -> bytes:
    """A request of so many bytes, without its head of 8, to make /large."""
    return create("/large", bytes(size - 8 - len(create("/large", b"", 0))), 0)


def after_the_answers(address: Address, sent: bytes) -> bytes:
    """What comes for this in a session, to the end of the connection; a ping is behind it."""
    raw = Raw(address)
    assert raw.connect()
    assert raw.ask(Type.PING, b"", jute.PING_XID)[0] == 0
    return raw.rest(sent + PING)


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", MOST + 1) + bytes(100),
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        jute.frame(struct.pack(">ii", 1, Type.CREATE) + large(MOST + 1)),
        b"ruok",
    ],
    ids=lambda sent: sent[:4].hex(),
)
def test_a_frame_that_is_too_large_or_none_ends_its_connection(
    both: tuple[Address, Address], sent: bytes
) -> None:
    for address in both:
        assert after_the_answers(address, sent) == b""


def test_a_frame_of_the_largest_size_is_dealt_with(both: tuple[Address, Address]) -> None:
    for address in both:
        with ExitStack() as ends:
            raw = connects(address, ends)
            assert raw.ask(Type.CREATE, large(MOST)) == (0, "/large")
            assert raw.ask(Type.DELETE, path_and("/large", jute.number(-1)))[0] == 0


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", 0),
        struct.pack(">i", 5) + b"short",
        struct.pack(">i", MOST + 1),
        struct.pack(">i", -7),
        b"nono",
        b"ruoksrvr",
    ],
    ids=lambda sent: sent[:4].hex(),
)
def test_a_first_frame_that_is_none(both: tuple[Address, Address], sent: bytes) -> None:
    ours, theirs = (exchange(address, sent) for address in both)
    assert ours == theirs


def shape(text: str) -> str:
    """Without numbers, versions and times; lines of one kind in order."""
    text = re.sub(r"(?m)^Zookeeper version: .*$", "Zookeeper version:", text)
    text = re.sub(r"(?m)^\d+ expire at .*\n", "", text)  # one tick, or two
    text = re.sub(r"lop=\w+", "lop=", text)
    text = re.sub(r"0x[0-9a-f]+", "X", text)
    return "\n".join(sorted(re.sub(r"\d+(\.\d+)?", "N", text).split("\n")))


@pytest.fixture(scope="module")
def watched(both: tuple[Address, Address]) -> Iterator[tuple[Address, Address]]:
    """Two sessions at each, an ephemeral, and watches."""
    with ExitStack() as ends:
        for address in both:
            one, other = Raw(address), Raw(address)
            for raw in (one, other):
                assert raw.connect()
                ends.callback(raw.drop)
            one.ask(Type.CREATE, create("/e", b"x", 1))
            one.ask(Type.CREATE, create("/p", b"xyz", 0))
            one.ask(Type.GET_CHILDREN, path_and("/", b"\1"))
            other.ask(Type.GET_DATA, path_and("/p", b"\1"))
            other.ask(Type.EXISTS, path_and("/e", b"\1"))
        yield both


@pytest.mark.parametrize(
    "word",
    [
        "ruok",
        "isro",
        "srvr",
        "stat",
        "cons",
        "wchs",
        "wchc",
        "wchp",
        "dump",
        "dirs",
        "crst",
        "srst",
    ],
)
def test_a_word_has_the_layout_of_javas(watched: tuple[Address, Address], word: str) -> None:
    ours, theirs = (exchange(address, word.encode()).decode() for address in watched)
    assert shape(ours) == shape(theirs)


def names(text: str, mark: str) -> set[str]:
    return {line.partition(mark)[0] for line in text.splitlines() if mark in line}


def test_words_of_many_lines_have_names_of_javas(watched: tuple[Address, Address]) -> None:
    ours, theirs = (
        {word: exchange(address, word.encode()).decode() for word in ("mntr", "conf", "envi")}
        for address in watched
    )
    assert names(ours["mntr"], "\t") <= names(theirs["mntr"], "\t")
    assert len(names(ours["mntr"], "\t")) > 15
    assert names(ours["conf"], "=") - {"forceSync"} <= names(theirs["conf"], "=")
    for told in (ours["envi"], theirs["envi"]):
        assert re.search(r"(?m)^zookeeper\.version=3\.9\.", told)
    for name in ("watch_count", "ephemerals_count", "znode_count", "approximate_data_size"):
        found = [re.search(rf"zk_{name}\t(\d+)", told["mntr"]) for told in (ours, theirs)]
        assert found[0] is not None
        assert found[1] is not None
        assert found[0][1] == found[1][1], name


def test_a_word_that_is_not_on_the_list_is_not_executed(tmp_path: Path) -> None:
    listed = "ruok, srvr"
    with (
        server(tmp_path / "ours", "--four-letter-words", listed) as ours,
        java(tmp_path / "java", {"4lw.commands.whitelist": listed}) as theirs,
    ):
        for word in allowed("*"):
            mine, other = (exchange(one, word.encode()) for one in (ours.address, theirs))
            assert shape(mine.decode()) == shape(other.decode())
            assert (b"not in the whitelist" in mine) == (word not in ("ruok", "srvr"))


def refused(address: Address) -> bool:
    """Whether a new connection is closed before it has said anything, or while it is made."""
    try:
        with socket.create_connection(address, 10) as asked:
            asked.settimeout(0.3)
            return asked.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def accepted(address: Address) -> bool:
    return not refused(address)


def connects(address: Address, ends: ExitStack) -> Raw:
    raw = Raw(address)
    assert raw.connect()
    ends.callback(raw.drop)
    return raw


def test_one_address_has_no_more_connections_than_it_may(tmp_path: Path) -> None:
    with (
        server(tmp_path / "ours", "--max-client-connections", "3") as ours,
        java(tmp_path / "java", {"maxClientCnxns": "3"}) as theirs,
    ):
        for address in (ours.address, theirs):
            with ExitStack() as ends:
                first, *_ = [connects(address, ends) for _ in range(3)]
                assert refused(address)
                assert refused(address)
                first.drop()
                eventually(partial(accepted, address), "another may come", within_s=10)
        told = "127.0.0.1 has 3 connections, as --max-client-connections allows: others are refused"
        assert ours.child.new_output().count(told) == 1


def test_the_files_that_may_be_open_bound_all_connections(tmp_path: Path) -> None:
    with server(tmp_path, shell="ulimit -n 70") as zk, ExitStack() as ends:
        raws = [connects(zk.address, ends) for _ in range(6)]
        assert refused(zk.address)
        assert raws[0].ask(Type.CREATE, create("/a", b"", 0))[0] == 0
        told = "there are 6 connections, which is the most: others are refused"
        assert zk.child.new_output().count(told) == 1
        raws[0].drop()
        eventually(partial(accepted, zk.address), "another may come", within_s=10)


def memory(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_who_asks_and_does_not_read_is_not_heard(tmp_path: Path) -> None:
    """Answers of a gigabyte are asked for: those that have room wait, and nobody else does."""
    with server(tmp_path) as zk:
        deaf, other = Raw(zk.address), Raw(zk.address)
        assert deaf.connect()
        assert other.connect()
        size = 900_000
        assert other.ask(Type.CREATE, create("/large", bytes(size), 0))[0] == 0
        before = memory(zk.child.popen.pid)
        ask = jute.frame(struct.pack(">ii", 1, Type.GET_DATA) + path_and("/large", b"\0"))
        count = 1100
        deaf.send(ask * count)
        assert other.ask(Type.GET_DATA, path_and("/large", b"\0"))[0] == 0
        assert memory(zk.child.popen.pid) - before < 100 << 20
        for _ in range(count):
            frame = deaf.frame()
            assert frame is not None
            assert len(frame) > size


def test_who_is_told_and_does_not_read_is_cut_off(tmp_path: Path) -> None:
    """A watch of all that changes, whose client reads nothing; its session goes on without it."""
    with server(tmp_path) as zk:
        deaf, other = Raw(zk.address), Raw(zk.address)
        assert deaf.connect()
        assert other.connect()
        assert deaf.ask(Type.ADD_WATCH, path_and("/", jute.number(1)))[0] == 0
        long = "/" + "x" * 500_000

        def alone() -> bool:
            return b"Connections: 2\n" in exchange(zk.address, b"srvr")

        for _ in range(100):
            if alone():
                break
            assert other.ask(Type.CREATE, create(long, b"", 0))[0] == 0
            assert other.ask(Type.DELETE, path_and(long, jute.number(-1)))[0] == 0
        assert alone(), "the one that asked, and srvr's"
        deaf.drop()
        assert deaf.connect()
