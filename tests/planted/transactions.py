"""Planted histories of transactions: transfers between accounts, and a copier.  See `story`."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.planted.story import Story, finish, plant, sound, v


def init(s: Story, process: str) -> None:
    """The instance has the story's transactional id from now on."""
    common = {"op": s.operation(), "transactional_id": s.topic}
    s.line(process, "init_txn", "invoke", **common)
    s.line(process, "init_txn", "ok", **common)


def end(s: Story, process: str, name: str, which: str = "commit", ending: str = "ok") -> None:
    common = {"op": s.operation(), "transactional_id": s.topic, "txn": v(s, name), "which": which}
    s.line(process, "end_txn", "invoke", **common)
    s.line(process, "end_txn", ending, **common)


def transfer(s: Story, process: str, name: str, offset: int) -> None:
    """Moves ten from one account to another: two records, not ended yet."""
    for place, amount in ((offset, -10), (offset + 1, 10)):
        s.send(process, v(s, f"{name}@{place}"), place, txn=v(s, name), amount=amount)


def see(s: Story, *offsets: int, process: str = "committed", **fields: Any) -> None:
    """A poll under read_committed."""
    asked: dict[str, Any] = {"lso": 1000, "isolation": "read_committed", **fields}
    s.poll(process, *s.values(*offsets), **asked)


def end_here(s: Story, *offsets: int, stable: int | None = None) -> None:
    """The full reads at the end; these offsets are visible under read_committed."""
    finish(s)
    after = max(s.log[0]) + 2
    s.list_offsets("final", "latest", after, phase="final")
    s.list_offsets("committed", "stable", after if stable is None else stable, phase="final")
    see(s, *offsets, process="final-committed", phase="final")


def hijack(s: Story) -> None:
    """One instance moves money, and another takes over."""
    sound(s)
    init(s, "teller")
    transfer(s, "teller", "first", 6)
    end(s, "teller", "first")
    init(s, "teller-2")


after_hijack = partial(plant, begin=hijack, end=None)


@after_hijack()
def clean_transfers(s: Story) -> None:
    """Committed, aborted, left open, and of unknown outcome; readers pass over records that are not
    committed, and a committed reader sees a transaction while the answer to its commit is on its
    way."""
    transfer(s, "teller-2", "aborted", 9)
    end(s, "teller-2", "aborted", "abort")
    transfer(s, "teller-2", "unknown", 12)
    end(s, "teller-2", "unknown", "commit", "info")
    transfer(s, "teller-2", "unknown-too", 15)
    end(s, "teller-2", "unknown-too", "commit", "info")
    transfer(s, "teller-2", "left", 18)
    transfer(s, "teller", "zombie", 21)
    end(s, "teller", "zombie", "commit", "fail")
    see(s, 0, 1, 2, 3, 4, 5, 6, 7, 12, 13)
    end_here(s, 0, 1, 2, 3, 4, 5, 6, 7, 12, 13)


@plant(end=None)
def clean_copies(s: Story) -> None:
    """Each value is copied once; a transaction that was aborted is done again."""
    init(s, "copier")
    for name, base, ending in (("a", 10, "abort"), ("b", 20, "commit")):
        for offset in range(6):
            source = v(s, f"v{offset}")
            s.send("copier", v(s, f"{name}{offset}"), base + offset, txn=v(s, name), copy_of=source)
        end(s, "copier", name, ending)
    end_here(s, *range(6), *range(20, 26))


@after_hijack("T3")
def a_committed_record_is_missing(s: Story) -> None:
    """Two transfers in one transaction, and one of them is hidden."""
    transfer(s, "teller-2", "second", 9)
    transfer(s, "teller-2", "second", 12)
    end(s, "teller-2", "second")
    end_here(s, *range(8), 12, 13)


@after_hijack("T3")
def seen_before_its_commit(s: Story) -> None:
    """An open transaction is shown, and committed later."""
    transfer(s, "teller-2", "second", 9)
    see(s, 9)
    end(s, "teller-2", "second")
    end_here(s, *range(8), 9, 10)


