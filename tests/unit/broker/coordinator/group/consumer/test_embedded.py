"""The bytes of classic consumers, as Kafka's clients write them, and what comes of damaged ones."""

from __future__ import annotations

import pytest

from highwater.broker.coordinator.group.consumer.embedded import (
    MalformedError,
    Subscribed,
    assignment,
    encode_assignment,
    subscription,
    version_of,
)

V0 = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
OWNED = b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\3"
V3 = b"\0\3" + V0[2:-4] + b"\0\0\0\2uu" + OWNED + b"\0\0\0\7" + b"\0\4rack"


def test_a_subscription_is_read_in_each_version() -> None:
    assert subscription(V0) == Subscribed(0, ("t",))
    owned = {"t": frozenset((0, 3))}
    assert subscription(V3) == Subscribed(3, ("t",), owned, "rack")
    assert subscription(b"\0\1" + V0[2:] + OWNED) == Subscribed(1, ("t",), owned)
    assert subscription(b"\0\3" + V0[2:] + OWNED + b"\0\0\0\7\xff\xff").rack_id is None
    assert subscription(b"\0\x09" + V3[2:] + b"more") == Subscribed(3, ("t",), owned, "rack")


@pytest.mark.parametrize("whole", [V0, V3])
def test_a_damaged_subscription_is_named(whole: bytes) -> None:
    for size in range(len(whole)):
        with pytest.raises(MalformedError, match=f"a subscription of {size} bytes"):
            subscription(whole[:size])
    with pytest.raises(MalformedError, match="version -1"):
        subscription(b"\xff\xff" + whole[2:])


def test_an_assignment_is_read_as_it_was_written() -> None:
    data = encode_assignment([("t", {3, 0})], 1)
    assert data == b"\0\1" + OWNED + b"\xff\xff\xff\xff"
    assert assignment(data) == ({"t": frozenset((0, 3))}, b"")
    assert assignment(data[:-4] + b"\0\0\0\1u") == ({"t": frozenset((0, 3))}, b"u")
    assert assignment(b"") == ({}, b"")
    for size in range(1, len(data)):
        with pytest.raises(MalformedError, match=f"an assignment of {size} bytes"):
            assignment(data[:size])


def test_a_version_is_known_even_of_bytes_that_are_not() -> None:
    assert [version_of(data) for data in (V3, b"\0\x09", b"", b"\xff\xff")] == [3, 3, 0, 0]
