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
        pass

    def _call(self, name: str) -> Any:
        self.begun.add(name)
        return self.does.get(name, lambda: None)()

    def assign(self, places: object) -> None:
        self._call("assign")

    def consume(self, count: int, timeout: float) -> list[Any]:
        return self._call("consume") or []

    def poll(self, timeout: float) -> None:
        assert timeout == 0, "the loop waits"

    def produce(self, *record: object, on_delivery: object) -> None:
        self._call("produce")

    def flush(self, timeout: float) -> None:
        self._call("flush")

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


@pytest.mark.parametrize("call", ["flush", "__del__"])
async def test_what_the_feeders_client_waits_for_comes_over_the_loop(
    does: dict[str, Any], needs_the_loop: Any, call: str
) -> None:
    failed: list[BaseException] = []

    def noted() -> None:
        try:
            needs_the_loop()
        except BaseException as error:  # __del__ passes none on
            failed.append(error)

    does[call] = noted
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


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("flush", "feeding orders: StandIn.flush has not returned within 0.2 s"),
        ("__del__", "feeding orders: destroy has not returned within 0.1 s"),
    ],
)
async def test_a_feeder_that_cannot_end_is_left_behind(
    does: dict[str, Any], forever: Any, call: str, told: str
) -> None:
    does[call] = forever
    feeder = Feeder("127.0.0.1:1", "orders", "r1", ["id"])
    with trio.fail_after(PATIENT_S):
        await fed(feeder)
    assert feeder.left == [told]
    assert feeder.unknown == feeder.sent >= 3
