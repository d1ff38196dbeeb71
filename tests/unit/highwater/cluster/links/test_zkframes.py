"""Frames as kazoo itself builds them: the parser must name the operation and every znode."""

from __future__ import annotations

import struct

import pytest
from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Delete,
    GetData,
    Ping,
    SetData,
    Transaction,
)
from kazoo.security import OPEN_ACL_UNSAFE

from highwater.cluster.links import zkframes


def frame(xid: int, request: object) -> bytes:
    return struct.pack(">ii", xid, request.type) + bytes(request.serialize())  # type: ignore[attr-defined]


def test_single_operations() -> None:
    assert zkframes.parse_request(frame(3, SetData("/a/b", b"x" * 300, 2))) == (
        3,
        "setData",
        ("/a/b",),
    )
    assert zkframes.parse_request(frame(4, GetData("/c", None))) == (4, "getData", ("/c",))
    assert zkframes.parse_request(struct.pack(">ii", -2, Ping.type)) == (-2, "ping", ())


def test_multi_names_every_path() -> None:
    multi = Transaction(
        [
            CheckVersion("/controller_epoch", 7),
            Create("/x", b"data", OPEN_ACL_UNSAFE, 1),
            SetData("/brokers/topics/t/partitions/0/state", b"{}", 3),
            Delete("/y", -1),
        ]
    )
    assert zkframes.parse_request(frame(9, multi)) == (
        9,
        "multi",
        ("/controller_epoch", "/x", "/brokers/topics/t/partitions/0/state", "/y"),
    )


@pytest.mark.parametrize("cut", [4, 8, 10, 14])
def test_a_broken_frame_is_nameless(cut: int) -> None:
    xid, name, paths = zkframes.parse_request(frame(5, SetData("/a/b", b"x", 2))[:cut])
    assert name in ("", "setData")
    assert xid in (0, 5)
    assert paths in ((), ("/a/b",), ("",), ("/",), ("/a",))
