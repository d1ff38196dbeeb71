"""The delegation tokens in ZooKeeper: read at the start, followed by watch, changed by any broker.

A change is announced by a sequential znode that names the token.  The broker that is the controller
removes tokens that have expired.

Source: kafka.server.DelegationTokenManagerZk, kafka.controller.KafkaController.
"""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence

import trio

from highwater.broker.settings.config_changes import Changes
from highwater.broker.settings.zookeeper_errors import zookeeper_errors
from highwater.kafka.config import Config
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.authentication import ANONYMOUS
from highwater.kafka.security.delegation_tokens import DelegationTokens, Token
from highwater.kafka.token_znodes import (
    TOKEN_CHANGES,
    TOKENS,
    decode_token,
    decode_token_change,
    encode_token,
    token_path,
)
from highwater.world.api import NodeExists, NoNode, World, ZkError, ZooKeeper

log = logging.getLogger(__name__)
_PREFIX = "token_change_"
_ID_BITS = 128


class TokenChanges:
    """Keeps `tokens` equal to those in ZooKeeper, for one session."""

    def __init__(self, zk: ZooKeeper, tokens: DelegationTokens) -> None:
        self._zk = zk
        self._tokens = tokens
        self.feeds = [Changes(zk, TOKEN_CHANGES, _PREFIX, self._changed)]

    async def load(self) -> None:
        """Reads all tokens.  Call it once a session, before serving."""
        for feed in self.feeds:
            await feed.skip_old()
        known = {token.id for token in self._tokens}
        for token_id in sorted(known | set(await self._zk.children(TOKENS))):
            await self._look(token_id)

    async def _changed(self, data: bytes) -> None:
        await self._look(decode_token_change(data))

    async def _look(self, token_id: str) -> None:
        path = token_path(token_id)
        try:
            data, _ = await self._zk.get(path)
            self._tokens.put(decode_token(path, data))
        except NoNode:
            self._tokens.forget(token_id)
        except ValueError as e:
            log.warning("a delegation token is not understood, and does not count: %s", e)
            self._tokens.forget(token_id)


def require_own_login(security_protocol: str, principal: str, by_token: bool) -> None:
    """Raises ApiError unless a certificate, or a login without a token, names the client."""
    stranger = security_protocol == "PLAINTEXT" or (
        security_protocol == "SSL" and principal == ANONYMOUS
    )
    if stranger or by_token:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def principals(owner: str, requester: str) -> dict[str, str]:
    """The fields of an answer that name a token's owner and its requester."""
    kind, _, name = owner.partition(":")
    requester_kind, _, requester_name = requester.partition(":")
    return {
        "principal_type": kind,
        "principal_name": name,
        "token_requester_principal_type": requester_kind,
        "token_requester_principal_name": requester_name,
    }


class TokenManager:
    """Creates, renews and ends tokens when a principal asks for that; raises ApiError."""

    def __init__(
        self,
        tokens: DelegationTokens,
        world: World,
        config: Config,
        zookeeper: Callable[[], ZooKeeper],
    ) -> None:
        self.tokens = tokens
        self._world = world
        self._zookeeper = zookeeper
        self._longest_ms = config.delegation_token_max_lifetime_ms
        self._renewal_ms = config.delegation_token_expiry_time_ms
        self._pause_s = config.delegation_token_expiry_check_interval_ms / 1000

    async def create(
        self, owner: str, requester: str, renewers: Sequence[str], lifetime_ms: int
    ) -> Token:
        self._require_enabled()
        now = self._world.clock.wall_ms()
        longest = self._longest_ms
        ends = now + (longest if lifetime_ms <= 0 else min(lifetime_ms, longest))
        raw = self._world.random.getrandbits(_ID_BITS).to_bytes(_ID_BITS // 8, "big")
        token_id = urlsafe_b64encode(raw).decode().rstrip("=")
        expires = min(ends, now + self._renewal_ms)
        token = Token(token_id, owner, requester, tuple(renewers), now, ends, expires)
        await self._store(token)
        log.info("delegation token %s of %s was made by %s", token_id, owner, requester)
        return token

    async def renew(self, principal: str, hmac: bytes, period_ms: int) -> int:
        """Renews a token; returns when it now expires."""
        now = self._world.clock.wall_ms()
        token = self._owned(principal, hmac)
        return await self._put_off(token, self._renewal_ms if period_ms < 0 else period_ms, now)

    async def expire(self, principal: str, hmac: bytes, period_ms: int) -> int:
        """Lets a token expire after a period, at once if negative; returns when it expires."""
        now = self._world.clock.wall_ms()
        token = self._owned(principal, hmac)
        if period_ms >= 0:
            return await self._put_off(token, period_ms, now)
        await self._remove(token)
        return now

    async def remove_expired(self) -> None:
        now = self._world.clock.wall_ms()
        for token in self.tokens:
            if token.expired(now):
                log.info("delegation token %s of %s has expired", token.id, token.owner)
                await self._remove(token)

    async def run(self, is_controller: Callable[[], bool]) -> None:
        """Removes expired tokens until cancelled."""
        while True:
            if is_controller():
                try:
                    await self.remove_expired()
                except (ApiError, ZkError) as e:
                    log.info("expired delegation tokens stay for now: %s", e)
            await trio.sleep(self._pause_s)

    def _require_enabled(self) -> None:
        if not self.tokens.enabled:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    def _owned(self, principal: str, hmac: bytes) -> Token:
        self._require_enabled()
        token = self.tokens.by_hmac(hmac)
        if token is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if not token.of(principal):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    async def _put_off(self, token: Token, period_ms: int, now_ms: int) -> int:
        if token.expired(now_ms):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        expires = min(token.ends_ms, now_ms + period_ms)
        await self._store(token._replace(expires_ms=expires))
        log.info("delegation token %s of %s expires at %d ms", token.id, token.owner, expires)
        return expires

    async def _store(self, token: Token) -> None:
        path, data, zk = token_path(token.id), encode_token(token), self._zookeeper()
        with zookeeper_errors():
            try:
                await zk.create(path, data)
            except NodeExists:
                await zk.set(path, data)
            self.tokens.put(token)
            await self._announce(zk, token)

    async def _remove(self, token: Token) -> None:
        zk = self._zookeeper()
        with zookeeper_errors():
            try:
                await zk.delete(token_path(token.id))
            except NoNode:
                pass  # another broker was first
            self.tokens.forget(token.id)
            await self._announce(zk, token)

    async def _announce(self, zk: ZooKeeper, token: Token) -> None:
        await zk.create(f"{TOKEN_CHANGES}/{_PREFIX}", token.id.encode(), sequential=True)
