"""Delayed operations: completed once, in time, and then not kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from highwater.broker.request.purgatory import CompletionSink, DelayedOperation, Purgatories
from highwater.broker.request.response import Response


class Wait(DelayedOperation):
    kind: ClassVar[str] = "Fetch"

    def __init__(self, keys: Sequence[str], timeout_ms: int = 1000) -> None:
        self.keys = keys
        self.timeout_ms = timeout_ms
        self.ready = False
        self.looked = 0
        self.answers: list[str] = []

    def try_complete(self) -> Response | None:
        self.looked += 1
        return Response(message="ready") if self.ready else None

    def on_expire(self) -> Response:
        return Response(message="expired")

    def respond(self, response: Response) -> None:
        self.answers.append(response.message)


def nothing_left(purgatories: Purgatories) -> bool:
    return purgatories.sizes().get("Fetch", (0, 0)) == (0, 0) and not any(
        kind.watched for kind in purgatories._kinds.values()
    )


def test_answered_at_once_is_never_watched() -> None:
    purgatories = Purgatories(lambda: 0)
    op = Wait(["a"])
    op.ready = True
    purgatories.submit(op, op.respond)
    assert op.answers == ["ready"]
    assert nothing_left(purgatories)
    assert purgatories.check("Fetch", ["a"]) == 0


def test_no_time_to_wait_expires_at_once() -> None:
    purgatories = Purgatories(lambda: 0)
    op = Wait(["a"], timeout_ms=0)
    purgatories.submit(op, op.respond)
    assert op.answers == ["expired"]
    assert nothing_left(purgatories)


def test_only_its_kind_and_keys_make_it_look() -> None:
    purgatories = Purgatories(lambda: 0)
    op = Wait(["a", "b"])
    purgatories.submit(op, op.respond)
    op.ready = True
    assert purgatories.sizes() == {"Fetch": (2, 1)}
    assert purgatories.check("Produce", ["a"]) == 0
    assert purgatories.check("Fetch", ["c"]) == 0
    assert purgatories.check("Fetch", ["b", "a"]) == 1
    assert op.answers == ["ready"]
    assert nothing_left(purgatories)


def test_it_looks_once_however_many_of_its_keys_have_news() -> None:
    purgatories = Purgatories(lambda: 0)
    ops = [Wait(["a", "b", "c"]), Wait(["c"])]
    for op in ops:
        purgatories.submit(op, op.respond)
    before = [op.looked for op in ops]
    assert purgatories.check("Fetch", ["a", "b", "c"]) == 0
    assert [op.looked - n for op, n in zip(ops, before, strict=True)] == [1, 1]
    ops[1].ready = True
    assert purgatories.check("Fetch", ["a", "b", "c"]) == 1


def test_an_exception_ends_it_and_is_handed_on() -> None:
    class Broken(Wait):
        def try_complete(self) -> Response | None:
            if self.ready:
                raise ValueError("broken")
            return None

    purgatories = Purgatories(lambda: 0)
    op = Broken(["a"])
    failures: list[str] = []
    purgatories.submit(op, op.respond, lambda exc: failures.append(str(exc)))
    op.ready = True
    assert purgatories.check("Fetch", ["a"]) == 1
    assert failures == ["broken"]
    assert op.answers == []
    assert nothing_left(purgatories)


@pytest.mark.thorough
@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from("abcd"), unique=True), st.integers(1, 50)), max_size=12
    ),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 9)), max_size=20),
)
def test_exactly_once(ops: list[tuple[list[str], int]], events: list[tuple[int, int]]) -> None:
    now = 0
    purgatories = Purgatories(lambda: now)
    waiting = [Wait(keys, timeout_ms) for keys, timeout_ms in ops]
    for op in waiting:
        purgatories.submit(op, op.respond)
    for which, passed in [*events, (99, 60)]:
        now += passed
        if purgatories._wheel is not None:
            purgatories._wheel.advance(now)
        if which < len(waiting):
            waiting[which].ready = True
            purgatories.check("Fetch", "abcd")
    assert all(len(op.answers) == 1 for op in waiting)
    assert nothing_left(purgatories)


async def test_one_task_expires_them_all_in_time(autojump_clock: trio.testing.MockClock) -> None:
    purgatories = Purgatories()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(purgatories.run)
        await trio.testing.wait_all_tasks_blocked()
        start = trio.current_time()
        ended: dict[int, float] = {}
        for timeout_ms in (30_000, 7, 500, 501):
            op = Wait(["a"], timeout_ms)

            def respond(response: Response, timeout_ms: int = timeout_ms) -> None:
                ended[timeout_ms] = trio.current_time() - start

            purgatories.submit(op, respond)
        await trio.sleep(31)
        for timeout_ms, after in ended.items():
            assert timeout_ms - 1 <= after * 1000 <= timeout_ms + 1.1
        assert list(ended) == [7, 500, 501, 30_000]
        assert purgatories.expirations() == {"Fetch": 4}
        nursery.cancel_scope.cancel()


async def test_many_appends_wake_a_waiting_fetch_once() -> None:
    purgatories = Purgatories()
    sink = CompletionSink(purgatories)
    op = Wait(["a", "b"])
    purgatories.submit(op, op.respond)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sink.run)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(100):
            sink.add("Fetch", ["a"])
        await trio.testing.wait_all_tasks_blocked()
        assert op.looked == 2  # when submitted, and once for the hundred
        op.ready = True
        sink.add("Fetch", ["b"])
        await trio.testing.wait_all_tasks_blocked()
        assert op.answers == ["ready"]
        nursery.cancel_scope.cancel()
