"""Planted histories of consumer groups.  See `story`."""

from __future__ import annotations

from functools import partial

from tests.planted.story import Story, plant, sound, v


def member(s: Story, name: str, told: int | None, generation: int = 1, **fields: object) -> None:
    """A member of the story's group is assigned partition 0."""
    line = {"partition": 0, "offset": told, "group_id": s.topic, "generation": generation, **fields}
    s.line(name, "assign", "ok", **{"member": name, **line})


def commit(s: Story, name: str, offset: int, ending: str = "ok", **fields: object) -> None:
    common = {"op": s.operation(), "partition": 0, "group_id": s.topic, "offset": offset, **fields}
    s.line(name, "commit", "invoke", **common)
    s.line(name, "commit", ending, **common)


def ask(s: Story, name: str, answer: int) -> None:
    common = {"op": s.operation(), "partition": 0, "group_id": s.topic}
    s.line(name, "committed", "invoke", **common)
    s.line(name, "committed", "ok", offset=answer, **common)


def half(s: Story) -> None:
    """One member reads three records and commits them."""
    sound(s)
    member(s, "one", -1)
    s.poll("one", *s.values(0, 1, 2))
    commit(s, "one", 3)


in_group = partial(plant, begin=half)


@in_group()
def clean_group(s: Story) -> None:
    """A rebalance, a commit of unknown outcome that succeeded, a hole at the committed offset."""
    commit(s, "one", 4, "info")
    ask(s, "two", 4)
    member(s, "two", 4, 2)
    s.poll("two", *s.values(4, 5))
    commit(s, "two", 6)
    s.send("producer-0", v(s, 9), 9)
    member(s, "one", 6, 3)
    s.poll("one", *s.values(9))
    commit(s, "one", 10)
    ask(s, "one", 10)


@in_group()
def clean_group_that_tells_no_positions(s: Story) -> None:
    """Assignments without committed offset, generation and member id."""
    commit(s, "one", 5, "info")
    s.line("two", "assign", "ok", partition=0, group_id=s.topic)
    s.poll("two", *s.values(5))


@in_group("G2")
def resumed_too_late(s: Story) -> None:
    """The new owner leaves out the record at the committed offset."""
    member(s, "two", 3, 2)
    s.poll("two", *s.values(4, 5))


@in_group("G2")
def resumed_too_early(s: Story) -> None:
    """The new owner begins before the commit, without having been told a position."""
    s.line("two", "assign", "ok", partition=0, group_id=s.topic)
    s.poll("two", *s.values(2, 3))


@in_group("G3")
def owned_twice(s: Story) -> None:
    """Two members of one generation have the partition."""
    member(s, "two", 3, 1)
    s.poll("two", *s.values(3))


@in_group("G4")
def a_commit_went_back(s: Story) -> None:
    """The new coordinator knows an older commit."""
    commit(s, "one", 5)
    ask(s, "two", 3)


@in_group("G4")
def a_commit_vanished(s: Story) -> None:
    """The new coordinator knows no commit: it answered before it had loaded."""
    ask(s, "two", -1)


def answered(s: Story, name: str, error: str | None = None, **fields: object) -> None:
    """The answer of OffsetFetch for partition 0, as aiokafka's log tells it."""
    line = {"partition": 0, "group_id": s.topic, "error": error, "client": "aiokafka", **fields}
    s.line(name, "offset_fetch", "fail" if error else "ok", **line)


def begins_anew(
    s: Story, name: str, *offsets: int, client: str = "aiokafka", error: str | None = None
) -> None:
    """A member, which tells no position, reads from an offset below the commit."""
    s.line(name, "assign", "ok", partition=0, group_id=s.topic, client=client)
    if error:
        answered(s, name, error, client=client)
    s.poll(name, *s.values(*offsets), client=client)


@in_group("", "G2")
def aiokafka_took_an_error_for_no_commit(s: Story) -> None:
    """Answered NOT_COORDINATOR, it began again; its commits from then on are the group's commit."""
    begins_anew(s, "two", 0, error="NOT_COORDINATOR")
    commit(s, "two", 1, client="aiokafka")
    ask(s, "three", 1)
    member(s, "three", None, 2)
    s.poll("three", *s.values(1, 2))


@in_group("G2")
def aiokafka_began_anew_though_nobody_refused(s: Story) -> None:
    begins_anew(s, "two", 0)


@in_group("G2")
def another_client_began_anew_when_refused(s: Story) -> None:
    begins_anew(s, "two", 0, client="kafka-python", error="NOT_COORDINATOR")


@in_group("G2 G4")
def another_client_commits_less_when_refused(s: Story) -> None:
    """Only aiokafka may take a commit back."""
    begins_anew(s, "two", 0, client="kafka-python", error="NOT_COORDINATOR")
    commit(s, "two", 1, client="kafka-python")
    ask(s, "three", 1)


@in_group("G2")
def aiokafka_was_told_a_lower_offset(s: Story) -> None:
    """Refused once, and then told that nothing is committed: the coordinator is wrong."""
    s.line("two", "assign", "ok", partition=0, group_id=s.topic, client="aiokafka")
    answered(s, "two", "COORDINATOR_LOAD_IN_PROGRESS")
    answered(s, "two", offset=-1)
    s.poll("two", *s.values(0), client="aiokafka")


@in_group("G2")
def aiokafka_resumed_in_between_when_refused(s: Story) -> None:
    """It resumed neither at the commit, nor where auto.offset.reset would have put it."""
    begins_anew(s, "two", 1, error="NOT_COORDINATOR")


@in_group("G2")
def aiokafka_was_refused_before_this_assignment(s: Story) -> None:
    answered(s, "two", "NOT_COORDINATOR")
    begins_anew(s, "two", 0)


@in_group("G2")
def another_member_of_aiokafka_was_refused(s: Story) -> None:
    s.line("two", "assign", "ok", partition=0, group_id=s.topic, client="aiokafka")
    answered(s, "three", "NOT_COORDINATOR")
    s.poll("two", *s.values(0), client="aiokafka")


@in_group("G6")
def committed_what_another_member_has(s: Story) -> None:
    """The first owner goes on to commit between the commits of the next one."""
    member(s, "two", 3, 2)
    s.poll("two", *s.values(3, 4))
    commit(s, "two", 5)
    commit(s, "one", 5)


@in_group()
def a_commit_of_the_former_owner_was_refused(s: Story) -> None:
    member(s, "two", 3, 2)
    s.poll("two", *s.values(3, 4))
    commit(s, "two", 5)
    commit(s, "one", 5, "info", error="UNKNOWN_MEMBER_ID")
