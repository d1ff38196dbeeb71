"""The four-letter words, of a server that is made by hand."""

from __future__ import annotations

import pytest

from highwater.zookeeper import four_letter_words as words
from highwater.zookeeper import jute
from highwater.zookeeper.acl import OPEN
from highwater.zookeeper.jute import Type
from highwater.zookeeper.service import Service
from tests.unit.highwater.zookeeper.test_service import asked, connected, made


def view(service: Service, *clients: words.Client) -> words.View:
    return words.View(
        service=service, clients=clients, traffic=words.Traffic(), config={"tickTime": 500},
        now_ms=0, wall_ms=1_000_000, uptime_ms=7, folder=None, rejected=0,
    )  # fmt: skip


def busy() -> words.View:
    """Session 8 has an ephemeral, and session 9 watches it."""
    service = made()
    one, other = connected(service), connected(service)
    body = jute.text("/e") + jute.buffer(b"x") + jute.acls(OPEN) + jute.number(1)
    assert asked(service, one, Type.CREATE, body) == 0
    assert asked(service, other, Type.EXISTS, jute.text("/e") + b"\1") == 0
    return view(service, words.Client(1, one, 3), words.Client(2, other, 4))


def test_a_list_of_words_is_checked() -> None:
    assert words.allowed(" ruok, srvr,") == {"ruok", "srvr"}
    assert words.allowed("") == frozenset()
    assert words.allowed("*") >= {"mntr", "dump", "isro"}
    with pytest.raises(ValueError, match=r"no four-letter word rouk: take some of conf,.*, or \*"):
        words.allowed("ruok,rouk")


def test_what_is_known_is_answered_where_it_may_be() -> None:
    assert [words.known(word) for word in (b"ruok", b"\0\0\0\x2d", b"ru", b"")] == [
        "ruok", "", "", "",
    ]  # fmt: skip
    here = view(made())
    assert words.answer("ruok", here, frozenset({"ruok"})) == "imok"
    assert words.answer("isro", here, frozenset({"ruok"})) == (
        "isro is not executed because it is not in the whitelist.\n"
    )


def test_sessions_and_what_they_own_and_watch() -> None:
    every, here = words.allowed("*"), busy()
    assert words.answer("wchc", here, every) == "0x9\n\t/e\n\n"
    assert words.answer("wchp", here, every) == "/e\n\t0x9\n\n"
    assert words.answer("wchs", here, every) == "1 connections watching 1 paths\nTotal watches:1\n"
    dump = words.answer("dump", here, every)
    assert "2 expire at Thu Jan 01 00:16:46 UTC 1970:\n\t0x8\n\t0x9\n" in dump
    assert "Sessions with Ephemerals (1):\n0x8:\n\t/e\n" in dump


def test_latencies_and_counts_until_they_are_reset() -> None:
    every, here = words.allowed("*"), busy()
    client = here.clients[0]
    for ms in (4, 1, 4):
        client.traffic.answer(ms)
        here.traffic.answer(ms)
    client.asked(b"\0\0\0\7\0\0\0\4", 5)
    cons = words.answer("cons", here, every)
    assert " /127.0.0.1:1[1](queued=0,recved=0,sent=0,sid=0x8,lop=GETD,est=3,to=6000" in cons
    assert "lcxid=0x7,lzxid=0x5,lresp=0,llat=4,minlat=1,avglat=3,maxlat=4)" in cons
    assert "Latency min/avg/max: 1/3.0/4\n" in words.answer("srvr", here, every)
    words.answer("crst", here, every)
    words.answer("srst", here, every)
    assert "maxlat=4" not in words.answer("cons", here, every)
    assert "Latency min/avg/max: 0/0.0/0\n" in words.answer("srvr", here, every)
