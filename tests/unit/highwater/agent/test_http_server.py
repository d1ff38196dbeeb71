"""The HTTP server on a port of this machine: what is bounded, and what is refused."""

from __future__ import annotations

import http.client
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from highwater.agent.client import Control, ControlError
from highwater.agent.control_token import keep_token, known_token, token_of
from highwater.agent.errors import ControlError as Refusal
from highwater.agent.http_server import LARGEST_BODY, MOST_CONNECTIONS, Call, HttpServer
from highwater.child_processes import StartError


async def echo(call: Call) -> dict[str, Any]:
    if call.target == "/refused":
        raise Refusal("refused", "not so", {"why": "so"})
    return {"method": call.method, "target": call.target, "size": len(call.body)}


@asynccontextmanager
async def served(host: str = "127.0.0.1", token: str = "") -> AsyncIterator[int]:
    async with trio.open_nursery() as nursery:
        server = await HttpServer.listen(echo, 0, host, token)
        nursery.start_soon(server.serve)
        yield server.listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def ask(work: Callable[[], Any]) -> Any:
    with trio.fail_after(30):
        return await trio.to_thread.run_sync(work)


async def exchange(port: int, data: bytes) -> tuple[int, dict[str, Any]]:
    """The answer to these bytes."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        with trio.fail_after(30):
            await stream.send_all(data)
            got = b""
            while True:
                head, found, body = got.partition(b"\r\n\r\n")
                if found and body.endswith(b"\n"):
                    return int(head.split()[1]), json.loads(body)
                more = await stream.receive_some(65536)
                assert more, got
                got += more


async def test_one_connection_serves_one_call_after_another() -> None:
    async with served() as port:
        connection = http.client.HTTPConnection("127.0.0.1", port)

        def calls() -> list[dict[str, Any]]:
            answers = []
            for number in range(3):
                connection.request("POST", f"/x?n={number}", b"x" * 100_000)
                answers.append(json.loads(connection.getresponse().read()))
            connection.close()
            return answers

        assert await ask(calls) == [
            {"method": "POST", "target": f"/x?n={n}", "size": 100_000} for n in range(3)
        ]


async def test_an_error_has_its_status_kind_and_state() -> None:
    async with served() as port:
        control = Control(f"http://127.0.0.1:{port}")

        def call() -> None:
            control.call("GET", "/refused")

        with pytest.raises(ControlError) as error:
            await ask(call)
        assert (error.value.kind, error.value.message) == ("refused", "not so")
        assert error.value.state == {"why": "so"}
        status, answer = await exchange(port, b"GET /refused HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (status, answer["error"]["kind"]) == (409, "refused")


@pytest.mark.parametrize(
    ("data", "status", "said"),
    [
        (b"what is this\r\n\r\n", 400, "no HTTP request"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "no HTTP request: Missing mandatory Host"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nOrigin: http://evil\r\n\r\n", 409, "web pages"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n" + b"x" * 2_000_000, 400,
         f"a body of more than {LARGEST_BODY} bytes"),
    ],
    ids=["nonsense", "no host", "a page", "too large"],
)  # fmt: skip
async def test_what_is_no_proper_call_is_refused(data: bytes, status: int, said: str) -> None:
    async with served() as port:
        got, answer = await exchange(port, data)
        assert got == status
        assert said in answer["error"]["message"]


async def test_one_connection_too_many_is_told_so() -> None:
    async with served() as port, trio.open_nursery() as nursery:
        streams = []
        for _ in range(MOST_CONNECTIONS):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await stream.receive_some(10)
            streams.append(stream)
        status, answer = await exchange(port, b"")
        assert (status, answer["error"]["message"]) == (503, "64 connections are open")
        for stream in streams:
            await stream.aclose()
        nursery.cancel_scope.cancel()


async def test_a_port_in_use_is_one_line() -> None:
    async with served() as port:
        with pytest.raises(Exception, match=f"the control API cannot listen on port {port}"):
            await HttpServer.listen(echo, port)


@pytest.mark.parametrize(
    "header",
    ["", "Bearer wrong", "Basic 0123456789abcdef", "Bearer", "Bearer 0123456789abcde"],
)
async def test_a_call_without_the_token_is_refused(header: str) -> None:
    async with served(token="0123456789abcdef") as port:
        line = f"Authorization: {header}\r\n" if header else ""
        status, body = await exchange(port, f"GET / HTTP/1.1\r\nHost: h\r\n{line}\r\n".encode())
        assert status == 401
        assert body["error"]["kind"] == "unauthorized"
        assert "Authorization: Bearer TOKEN" in body["error"]["message"]
        control = Control(f"http://127.0.0.1:{port}", "0123456789abcdef")
        assert (await ask(control.status))["target"] == "/v1/status"
        await ask(control.close)


async def test_beyond_loopback_there_is_always_a_token() -> None:
    async with served("0.0.0.0") as port:
        assert (await exchange(port, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"))[0] == 401
    with pytest.raises(StartError, match="needs 16 printable"):
        await HttpServer.listen(echo, 0, "0.0.0.0", "short")


def test_a_made_token_is_kept_in_a_file_that_only_its_user_reads(tmp_path: Path) -> None:
    made = known_token(tmp_path, "0.0.0.0", "")
    keep_token(tmp_path, made)
    assert (tmp_path / "control-token").stat().st_mode & 0o777 == 0o600
    assert token_of(tmp_path) == made == known_token(tmp_path, "0.0.0.0", "") != ""
    assert known_token(tmp_path, "0.0.0.0", "0123456789abcdef") == "0123456789abcdef"
    assert known_token(tmp_path, "127.0.0.1", "") == ""
    keep_token(tmp_path, "")
    assert token_of(tmp_path) == ""