@after_hijack("T3 T4")
def torn_in_two(s: Story) -> None:
    """One half of a transfer of unknown outcome is there: money was made of nothing."""
    transfer(s, "teller-2", "second", 9)
    end(s, "teller-2", "second", "commit", "info")
    end_here(s, *range(8), 10)


@after_hijack("T3 C6")
def an_aborted_one_is_shown(s: Story) -> None:
    """A read shows the records of an aborted transaction."""
    transfer(s, "teller-2", "second", 9)
    end(s, "teller-2", "second", "abort")
    end_here(s, *range(8), 9, 10)


@after_hijack("T4")
def a_zombie_commits(s: Story) -> None:
    """The first instance ends a transaction although another has taken over."""
    transfer(s, "teller", "second", 9)
    end(s, "teller", "second")
    end_here(s, *range(8), 9, 10)


@after_hijack("T4")
def half_a_transfer(s: Story) -> None:
    """Committed with a send whose outcome was unknown, and which failed."""
    s.send("teller-2", v(s, "from"), 9, txn=v(s, "half"), amount=-10)
    s.unknown("teller-2", v(s, "to"), txn=v(s, "half"), amount=10)
    end(s, "teller-2", "half")
    end_here(s, *range(8), 9)


def copy(s: Story, *numbers: int, name: str = "a", base: int = 10) -> None:
    for place, number in enumerate(numbers):
        s.send(
            "copier", v(s, f"{name}.{place}"), base + place, txn=v(s, name),
            copy_of=v(s, f"v{number}"),
        )  # fmt: skip
    end(s, "copier", name)


@plant("T5", end=None)
def copied_twice(s: Story) -> None:
    """The offsets of the input did not count with the transaction."""
    init(s, "copier")
    copy(s, 0, 1, 2, 3)
    copy(s, 3, 4, 5, name="b", base=20)
    end_here(s, *range(6), *range(10, 14), *range(20, 23))


@plant(apart="C2", end=None)
def copied_as_often_as_it_stands(s: Story) -> None:
    """A retry without idempotence left an input twice, and the copier copied both."""
    s.send("plain", v(s, "v7"), 7, idempotent=False)
    s.store(v(s, "v7"), 6)
    init(s, "copier")
    copy(s, 0, 1, 2, 3, 4, 5, 7, 7)
    end_here(s, *range(8), *range(10, 18))


@plant("T5", end=None)
def not_copied(s: Story) -> None:
    """The offsets of the input counted without the transaction."""
    init(s, "copier")
    copy(s, 0, 1, 2)
    copy(s, 4, 5, name="b", base=20)
    end_here(s, *range(6), *range(10, 13), *range(20, 22))


@plant("T5", end=None)
def a_copy_of_nothing(s: Story) -> None:
    """The copier read a value that no client had sent."""
    init(s, "copier")
    copy(s, 0, 1, 2, 3, 4, 5, 77)
    end_here(s, *range(6), *range(10, 17))


@after_hijack("T7")
def read_above_the_lso(s: Story) -> None:
    """A committed read shows a record that is not stable by the same answer."""
    see(s, 6, 7, lso=7)
    end_here(s, *range(8))


@after_hijack("T7")
def held_up_for_ever(s: Story) -> None:
    """A transaction that was left open is never ended."""
    transfer(s, "teller-2", "left", 9)
    end_here(s, *range(8), stable=9)


def begun(s: Story, process: str, *names: str) -> None:
    """Transactions of as many ids: one record each, at offsets from 6, and not ended yet."""
    for place, name in enumerate(names):
        s.send(f"{process}-{name}", v(s, f"{name}1"), 6 + place, txn=v(s, name))


def read_in(s: Story, name: str, *offsets: int) -> None:
    """A poll under read_committed within the transaction."""
    see(s, *offsets, process=f"writer-{name}", txn=v(s, name))


@plant(apart="T8", end=None)
def written_into_each_other(s: Story) -> None:
    """The records of two transactions alternate in one partition."""
    begun(s, "writer", "a", "b")
    s.send("writer-a", v(s, "a2"), 8, txn=v(s, "a"))
    for name in "ab":
        end(s, f"writer-{name}", name)
    end_here(s, *range(9))


