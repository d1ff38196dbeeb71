"""A listener's SASL, and this broker's own login to other brokers, by the `sasl.*` properties.

PLAIN's users are the `user_NAME="password"` options of the JAAS entry.  SCRAM's are in ZooKeeper.
The entry of a broker's own login names its user: `username="…" password="…"`.  It is looked for at
`listener.name.NAME.MECHANISM.sasl.jaas.config`, then at the listener's and at the general
`sasl.jaas.config`, where its login module must be the mechanism's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any

from highwater.kafka.security.authentication import Exchange, Refused, SaslSettings
from highwater.kafka.security.delegation_tokens import DelegationTokens, TokenLogin
from highwater.kafka.security.jaas import OAUTH, PLAIN, SCRAM, JaasError, Login, parse_jaas
from highwater.kafka.security.mechanisms import (
    BETWEEN_BROKERS,
    BUILT,
    PlainExchange,
    ScramExchange,
    client_side,
)
from highwater.kafka.security.oauth import OAUTHBEARER, OAuthExchange, accepted_tokens
from highwater.kafka.wire.codec import decode_response, encode_request
from highwater.kafka.wire.header import request_header, response_body_position
from highwater.kafka.wire.messages import SaslAuthenticateRequest, SaslHandshakeRequest

if TYPE_CHECKING:
    from highwater.kafka.security.scram_users import ScramUsers
    from highwater.kafka.security.settings import ListenerSettings
    from highwater.world.api import Connection, World

_SIZE = Struct(">i")
_MAX_ANSWER = 65536
_CLIENT_ID = "broker"
ENABLED = "sasl.enabled.mechanisms"
BETWEEN = "sasl.mechanism.inter.broker.protocol"
JAAS = "sasl.jaas.config"
REAUTHENTICATION = "connections.max.reauth.ms"
NO_TOKENS = DelegationTokens("")


def sasl_settings(
    settings: ListenerSettings,
    users: ScramUsers,
    world: World | None = None,
    tokens: DelegationTokens = NO_TOKENS,
) -> SaslSettings:
    """`world`: the clock, and the files of OAUTHBEARER.  Raises ConfigError."""
    exchanges: dict[str, Callable[[], Exchange]] = {}
    lifetimes: dict[str, int] = {}
    for mechanism in settings.items(ENABLED):
        if mechanism not in BUILT:
            problem = f"{mechanism} is not built"
            raise settings.wrong(ENABLED, problem, f"use {', '.join(BUILT)}")
        lifetimes[mechanism] = int(settings.of_mechanism(mechanism, REAUTHENTICATION)[1])
        if mechanism == "PLAIN":
            login = jaas_login(settings, mechanism)
            exchanges[mechanism] = partial(PlainExchange, login.users)
        elif mechanism == OAUTHBEARER:
            assert world is not None
            options = jaas_login(settings, mechanism).options
            accepted = accepted_tokens(settings, world, options)
            exchanges[mechanism] = partial(OAuthExchange, accepted, world.clock.wall_ms)
        else:
            find_token = partial(_token_login, tokens, mechanism, world)
            find = partial(users.get, mechanism)
            exchanges[mechanism] = partial(ScramExchange, mechanism, find, find_token)
    receive, delay = "sasl.server.max.receive.size", "connection.failed.authentication.delay.ms"
    return SaslSettings(exchanges, lifetimes, int(settings.get(receive)), int(settings.get(delay)))


def _token_login(
    tokens: DelegationTokens, mechanism: str, world: World | None, token_id: str
) -> TokenLogin | None:
    if world is None or not tokens.enabled:
        return None
    return tokens.login(mechanism, token_id, world.clock.wall_ms())


def jaas_login(settings: ListenerSettings, mechanism: str) -> Login:
    """The mechanism's JAAS entry; raises ConfigError."""
    wanted = {"PLAIN": PLAIN, OAUTHBEARER: OAUTH}.get(mechanism, SCRAM)
    name, text = settings.of_mechanism(mechanism, JAAS)
    try:
        if not text:
            login_as = "" if mechanism == OAUTHBEARER else ' username="…" password="…"'
            example = f"{wanted} required{login_as};"
            raise JaasError(
                f"{mechanism} on listener {settings.listener} needs it; write {example}"
            )
        login = parse_jaas(text)
        if login.module != wanted:
            raise JaasError(f"{login.module} is not the login module of {mechanism}; use {wanted}")
    except JaasError as exc:
        own = f"{settings.own}{mechanism.lower()}.{JAAS}"
        raise settings.wrong_at(name if text else own, *str(exc).split("; ", 1)) from exc
    return login


