"""The server's and the client's side of each SASL mechanism: PLAIN and SCRAM (by scramp).

A server's exchange takes the client's tokens one by one and gives its own; `done` is the user.  A
client's gives the first token, and then one for each of the server's.

Source: PlainSaslServer, ScramSaslServer and their clients in
org.apache.kafka.common.security.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Protocol, cast

from scramp import ScramException, ScramMechanism
from scramp.core import ScramClient, ScramServer

from highwater.kafka.security.authentication import Refused
from highwater.kafka.security.delegation_tokens import TokenLogin
from highwater.kafka.security.scram_users import MECHANISMS, Credential

SCRAM_MECHANISMS = tuple(MECHANISMS.values())
BUILT = ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER")
BETWEEN_BROKERS = ("PLAIN", *SCRAM_MECHANISMS)
"""The mechanisms by which a broker can log in to another one."""
Find = Callable[[str], Credential | None]
FindToken = Callable[[str], TokenLogin | None]
_HEADER, _KNOWN = 2, 4
"""Parts of a client's first message of SCRAM: its header, and all that are no extensions."""
_BY_TOKEN = "tokenauth=true"


def no_token(token_id: str) -> TokenLogin | None:
    """Finds no token: used where brokers have no secret key for tokens."""
    return None


class PlainExchange:
    """One token: authorization id, user and password, with NUL between them."""

    lifetime_ms: int | None = None
    by_token = False

    def __init__(self, users: Mapping[str, str]) -> None:
        self.user: str | None = None
        self._users = users

    def step(self, token: bytes) -> bytes:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            parts = []
        if len(parts) != 3:
            raise Refused(f"a PLAIN token of {len(parts)} parts")
        authorization, user, password = parts
        for name, value in (("username", user), ("password", password)):
            if not value:
                raise Refused(f"Authentication failed: {name} not specified", told=True)
        known = self._users.get(user)
        if known is None or not hmac.compare_digest(known.encode(), password.encode()):
            raise Refused("Authentication failed: Invalid username or password", told=True)
        if authorization not in ("", user):
            raise Refused(
                "Authentication failed: Client requested an authorization id that is different "
                "from username",
                told=True,
            )
        self.user = user
        return b""


class ScramExchange:
    """Two tokens: the client's first and its proof.  The first may say that the user is a
    delegation token's id."""

    def __init__(self, mechanism: str, find: Find, find_token: FindToken = no_token) -> None:
        self.user: str | None = None
        self.lifetime_ms: int | None = None
        self.by_token = False
        self._claimed = ""
        self._find = find
        self._find_token = find_token
        self._server: ScramServer = ScramMechanism(mechanism).make_server(self._look_up)
        self._first = True

    def _look_up(self, user: str) -> tuple[bytes, bytes, bytes, int] | None:
        if not self.by_token:
            self._claimed = user
            found = self._find(user)
            return None if found is None else tuple(found)  # type: ignore[return-value]
        login = self._find_token(user)
        if login is None:
            raise Refused(f"no delegation token has the id {user}, or it has expired")
        self._claimed = login.owner.partition(":")[2]
        self.lifetime_ms = login.lifetime_ms
        return tuple(login.credential)  # type: ignore[return-value]

    def step(self, token: bytes) -> bytes:
        try:
            text = token.decode()
            if self._first:
                self._first = False
                self._take_first(text)
                return cast("str", self._server.get_server_first()).encode()
            self._server.set_client_final(text)
            answer = cast("str", self._server.get_server_final()).encode()
        except (ScramException, ValueError) as exc:
            raise Refused(str(exc)) from exc
        self.user = self._claimed
        return answer

    def _take_first(self, text: str) -> None:
        """`n,,n=USER,r=NONCE,tokenauth=true`: scramp knows no such extensions, but they are part of
        what the client proves."""
        parts = text.split(",")
        self.by_token = any(one.lower() == _BY_TOKEN for one in parts[_KNOWN:])
        self._server.set_client_first(",".join(parts[:_KNOWN]))
        self._server.client_first_bare = ",".join(parts[_HEADER:])


class Answers(Protocol):
    """A client's side."""

    def first(self) -> bytes: ...

    def next(self, token: bytes) -> bytes | None:
        """None: the server has proved itself, and nothing is left to send.  Raises Refused."""


class PlainAnswers:
    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def next(self, token: bytes) -> bytes | None:
        return None


class ScramAnswers:
    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self._client = ScramClient([mechanism], user, password)
        self._proved = False

    def first(self) -> bytes:
        return cast("str", self._client.get_client_first()).encode()

    def next(self, token: bytes) -> bytes | None:
        try:
            if self._proved:
                self._client.set_server_final(token.decode())
                return None
            self._client.set_server_first(token.decode())
            self._proved = True
            return cast("str", self._client.get_client_final()).encode()
        except (ScramException, ValueError) as exc:
            raise Refused(f"the broker does not prove that it knows this user: {exc}") from exc


def client_side(mechanism: str, user: str, password: str) -> Answers:
    if mechanism == "PLAIN":
        return PlainAnswers(user, password)
    return ScramAnswers(mechanism, user, password)
