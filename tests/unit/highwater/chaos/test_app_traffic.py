"""The feeder and the watcher of `highwater chaos --app`, by clients that need the loop, or hang."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, ClassVar

import pytest
import trio
import trio.testing

from highwater.chaos import app_traffic
from highwater.chaos.aimed import following
from highwater.chaos.app_traffic import Feeder, Watcher
from highwater.client_calls import ClientHangs

SOURCE = {"place": "json", "path": ["id"], "of": "value", "confluent": False}
PATIENT_S = 5.0


class StandIn:
    """A client whose calls do what the test says, and nothing else."""

    does: ClassVar[dict[str, Callable[[], object]]] = {}
    begun: ClassVar[set[str]] = set()

    def __init__(self, settings: dict[str, Any]) -> None:
        self._does = self.does  # the garbage of a test must not do what the next one says

    def _call(self, name: str) -> Any:
        self.begun.add(name)
        return self._does.get(name, lambda: None)()

    def assign(self, places: object) -> None:
        self._call("assign")

    def consume(self, count: int, timeout: float) -> list[Any]:
        return self._call("consume") or []

    def poll(self, timeout: float) -> None:
        assert timeout == 0, "the loop waits"
        self._call("poll")

    def produce(self, *record: object, on_delivery: object) -> None:
        self._call("produce")

    def __len__(self) -> int:
        return self._call("__len__") or 0

    def flush(self, timeout: float) -> None:
        raise AssertionError("it would tell of deliveries in its own thread")

    def close(self) -> None:
        self._call("close")

    def __del__(self) -> None:
        self._call("__del__")


@pytest.fixture
def does(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Callable[[], object]]]:
    monkeypatch.setattr(following, "Consumer", StandIn)
    monkeypatch.setattr(app_traffic, "Producer", StandIn)
    for module in (following, app_traffic):
        monkeypatch.setattr(module, "SOON_S", 0.1)
    monkeypatch.setattr(app_traffic, "FLUSH_S", 0.1)
    StandIn.does, StandIn.begun = {}, set()
    yield StandIn.does
    StandIn.does = {}


@pytest.fixture
def forever() -> Iterator[Callable[[], object]]:
    """Returns when the test is over."""
    over = threading.Event()
    yield over.wait
    over.set()


@pytest.fixture
def needs_the_loop(monkeypatch: pytest.MonkeyPatch) -> Callable[[], object]:
    """Waits for an answer that the test's loop carries; a loop that waits for it is not served."""
    monkeypatch.setattr(app_traffic, "FLUSH_S", PATIENT_S)
    for module in (following, app_traffic):
        monkeypatch.setattr(module, "SOON_S", PATIENT_S)

    def call() -> None:
        with socket.create_connection(("127.0.0.1", ECHO[0]), PATIENT_S) as client:
            client.sendall(b"?")
            client.settimeout(PATIENT_S)
            assert client.recv(1) == b"?"

    return call


ECHO = [0]


async def echo(stream: trio.SocketStream) -> None:
    with suppress(trio.BrokenResourceError):
        await stream.send_all(await stream.receive_some(1))


async def carrying(nursery: trio.Nursery) -> None:
    """The proxies in this test's place: they live on the loop."""
    listeners = await nursery.start(trio.serve_tcp, echo, 0)
    ECHO[0] = listeners[0].socket.getsockname()[1]


def a_watcher() -> Watcher:
    return Watcher("127.0.0.1:1", "invoices", 3, SOURCE)


async def fed(feeder: Feeder) -> None:
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feeder.feed, 100.0, stop)
        while feeder.sent < 3:
            await trio.sleep(0.01)
        stop.set()


async def watched(watcher: Watcher) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watcher.watch)
        while not StandIn.begun & {"assign", "consume"}:
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("call", ["assign", "consume", "close"])
async def test_what_the_watchers_client_waits_for_comes_over_the_loop(
    does: dict[str, Any], needs_the_loop: Any, call: str
) -> None:
    does[call] = needs_the_loop
    watcher = a_watcher()
    async with trio.open_nursery() as nursery:
        await carrying(nursery)
        with trio.fail_after(2 * PATIENT_S):
            await watched(watcher)
        nursery.cancel_scope.cancel()
    assert watcher.left == []


