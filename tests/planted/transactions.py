"""Planted histories of transactions: transfers between accounts, and a copier.  See `story`."""

from __future__ import annotations

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


@plant()
def clean_transfers(s: Story) -> None:
    """Committed, aborted, left open, and of unknown outcome; readers pass over records that are not
    committed, and a committed reader sees a transaction while the answer to its commit is on its
    way."""
    hijack(s)
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


@plant()
def clean_copies(s: Story) -> None:
    """Each value is copied once; a transaction that was aborted is done again."""
    sound(s)
    init(s, "copier")
    for name, base, ending in (("a", 10, "abort"), ("b", 20, "commit")):
        for offset in range(6):
            source = v(s, f"v{offset}")
            s.send("copier", v(s, f"{name}{offset}"), base + offset, txn=v(s, name), copy_of=source)
        end(s, "copier", name, ending)
    end_here(s, *range(6), *range(20, 26))


@plant("T3")
def a_committed_record_is_missing(s: Story) -> None:
    """Two transfers in one transaction, and one of them is hidden."""
    hijack(s)
    transfer(s, "teller-2", "second", 9)
    transfer(s, "teller-2", "second", 12)
    end(s, "teller-2", "second")
    end_here(s, *range(8), 12, 13)


@plant("T3")
def seen_before_its_commit(s: Story) -> None:
    """An open transaction is shown, and committed later."""
    hijack(s)
    transfer(s, "teller-2", "second", 9)
    see(s, 9)
    end(s, "teller-2", "second")
    end_here(s, *range(8), 9, 10)


@plant("T3 T4")
def torn_in_two(s: Story) -> None:
    """One half of a transfer of unknown outcome is there: money was made of nothing."""
    hijack(s)
    transfer(s, "teller-2", "second", 9)
    end(s, "teller-2", "second", "commit", "info")
    end_here(s, *range(8), 10)


@plant("T3 C6")
def an_aborted_one_is_shown(s: Story) -> None:
    """A read shows the records of an aborted transaction."""
    hijack(s)
    transfer(s, "teller-2", "second", 9)
    end(s, "teller-2", "second", "abort")
    end_here(s, *range(8), 9, 10)


@plant("T4")
def a_zombie_commits(s: Story) -> None:
    """The first instance ends a transaction although another has taken over."""
    hijack(s)
    transfer(s, "teller", "second", 9)
    end(s, "teller", "second")
    end_here(s, *range(8), 9, 10)


@plant("T4")
def half_a_transfer(s: Story) -> None:
    """Committed with a send whose outcome was unknown, and which failed."""
    hijack(s)
    s.send("teller-2", v(s, "from"), 9, txn=v(s, "half"), amount=-10)
    s.unknown("teller-2", v(s, "to"), txn=v(s, "half"), amount=10)
    end(s, "teller-2", "half")
    end_here(s, *range(8), 9)


def copy(s: Story, *numbers: int, name: str = "a", base: int = 10) -> None:
    for place, number in enumerate(numbers):
        s.send(
            "copier",
            v(s, f"{name}.{place}"),
            base + place,
            txn=v(s, name),
            copy_of=v(s, f"v{number}"),
        )
    end(s, "copier", name)


@plant("T5")
def copied_twice(s: Story) -> None:
    """The offsets of the input did not count with the transaction."""
    sound(s)
    init(s, "copier")
    copy(s, 0, 1, 2, 3)
    copy(s, 3, 4, 5, name="b", base=20)
    end_here(s, *range(6), *range(10, 14), *range(20, 23))


@plant("T5")
def not_copied(s: Story) -> None:
    """The offsets of the input counted without the transaction."""
    sound(s)
    init(s, "copier")
    copy(s, 0, 1, 2)
    copy(s, 4, 5, name="b", base=20)
    end_here(s, *range(6), *range(10, 13), *range(20, 22))


@plant("T5")
def a_copy_of_nothing(s: Story) -> None:
    """The copier read a value that no client had sent."""
    sound(s)
    init(s, "copier")
    copy(s, 0, 1, 2, 3, 4, 5, 77)
    end_here(s, *range(6), *range(10, 17))


@plant("T7")
def read_above_the_lso(s: Story) -> None:
    """A committed read shows a record that is not stable by the same answer."""
    hijack(s)
    see(s, 6, 7, lso=7)
    end_here(s, *range(8))


@plant("T7")
def held_up_for_ever(s: Story) -> None:
    """A transaction that was left open is never ended."""
    hijack(s)
    transfer(s, "teller-2", "left", 9)
    end_here(s, *range(8), stable=9)