class SaslLogin:
    """This broker's own login on a listener of others; raises ConfigError."""

    def __init__(self, settings: ListenerSettings) -> None:
        self._mechanism = settings.get(BETWEEN)
        enabled = settings.items(ENABLED)
        if self._mechanism not in enabled or self._mechanism not in BETWEEN_BROKERS:
            problem = f"not among {ENABLED} of listener {settings.listener}"
            if self._mechanism == OAUTHBEARER:
                problem = "brokers have no tokens of their own"
            choices = [m for m in enabled if m in BETWEEN_BROKERS] or BETWEEN_BROKERS
            raise settings.wrong(BETWEEN, problem, f"use {' or '.join(choices)}")
        for mechanism in enabled:
            name, text = settings.of_mechanism(mechanism, REAUTHENTICATION)
            if int(text) > 0:
                problem = f"brokers do not authenticate again on {settings.listener}, their own"
                raise settings.wrong_at(name, problem, "set it for the listeners of clients", text)
        options = jaas_login(settings, self._mechanism).options
        if not (options.get("username") and options.get("password")):
            name, _ = settings.of_mechanism(self._mechanism, JAAS)
            problem = f"listener {settings.listener} is used between brokers"
            raise settings.wrong_at(name, problem, 'add username="…" password="…"')
        self._user, self._password = options["username"], options["password"]

    async def authenticate(self, connection: Connection) -> None:
        """Raises OSError."""
        request: Any = SaslHandshakeRequest(mechanism=self._mechanism)
        answer = await _call(connection, request, 1)
        if answer.error_code:
            offered = ", ".join(answer.mechanisms)
            raise ConnectionAbortedError(f"the broker offers {offered}, not {self._mechanism}")
        exchange = client_side(self._mechanism, self._user, self._password)
        token: bytes | None = exchange.first()
        while token is not None:
            answer = await _call(connection, SaslAuthenticateRequest(auth_bytes=token), 1)
            if answer.error_code:
                raise ConnectionAbortedError(f"SASL login refused: {answer.error_message}")
            try:
                token = exchange.next(bytes(answer.auth_bytes))
            except Refused as exc:
                raise ConnectionAbortedError(str(exc)) from exc


async def _call(connection: Connection, request: Any, version: int) -> Any:
    key = request.API_KEY
    body = request_header(key, version, 0, _CLIENT_ID) + bytes(encode_request(request, version))
    left = memoryview(_SIZE.pack(len(body)) + body)
    while left:
        taken = connection.send([left])
        if taken is None:
            await connection.wait_writable()
        else:
            left = left[taken:]
    (size,) = _SIZE.unpack(await _receive(connection, 4))
    if not 4 <= size <= _MAX_ANSWER:
        raise ConnectionAbortedError(f"an answer of {size} bytes during the SASL login")
    frame = await _receive(connection, size)
    return decode_response(key, version, frame[response_body_position(key, version, frame) :])


async def _receive(connection: Connection, size: int) -> memoryview:
    whole = memoryview(bytearray(size))
    left = whole
    while left:
        n = connection.recv_into(left)
        if n is None:
            await connection.wait_readable()
        elif n == 0:
            raise ConnectionAbortedError("the broker closed the connection during the SASL login")
        else:
            left = left[n:]
    return whole