async def test_what_the_feeders_client_waits_for_comes_over_the_loop(
    does: dict[str, Any], needs_the_loop: Any
) -> None:
    failed: list[BaseException] = []

    def noted() -> None:
        try:
            needs_the_loop()
        except BaseException as error:  # __del__ passes none on
            failed.append(error)

    does["__del__"] = noted
    feeder = Feeder("127.0.0.1:1", "orders", "r1", ["id"])
    async with trio.open_nursery() as nursery:
        await carrying(nursery)
        with trio.fail_after(2 * PATIENT_S):
            await fed(feeder)
        nursery.cancel_scope.cancel()
    assert (feeder.left, failed) == ([], [])


@pytest.mark.parametrize("call", ["assign", "consume"])
async def test_a_watcher_whose_client_does_not_return_ends_the_run(
    does: dict[str, Any], forever: Any, call: str
) -> None:
    does[call] = forever
    watcher = a_watcher()
    with trio.fail_after(PATIENT_S), pytest.raises(ClientHangs) as late:
        await watcher.watch()
    assert str(late.value) == f"watching invoices: StandIn.{call} has not returned within 0.1 s"


async def test_a_watcher_that_cannot_close_is_left_behind(
    does: dict[str, Any], forever: Any
) -> None:
    does["close"] = forever
    watcher = a_watcher()
    with trio.fail_after(PATIENT_S):
        await watched(watcher)
    assert watcher.left == ["watching invoices: StandIn.close has not returned within 0.1 s"]


async def test_what_is_under_way_at_the_end_is_told_on_the_loop(
    does: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_traffic, "FLUSH_S", PATIENT_S)
    reports: list[Callable[[object, object], None]] = []

    offsets = iter((0, None))

    class Message:
        partition = staticmethod(lambda: 0)
        offset = staticmethod(lambda: next(offsets, 7))

    def produce(self: StandIn, *record: object, on_delivery: Any) -> None:
        reports.append(on_delivery)

    def poll() -> None:
        if feeder.sent >= 3 and reports:
            reports.pop(0)(None, Message())

    monkeypatch.setattr(StandIn, "produce", produce)
    does |= {"poll": poll, "__len__": lambda: len(reports)}
    times: list[float] = []
    feeder = Feeder("127.0.0.1:1", "orders", "r1", ["id"])
    feeder.tell = lambda id_, partition, offset: times.append(trio.current_time())
    with trio.fail_after(PATIENT_S):
        await fed(feeder)
    assert len(times) == feeder.sent - 1, "where one of them stands was not told"
    assert feeder.sent == len(feeder.acknowledged) >= 3


async def test_what_nothing_is_told_of_is_waited_for_within_a_limit(does: dict[str, Any]) -> None:
    does["__len__"] = lambda: 1
    feeder = Feeder("127.0.0.1:1", "orders", "r1", ["id"])
    with trio.fail_after(PATIENT_S):
        await fed(feeder)
    assert feeder.left == []
    assert feeder.unknown == feeder.sent >= 3


async def test_a_producer_does_not_end_on_the_loop_where_no_thread_has_begun(
    does: dict[str, Any], forever: Any
) -> None:
    """Beside a busy core the thread that was to end it began after the limit."""
    does["__del__"] = forever
    feeder = Feeder("127.0.0.1:1", "orders", "r1", ["id"])
    threads = trio.to_thread.current_default_thread_limiter()
    held = []
    while threads.available_tokens:
        held.append(object())
        threads.acquire_on_behalf_of_nowait(held[-1])
    try:
        with trio.fail_after(PATIENT_S):
            await fed(feeder)
    finally:
        for one in held:
            threads.release_on_behalf_of(one)
    assert feeder.left == ["feeding orders: destroy has not returned within 0.1 s"]


async def test_a_feeder_that_cannot_end_is_left_behind(does: dict[str, Any], forever: Any) -> None:
    does["__del__"] = forever
    feeder = Feeder("127.0.0.1:1", "orders", "r1", ["id"])
    with trio.fail_after(PATIENT_S):
        await fed(feeder)
    assert feeder.left == ["feeding orders: destroy has not returned within 0.1 s"]
    assert feeder.unknown == feeder.sent >= 3
