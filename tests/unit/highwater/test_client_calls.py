"""Calls of client libraries that do not return: the one who waits goes on, and names them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from highwater.client_calls import ClientHangs, apart, within


class Client:
    def __init__(self) -> None:
        self.let_go = threading.Event()

    def close(self, value: int) -> int:
        self.let_go.wait()
        return value

    def refuses(self) -> None:
        raise KeyError("no")


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    yield made
    made.let_go.set()


TOLD = "feeding orders: Client.close has not returned within 0.05 s"


async def test_apart_names_the_phase_and_the_call(client: Client) -> None:
    with pytest.raises(ClientHangs) as late:
        await apart("feeding orders", 0.05, client.close, 7)
    assert str(late.value) == TOLD


async def test_apart_gives_what_the_call_gives(client: Client) -> None:
    client.let_go.set()
    assert await apart("feeding orders", 30, client.close, 7) == 7
    with pytest.raises(KeyError):
        await apart("feeding orders", 30, client.refuses)


async def test_the_loop_goes_on_meanwhile(client: Client) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(apart, "feeding orders", 30, client.close, 7)
        await trio.testing.wait_all_tasks_blocked()
        client.let_go.set()


def test_within_names_the_phase_and_the_call(client: Client) -> None:
    with pytest.raises(ClientHangs) as late:
        within("feeding orders", 0.05, client.close, 7)
    assert str(late.value) == TOLD


def test_within_gives_what_the_call_gives(client: Client) -> None:
    client.let_go.set()
    assert within("feeding orders", 30, client.close, 7) == 7
    with pytest.raises(KeyError):
        within("feeding orders", 30, client.refuses)