@plant(apart="T8", end=None)
def written_in_a_circle_of_three(s: Story) -> None:
    """In each of three partitions two of three transactions meet, each one first in one of them."""
    for partition, (first, second) in enumerate((("a", "b"), ("b", "c"), ("c", "a")), 1):
        for offset, name in enumerate((first, second)):
            value = v(s, f"{name}{partition}")
            s.send(f"writer-{name}", value, offset, partition=partition, txn=v(s, name))
    for name in "abc":
        end(s, f"writer-{name}", name)
    finish(s)
    see(s, *range(6), process="final-committed", phase="final")
    for partition in (1, 2, 3):
        at: dict[str, Any] = {"isolation": "read_committed", "phase": "final"}
        s.poll("final-committed", *s.values(0, 1, partition=partition), partition=partition, **at)


@plant(end=None)
def clean_reads_of_each_other(s: Story) -> None:
    """One transaction reads what was committed before, and the next one what that wrote."""
    begun(s, "writer", "a")
    end(s, "writer-a", "a")
    read_in(s, "b", 6)
    s.send("writer-b", v(s, "b1"), 8, txn=v(s, "b"))
    end(s, "writer-b", "b")
    read_in(s, "c", 6, 8)
    s.send("writer-c", v(s, "c1"), 10, txn=v(s, "c"))
    end(s, "writer-c", "c")
    end_here(s, *range(7), 8, 10)


@plant("T3 T9", end=None)
def read_its_own(s: Story) -> None:
    """A transaction's consumer sees what it has not committed yet."""
    begun(s, "writer", "a")
    read_in(s, "a", 6)
    end(s, "writer-a", "a")
    end_here(s, *range(7))


@plant("T3 T9", end=None)
def read_in_a_circle_of_two(s: Story) -> None:
    """Two transactions read each other's records."""
    begun(s, "writer", "a", "b")
    read_in(s, "a", 7)
    end(s, "writer-b", "b")
    read_in(s, "b", 6)
    end(s, "writer-a", "a")
    end_here(s, *range(8))


@plant("T3 T9", end=None)
def read_in_a_circle_of_three(s: Story) -> None:
    begun(s, "writer", "a", "b", "c")
    for name, other in (("a", 8), ("b", 6), ("c", 7)):
        read_in(s, name, other)
    for name in "abc":
        end(s, f"writer-{name}", name)
    end_here(s, *range(9))


@plant("T3 T9", end=None)
def read_in_a_circle_of_four(s: Story) -> None:
    begun(s, "writer", "a", "b", "c", "d")
    for name, other in (("a", 9), ("b", 6), ("c", 7), ("d", 8)):
        read_in(s, name, other)
    for name in "abcd":
        end(s, f"writer-{name}", name)
    end_here(s, *range(10))


@plant("T9", end=None)
def read_while_both_commit(s: Story) -> None:
    """Both commits are under way when each transaction reads the other's record."""
    begun(s, "writer", "a", "b")
    asked = {"op": s.operation(), "transactional_id": s.topic, "which": "commit"}
    for name in "ab":
        s.line(f"writer-{name}", "end_txn", "invoke", **asked, txn=v(s, name))
    read_in(s, "a", 7)
    read_in(s, "b", 6)
    for name in "ab":
        s.line(f"writer-{name}", "end_txn", "ok", **asked, txn=v(s, name))
    end_here(s, *range(8))


@plant("T5 T9", end=None)
def copied_in_a_circle(s: Story) -> None:
    """Two copiers each copy what the other wrote, in one transaction each: no read tells when it
    was."""
    for place, (name, other) in enumerate((("a", "b"), ("b", "a"))):
        value, source = v(s, f"{name}1"), v(s, f"{other}1")
        s.send(f"copier-{name}", value, 6 + place, txn=v(s, name), copy_of=source)
    for name in "ab":
        end(s, f"copier-{name}", name)
    end_here(s, *range(8))
