"""A ZooKeeper session whose server has fallen silent, like a paused process."""

from __future__ import annotations

import struct
import threading
from contextlib import suppress
from typing import Any

import pytest
import trio

from highwater.world.api import ConnectionLoss, SessionExpired
from highwater.world.real.zookeeper import open_zookeeper

SESSION_MS = 3000


class SilentServer:
    """Accepts sessions, and answers nothing else."""

    def __init__(self, lost: int = 0, delay_s: float = 0) -> None:
        """The first Connects are `lost`; the answers to the others come after a while."""
        self.asked = trio.Event()
        self.connects = 0
        self._lost, self._delay_s = lost, delay_s

    async def serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()  # Connect
            self.connects += 1
            if self.connects <= self._lost:
                await stream.receive_some()
                return
            await trio.sleep(self._delay_s)
            password = struct.pack(">i16s", 16, bytes(16))
            body = struct.pack(">iiq", 0, SESSION_MS, 7) + password + b"\0"
            await stream.send_all(struct.pack(">i", len(body)) + body)
            while await stream.receive_some():
                self.asked.set()


@pytest.fixture
def uncaught(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The exceptions with which threads fail."""
    found: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: found.append(repr(args.exc_value)))
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("lost", "delay_s", "connects"),
    [(0, 0, 1), (1, 0, 2), (0, 1.5, 2)],
)
def test_a_connect_that_is_lost_is_sent_again(lost: int, delay_s: float, connects: int) -> None:
    """A ZooKeeper that is just starting may lose it; a busy one answers late."""

    async def main() -> None:
        server = SilentServer(lost, delay_s)
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, _politely(server), 0)
            port = listeners[0].socket.getsockname()[1]
            with trio.fail_after(8):
                async with open_zookeeper(f"127.0.0.1:{port}", 18_000, 18_000) as zk:
                    assert zk.session_id == 7
            assert server.connects == connects
            nursery.cancel_scope.cancel()

    trio.run(main)


def _politely(server: SilentServer) -> Any:
    async def serve(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):  # the caller has gone
            await server.serve(stream)

    return serve


@pytest.mark.thorough
def test_closing_ends_what_still_waits_for_an_answer(uncaught: list[str]) -> None:
    ended: list[str] = []

    async def ask(zk: Any) -> None:
        try:
            await zk.get("/somewhere")
        except (ConnectionLoss, SessionExpired) as error:
            ended.append(type(error).__name__)

    async def main() -> None:
        server = SilentServer()
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, server.serve, 0)
            port = listeners[0].socket.getsockname()[1]
            with trio.fail_after(20):
                address = f"127.0.0.1:{port}"
                async with (
                    open_zookeeper(address, SESSION_MS, SESSION_MS) as zk,
                    trio.open_nursery() as asking,
                ):
                    asking.start_soon(ask, zk)
                    await server.asked.wait()
                    await zk.close()
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert ended == ["ConnectionLoss"] or ended == ["SessionExpired"]
    assert uncaught == []
