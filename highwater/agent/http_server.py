"""HTTP/1.1 on a port of this machine: h11 speaks the protocol, and this module moves its bytes.

It is bounded: a number of connections, a body of a mebibyte, a minute without a request.  A request
with an Origin is refused, because only a web page sends one, and no web page should be able to
break a cluster.  Where there is a token, each request must carry it (RFC 6750: `Authorization:
Bearer TOKEN`).
"""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import h11
import trio

from highwater.agent.control_token import BadToken, token_for
from highwater.agent.errors import STATUS, ControlError
from highwater.child_processes import StartError

HOST = "127.0.0.1"
MOST_CONNECTIONS = 64
LARGEST_BODY = 1 << 20
IDLE_S = 60.0
_READ = 65536


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it came."""

    method: str
    target: str
    body: bytes


Answer = Callable[[Call], Awaitable[dict[str, Any]]]
"""Gives the answer's JSON; raises ControlError, and nothing else."""


class HttpServer:
    """`answer` may be exchanged between two calls."""

    def __init__(
        self, answer: Answer, listeners: list[trio.SocketListener], token: str = ""
    ) -> None:
        self.answer = answer
        self.token = token
        self.listeners = listeners
        self._connections = 0

    @classmethod
    async def listen(
        cls, answer: Answer, port: int, host: str = HOST, token: str = ""
    ) -> HttpServer:
        """A server that listens on a port (0: any), with a token if it listens beyond loopback;
        StartError where the port is in use.  Callers can connect now, and wait for `serve`."""
        try:
            token = token_for(host, token)
            return cls(answer, await trio.open_tcp_listeners(port, host=host), token)
        except BadToken as error:
            raise StartError(str(error)) from None
        except OSError as error:
            raise StartError(
                f"the control API cannot listen on {f'port {port} of ' if port else ''}{host}:"
                f" {error.strerror or error}; name another port or an address of this machine"
            ) from error

    @property
    def url(self) -> str:
        """The server's URL for programs on this machine."""
        host, port = self.listeners[0].socket.getsockname()[:2]
        if ipaddress.ip_address(host).is_unspecified:
            host = HOST
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def serve(self) -> None:
        await trio.serve_listeners(self._connection, self.listeners)

    async def _connection(self, stream: trio.SocketStream) -> None:
        self._connections += 1
        try:
            async with stream:
                connection = h11.Connection(h11.SERVER)
                if self._connections > MOST_CONNECTIONS:
                    too_many = ControlError("refused", f"{MOST_CONNECTIONS} connections are open")
                    await _respond(connection, stream, 503, too_many.as_json())
                    return
                while await self._exchange(connection, stream):
                    if connection.our_state is not h11.DONE:
                        return
                    connection.start_next_cycle()
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.LocalProtocolError):
            pass  # the caller has gone
        finally:
            self._connections -= 1

    async def _exchange(self, connection: h11.Connection, stream: trio.SocketStream) -> bool:
        """Answers one request; returns whether another may follow on this connection."""
        try:
            call = None
            with trio.move_on_after(IDLE_S):
                call = await _request(connection, stream, self.token)
            if call is None:
                return False
            await _respond(connection, stream, 200, await self.answer(call))
            return True
        except h11.RemoteProtocolError as error:
            refused = ControlError("bad_request", f"no HTTP request: {error}")
            if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await _respond(connection, stream, 400, refused.as_json())
            return False
        except ControlError as error:
            await _respond(connection, stream, STATUS[error.kind], error.as_json())
            return True


async def _request(
    connection: h11.Connection, stream: trio.SocketStream, token: str
) -> Call | None:
    """The next request with its body; None where the caller has closed."""
    head: h11.Request | None = None
    body = bytearray()
    size = 0
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                await stream.send_all(connection.send(go_on))
            connection.receive_data(await stream.receive_some(_READ))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            size += len(event.data)
            if size <= LARGEST_BODY:
                body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            if size > LARGEST_BODY:
                raise ControlError("bad_request", f"a body of more than {LARGEST_BODY} bytes")
            if token and not _brings(head, token):
                raise ControlError(
                    "unauthorized",
                    "the control API's token is missing or wrong: send Authorization: Bearer TOKEN",
                )
            if any(name == b"origin" for name, _ in head.headers):
                raise ControlError("refused", "requests of web pages (Origin) are not answered")
            return Call(head.method.decode(), head.target.decode(), bytes(body))
        else:
            return None


def _brings(head: h11.Request, token: str) -> bool:
    given = [value for name, value in head.headers if name == b"authorization"]
    scheme, _, value = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
    return scheme.lower() == b"bearer" and hmac.compare_digest(value.strip(), token.encode())


async def _respond(
    connection: h11.Connection, stream: trio.SocketStream, status: int, answer: dict[str, Any]
) -> None:
    data = json.dumps(answer).encode() + b"\n"
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(data)))]
    if status == STATUS["unauthorized"]:
        headers.append(("WWW-Authenticate", "Bearer"))
    parts = (
        h11.Response(status_code=status, headers=headers),
        h11.Data(data=data),
        h11.EndOfMessage(),
    )
    await stream.send_all(b"".join(connection.send(part) or b"" for part in parts))
