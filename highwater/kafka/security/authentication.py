"""One connection's authentication, as a machine without input or output.

    versions or handshake -> handshake -> tokens -> complete -> (handshake -> tokens -> complete)

`refuses` is asked for each request before it is handled: until the client is known only
ApiVersions, SaslHandshake and SaslAuthenticate pass, so that a stranger reaches no other code.
Where connections.max.reauth.ms is set, a session ends: the client authenticates again before that,
as the same user by the same mechanism, or its next request closes the connection (KIP-368).

Source: org.apache.kafka.common.security.authenticator.SaslServerAuthenticator, KafkaChannel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.header import API_VERSIONS, api_name

HANDSHAKE, AUTHENTICATE = 17, 36
ANONYMOUS = "User:ANONYMOUS"
_REAUTHENTICATION_PAUSE_MS = 1000
_SHOWN = 500


def _one_line(reason: str) -> str:
    """A client's own words may be in it: they end no line of the log, and fill none."""
    shown = reason if reason.isprintable() else ascii(reason)[1:-1]
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


class Refused(Exception):
    """The client is not who it claims to be.  `told`: the message it gets, None for the general
    one; True is the reason itself."""

    def __init__(self, reason: str, *, told: bool | str = False) -> None:
        super().__init__(reason)
        self.told = told if isinstance(told, str) else reason if told else None


class Exchange(Protocol):
    user: str | None
    """The user, once it is proved."""
    lifetime_ms: int | None
    """How long the proof holds, as the exchange itself says; None: for ever."""
    by_token: bool
    """Whether it is proved by a delegation token, whose user cannot request further tokens."""

    def step(self, token: bytes) -> bytes:
        """Raises Refused."""


class State(Enum):
    HANDSHAKE = "handshake"
    TOKENS = "authentication"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """A listener's mechanisms: for each a new exchange, and how long its sessions last (ms; 0: for
    ever).
    """

    exchanges: Mapping[str, Callable[[], Exchange]]
    lifetimes: Mapping[str, int]
    max_receive: int
    failure_delay_ms: int


@dataclass(frozen=True, slots=True)
class Answer:
    """To SaslHandshake or SaslAuthenticate; after an error the connection is closed."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    token: bytes = b""
    lifetime_ms: int = 0
    log: str = ""
    """Why it failed, for the broker's log."""


class Authentication:
    def __init__(self, settings: SaslSettings) -> None:
        self.settings = settings
        self.state = State.HANDSHAKE
        self.principal = ANONYMOUS
        self.by_token = False
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._before: tuple[str, str] | None = None
        """Mechanism and principal of the session that is renewed."""
        self._expires_ms: int | None = None
        self._renewed_ms: int | None = None

    @property
    def complete(self) -> bool:
        return self.state is State.COMPLETE

    @property
    def known(self) -> bool:
        """Whether the client was authenticated at least once."""
        return self.principal != ANONYMOUS

    @property
    def mechanisms(self) -> list[str]:
        return list(self.settings.exchanges)

    def refuses(self, api_key: int, now_ms: int) -> str | None:
        """Why this request closes the connection; None if it may be handled."""
        if self.complete:
            if api_key == HANDSHAKE and self._may_renew(now_ms):
                self._before = (self._mechanism, self.principal)
                self.state = State.HANDSHAKE
            elif self._expires_ms is not None and now_ms > self._expires_ms:
                return "its session has expired, and it did not authenticate again"
            return None
        allowed = (AUTHENTICATE,) if self.state is State.TOKENS else (API_VERSIONS, HANDSHAKE)
        if self.state is not State.FAILED and api_key in allowed:
            return None
        return f"unexpected {api_name(api_key)} request during SASL {self.state.value}"

    def _may_renew(self, now_ms: int) -> bool:
        if self._renewed_ms is not None and now_ms - self._renewed_ms < _REAUTHENTICATION_PAUSE_MS:
            return False
        self._renewed_ms = now_ms
        return True

    def handshake(self, mechanism: str, version: int) -> Answer:
        if self.state is not State.HANDSHAKE:
            return Answer(ErrorCode.ILLEGAL_SASL_STATE)
        if version == 0:
            self.state = State.FAILED
            why = "SaslHandshake v0, after which tokens come without headers"
            return Answer(ErrorCode.UNSUPPORTED_VERSION, log=why)
        make = self.settings.exchanges.get(mechanism)
        if make is None:
            self.state = State.FAILED
            why = f"SASL mechanism {mechanism[:_SHOWN]!r} is not enabled"
            return Answer(ErrorCode.UNSUPPORTED_SASL_MECHANISM, log=why)
        self._mechanism, self._exchange, self.state = mechanism, make(), State.TOKENS
        return Answer()

    def authenticate(self, token: bytes, now_ms: int) -> Answer:
        if self.state is not State.TOKENS:
            message = "SaslAuthenticate request received after successful authentication"
            return Answer(ErrorCode.ILLEGAL_SASL_STATE, message)
        assert self._exchange is not None
        try:
            self._check_mechanism()
            answer = self._exchange.step(token)
            if self._exchange.user is None:
                return Answer(token=answer)
            self._check_principal(f"User:{self._exchange.user}")
        except Refused as exc:
            self.state = State.FAILED
            phase = "authentication" if self._before is None else "re-authentication"
            general = (
                f"Authentication failed during {phase} due to invalid credentials "
                f"with SASL mechanism {self._mechanism}"
            )
            log = f"{phase} by {self._mechanism} failed: {_one_line(str(exc))}"
            return Answer(ErrorCode.SASL_AUTHENTICATION_FAILED, exc.told or general, log=log)
        self.principal = f"User:{self._exchange.user}"
        self.by_token = self._exchange.by_token
        lifetime_ms = max(self.settings.lifetimes.get(self._mechanism, 0), 0)
        own_ms = self._exchange.lifetime_ms
        if own_ms is not None:
            lifetime_ms = min(own_ms, lifetime_ms) if lifetime_ms else own_ms
        self._exchange, self.state = None, State.COMPLETE
        self._expires_ms = now_ms + lifetime_ms if lifetime_ms > 0 else None
        return Answer(token=answer, lifetime_ms=lifetime_ms)

    def _check_mechanism(self) -> None:
        if self._before is not None and self._before[0] != self._mechanism:
            raise Refused(
                f"SASL mechanism '{self._mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{self._before[0]}'",
                told=True,
            )

    def _check_principal(self, principal: str) -> None:
        if self._before is not None and self._before[1] != principal:
            before, now = (p.replace(":", ".", 1) for p in (self._before[1], principal))
            raise Refused(
                f"Cannot change principals during re-authentication from {before}: {now}",
                told=True,
            )
