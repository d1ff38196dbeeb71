"""Planted histories of share groups.  See `story`."""

from __future__ import annotations

from functools import partial

from tests.planted.story import Story, plant, sound

LIMIT = 5


def acquire(s: Story, name: str, count: int, *offsets: int) -> None:
    """One poll of a member, which gives it these records."""
    op = s.operation()
    common = {"op": op, "poll_id": op, "group_id": s.topic}
    s.line(name, "acquire", "invoke", delivery_limit=LIMIT, **common)
    for offset, value in s.values(*offsets):
        s.line(
            name, "acquire", "ok", n=len(offsets), partition=0, offset=offset, key="k",
            value=value, delivery_count=count, **common,
        )  # fmt: skip


def acknowledge(
    s: Story, name: str, which: str, count: int, offset: int, ending: str = "ok"
) -> None:
    common = {
        "op": s.operation(), "group_id": s.topic, "partition": 0, "offset": offset, "which": which,
        "delivery_count": count,
    }  # fmt: skip
    s.line(name, "acknowledge", "invoke", **common)
    s.line(name, "acknowledge", ending, **common)


def wait(s: Story, *names: str) -> None:
    """So many polls without records that nothing can be left in a client from before."""
    for name in names or ("one", "two"):
        for _ in range(4):
            acquire(s, name, 1)


def half(s: Story) -> None:
    """Two members take five of six records: four are ended, and one is released."""
    sound(s)
    wait(s)
    acquire(s, "one", 1, 0, 1, 2)
    acquire(s, "two", 1, 3, 4)
    for offset in (0, 1):
        acknowledge(s, "one", "accept", 1, offset)
    acknowledge(s, "one", "release", 1, 2)
    acknowledge(s, "two", "accept", 1, 3)
    acknowledge(s, "two", "reject", 1, 4)
    wait(s)


def drained(s: Story) -> None:
    s.line("one", "drained", "ok", group_id=s.topic)


in_share_group = partial(plant, begin=half)


@in_share_group()
def clean_share_group(s: Story) -> None:
    """A release, a lock that ends, and acknowledgements that are refused or have no answer."""
    acquire(s, "two", 2, 2)
    acquire(s, "one", 1, 5)
    acquire(s, "two", 2, 5)
    acknowledge(s, "one", "accept", 1, 5, "info")
    acknowledge(s, "two", "accept", 2, 5)
    acknowledge(s, "two", "accept", 2, 2, "info")
    wait(s, "one")
    acquire(s, "one", 3, 2)
    acknowledge(s, "one", "accept", 3, 2)
    drained(s)


@in_share_group("S1")
def taken_by_nobody(s: Story) -> None:
    """The group is done with the topic, and no member ever got the last record."""
    acquire(s, "two", 2, 2)
    acknowledge(s, "two", "accept", 2, 2)
    drained(s)


@in_share_group("S2")
def accepted_and_given_again(s: Story) -> None:
    """The next leader of the partition does not know what was answered."""
    acquire(s, "two", 1, 0)


@in_share_group(apart="S2")
def ended_twice(s: Story) -> None:
    """Two members' acknowledgements of one record are answered, as below the start offset."""
    acquire(s, "one", 1, 5)
    wait(s, "two")
    acknowledge(s, "one", "accept", 1, 5)
    acknowledge(s, "two", "reject", 1, 5)


@in_share_group("S3")
def two_locks(s: Story) -> None:
    """A record is given to a second member while the first one has it."""
    acquire(s, "one", 1, 5)
    wait(s, "two")
    acquire(s, "two", 2, 5)
    acknowledge(s, "one", "accept", 1, 5)


@in_share_group("S4")
def too_often(s: Story) -> None:
    """A record is given more often than the group's limit allows."""
    acquire(s, "one", LIMIT + 1, 5)


@in_share_group("S4")
def counted_from_the_start_again(s: Story) -> None:
    """A release is forgotten, and the count with it."""
    acquire(s, "two", 1, 2)
