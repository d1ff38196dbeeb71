"""Delegation tokens through the handlers, in ZooKeeper, and at a login."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from highwater.broker.handlers import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from highwater.broker.settings.token_manager import TokenChanges, TokenManager
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Acls, Entry, Operation, Permission, Resource, ResourceType
from highwater.kafka.security.delegation_tokens import DelegationTokens, Token
from highwater.kafka.token_znodes import TOKEN_PATHS, TOKENS, decode_token, encode_token, token_path
from highwater.kafka.wire.token_messages import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from highwater.kafka.znode_fields import BadZnode
from tests.unit.broker.handlers.conftest import in_broker

SHORT, DAY = 600_000, 86_400_000
ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"


async def begin(b: Any, secret: str = "s3cret") -> TokenManager:
    for path in ("/delegation_token", *TOKEN_PATHS):
        await b.zk.create(path)
    services = b.services
    manager = TokenManager(DelegationTokens(secret), services.world, services.config, lambda: b.zk)
    b.services.tokens = manager
    b.principal, b.security_protocol = ALICE, "SASL_SSL"
    return manager


async def create(
    b: Any, *, owner: str = "", renewers: tuple[str, ...] = (), lifetime_ms: int = -1
) -> Any:
    kind, _, name = owner.partition(":")
    request = CreateDelegationTokenRequest
    pairs = [renewer.split(":") for renewer in renewers]
    asked = request(
        owner_principal_type=kind or None,
        owner_principal_name=name or None,
        renewers=[request.CreatableRenewers(principal_type=k, principal_name=n) for k, n in pairs],
        max_lifetime_ms=lifetime_ms,
    )
    return await b.ask(create_delegation_token, 3, asked)


async def renew(b: Any, hmac: bytes, period_ms: int = -1) -> tuple[str, int]:
    asked = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    answer = await b.ask(renew_delegation_token, 2, asked)
    return ErrorCode(answer.error_code).name, answer.expiry_timestamp_ms


async def expire(b: Any, hmac: bytes, period_ms: int = -1) -> tuple[str, int]:
    asked = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    answer = await b.ask(expire_delegation_token, 2, asked)
    return ErrorCode(answer.error_code).name, answer.expiry_timestamp_ms


async def described(b: Any, *owners: str, every: bool = False) -> tuple[str, dict[str, Any]]:
    request = DescribeDelegationTokenRequest
    pairs = [owner.split(":") for owner in owners]
    named = [
        request.DescribeDelegationTokenOwner(principal_type=k, principal_name=n) for k, n in pairs
    ]
    answer = await b.ask(describe_delegation_token, 3, request(owners=None if every else named))
    return ErrorCode(answer.error_code).name, {t.token_id: t for t in answer.tokens}


@in_broker()
async def test_a_token_is_made_for_its_user_and_described(b: Any) -> None:
    await begin(b)
    made = await create(b, renewers=(BOB,))
    assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (
        0, "alice", "alice",
    )  # fmt: skip
    code, found = await described(b, every=True)
    assert code == "NONE"
    token = found[made.token_id]
    assert (token.hmac, token.principal_name) == (made.hmac, "alice")
    assert [r.principal_name for r in token.renewers] == ["bob"]
    stored, _ = await b.zk.get(token_path(made.token_id))
    assert b'"owner":"User%3Aalice"' in stored
    assert made.hmac not in stored
    assert (await described(b, CAROL))[1] == {}
    assert (await described(b))[1] == {}, "an empty list of owners names none"


@in_broker()
async def test_how_long_a_token_counts(b: Any) -> None:
    await begin(b)
    made = await create(b)
    now = made.issue_timestamp_ms
    assert (made.expiry_timestamp_ms - now, made.max_timestamp_ms - now) == (DAY, 7 * DAY)
    short = await create(b, lifetime_ms=SHORT)
    assert short.expiry_timestamp_ms == short.max_timestamp_ms == short.issue_timestamp_ms + SHORT
    long = await create(b, lifetime_ms=30 * DAY)
    assert long.max_timestamp_ms == long.issue_timestamp_ms + 7 * DAY
    await trio.sleep(SHORT / 1000 / 2)
    now = b.services.world.clock.wall_ms
    for period_ms, wanted in ((-1, DAY), (2 * DAY, 2 * DAY)):
        began = now()
        code, expires = await renew(b, made.hmac, period_ms)
        assert code == "NONE"
        assert began + wanted <= expires <= now() + wanted
    assert await renew(b, made.hmac, 30 * DAY) == ("NONE", made.max_timestamp_ms)
    began = now()
    code, expires = await expire(b, made.hmac, SHORT)
    assert code == "NONE"
    assert began + SHORT <= expires <= now() + SHORT
    stored, _ = await b.zk.get(token_path(made.token_id))
    assert decode_token(token_path(made.token_id), stored).expires_ms == expires
    await trio.sleep(SHORT / 1000 + 1)
    assert await renew(b, made.hmac) == ("DELEGATION_TOKEN_EXPIRED", -1)
    assert await expire(b, made.hmac, SHORT) == ("DELEGATION_TOKEN_EXPIRED", -1)
    began = now()
    code, ended = await expire(b, made.hmac)
    assert code == "NONE"
    assert began <= ended <= now()
    assert await renew(b, made.hmac) == ("DELEGATION_TOKEN_NOT_FOUND", -1)


@in_broker(delegation_token_expiry_check_interval_ms=60_000)
async def test_an_expired_token_is_removed(b: Any) -> None:
    manager = await begin(b)
    short, long = await create(b, lifetime_ms=SHORT), await create(b)
    active = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run, lambda: active)
        await trio.sleep(2 * SHORT / 1000)
        assert len(await b.zk.children(TOKENS)) == 2, "it has not the controller"
        active = True
        await trio.sleep(61)
        assert await b.zk.children(TOKENS) == [long.token_id]
        nursery.cancel_scope.cancel()
    assert await renew(b, short.hmac) == ("DELEGATION_TOKEN_NOT_FOUND", -1)


@in_broker()
async def test_who_may_ask_for_what(b: Any) -> None:
    await begin(b)
    made = await create(b, renewers=(BOB,))
    b.principal = BOB
    assert (await renew(b, made.hmac))[0] == "NONE"
    b.principal = CAROL
    assert (await renew(b, made.hmac))[0] == "DELEGATION_TOKEN_OWNER_MISMATCH"
    assert (await expire(b, made.hmac))[0] == "DELEGATION_TOKEN_OWNER_MISMATCH"
    assert (await renew(b, b"no token"))[0] == "DELEGATION_TOKEN_NOT_FOUND"
    wrong = await create(b, renewers=("Group:all",))
    assert ErrorCode(wrong.error_code) is ErrorCode.INVALID_PRINCIPAL_TYPE

    acls = b.services.authorizer = Acls([], open_without_rules=False)

    def entry(operation: Operation) -> Entry:
        return Entry(operation=operation, host="*", permission=Permission.ALLOW, principal=CAROL)

    assert (await described(b, every=True))[1] == {}
    denied = await create(b, owner=ALICE)
    assert ErrorCode(denied.error_code) is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (denied.principal_name, denied.token_requester_principal_name) == ("alice", "carol")
    of_token = Resource(ResourceType.DELEGATION_TOKEN, made.token_id)
    acls.put(of_token, [entry(Operation.DESCRIBE)])
    assert list((await described(b, every=True))[1]) == [made.token_id]
    acls.put(of_token, [])
    of_user = Resource(ResourceType.USER, ALICE)
    acls.put(of_user, [entry(Operation.DESCRIBE_TOKENS)])
    assert list((await described(b, ALICE))[1]) == [made.token_id]
    acls.put(of_user, [entry(Operation.CREATE_TOKENS)])
    given = await create(b, owner=ALICE)
    assert (given.error_code, given.principal_name, given.token_requester_principal_name) == (
        0, "alice", "carol",
    )  # fmt: skip


@in_broker()
@pytest.mark.parametrize(
    ("protocol", "principal", "by_token"),
    [
        ("PLAINTEXT", "User:ANONYMOUS", False),
        ("SSL", "User:ANONYMOUS", False),
        ("SASL_SSL", ALICE, True),
    ],
)
async def test_who_is_not_known_by_a_login_of_its_own_may_not_ask(
    b: Any, protocol: str, principal: str, by_token: bool
) -> None:
    await begin(b)
    b.security_protocol, b.principal = protocol, principal
    b.authentication = SimpleNamespace(by_token=by_token)
    refused = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
    assert ErrorCode((await create(b)).error_code).name == refused
    assert (await renew(b, b"h"))[0] == (await expire(b, b"h"))[0] == refused
    assert await described(b, every=True) == (refused, {})


@in_broker()
async def test_without_a_secret_key_there_are_none(b: Any) -> None:
    await begin(b, secret="")
    disabled = "DELEGATION_TOKEN_AUTH_DISABLED"
    assert ErrorCode((await create(b)).error_code).name == disabled
    assert (await renew(b, b"h"))[0] == (await expire(b, b"h"))[0] == disabled
    assert await described(b, every=True) == (disabled, {})


@in_broker()
async def test_other_brokers_follow(b: Any) -> None:
    await begin(b)
    made = await create(b)
    others = DelegationTokens("s3cret")
    changes = TokenChanges(b.zk, others)
    await changes.load()
    assert [token.id for token in others] == [made.token_id]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(changes.feeds[0].run)
        later = await create(b)
        await trio.sleep(1)
        assert {token.id for token in others} == {made.token_id, later.token_id}
        assert others.by_hmac(later.hmac) is not None
        await b.zk.set(token_path(later.token_id), b"{}")
        await b.zk.create(
            f"{TOKEN_PATHS[1]}/token_change_", later.token_id.encode(), sequential=True
        )
        await expire(b, made.hmac)
        await trio.sleep(1)
        assert list(others) == [], "one is not understood, one has ended"
        nursery.cancel_scope.cancel()


TOKEN = Token("abc", ALICE, BOB, (CAROL,), 1, 3, 2)


@pytest.mark.parametrize(
    "change",
    [
        {}, {"version": 4}, {"owner": "alice"}, {"owner": "%3Aalice"}, {"renewers": [1]},
        {"renewers": "User%3Abob"},
        {"tokenId": "other"}, {"expiryTimestamp": -1}, {"maxTimestamp": "3"},
    ],
)  # fmt: skip
def test_a_damaged_znode_is_no_token(change: dict[str, Any]) -> None:
    path, data = token_path(TOKEN.id), encode_token(TOKEN)
    if not change:
        assert decode_token(path, data) == TOKEN
        before = {k: v for k, v in json.loads(data).items() if k != "tokenRequester"}
        old = json.dumps({**before, "version": 1}).encode()
        assert decode_token(path, old) == TOKEN._replace(requester=ALICE)
        return
    with pytest.raises(BadZnode):
        decode_token(path, json.dumps({**json.loads(data), **change}).encode())


@in_broker()
async def test_an_owner_without_a_type_gets_no_token(b: Any) -> None:
    await begin(b)
    made = await create(b, owner=":carol")
    assert (ErrorCode(made.error_code).name, made.hmac) == ("INVALID_PRINCIPAL_TYPE", b"")
