"""SCRAM credentials in ZooKeeper: reads and changes them under /config/users (KIP-554).

A change keeps the rest of the user's configuration (quotas), and is announced to all brokers.

Source: kafka.server.ZkAdminManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from highwater.broker.quota.entities import DEFAULT
from highwater.broker.settings.client_quotas import entity_names, read_entity, write_entity
from highwater.broker.settings.zookeeper_errors import zookeeper_errors
from highwater.kafka import znodes
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.sanitizer import desanitize, sanitize
from highwater.kafka.security.scram_users import (
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    decode_credential,
    derived,
    encode_credential,
)
from highwater.world.api import BadVersion, NodeExists, NoNode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from highwater.world.api import ZooKeeper


class Change(NamedTuple):
    """A change of one user's credential for one mechanism; no salted password removes it."""

    user: str
    mechanism: int
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes | None = None

    def __repr__(self) -> str:
        return f"Change({self.user!r}, {self.mechanism})"


async def describe(zk: ZooKeeper, user: str) -> list[tuple[int, int]]:
    """Mechanisms and iterations of one user; raises ApiError."""
    if not user:
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty")
    with zookeeper_errors():
        found = _described(await read_entity(zk, f"users/{sanitize(user)}"))
    if not found:
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"user {user!r} has no SCRAM credentials")
    return found


async def users(zk: ZooKeeper) -> list[str]:
    """Every user with a credential; raises ApiError."""
    with zookeeper_errors():
        return sorted(
            [
                desanitize(name)
                for name in await entity_names(zk, "users")
                if name != DEFAULT
                and not set(MECHANISMS.values()).isdisjoint(await read_entity(zk, f"users/{name}"))
            ]
        )


def _described(config: Mapping[str, str]) -> list[tuple[int, int]]:
    try:
        return [
            (number, decode_credential(config[name]).iterations)
            for number, name in MECHANISMS.items()
            if name in config
        ]
    except ValueError as e:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(e)) from e


def check(changes: Sequence[Change]) -> dict[str, ApiError]:
    """By user, the error of a wrong change; nothing is then changed for that user."""
    wrong: dict[str, ApiError] = {}
    for change in changes:
        problem = _problem(change)
        # of several errors, that of an upsertion counts, as in Kafka
        if problem and (change.user not in wrong or change.salted_password is not None):
            wrong[change.user] = problem
    pairs = [(c.user, c.mechanism) for c in changes if c.user not in wrong]
    for user, mechanism in pairs:
        if pairs.count((user, mechanism)) > 1:
            detail = "A user credential cannot be altered twice in the same request"
            wrong[user] = ApiError(ErrorCode.DUPLICATE_RESOURCE, detail)
    return wrong


def _problem(change: Change) -> ApiError | None:
    if not change.user:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in MECHANISMS:
        return ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if change.salted_password is None or MIN_ITERATIONS <= change.iterations <= MAX_ITERATIONS:
        return None
    few = change.iterations < MIN_ITERATIONS
    detail = "Too few iterations" if few else "Too many iterations"
    return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, detail)


async def alter(zk: ZooKeeper, user: str, changes: Sequence[Change]) -> None:
    """Carries out one user's changes, all or none; raises ApiError."""
    path = f"users/{sanitize(user)}"
    with zookeeper_errors():
        while True:
            try:
                data, stat = await zk.get(f"{znodes.CONFIG}/{path}")
                config, version = dict(znodes.decode_config(data)), stat.version
            except NoNode:
                config, version = {}, None
            _apply(config, changes)
            try:
                await write_entity(zk, path, config, version)
            except (BadVersion, NodeExists):
                continue  # another writer changed it meanwhile
            return


def _apply(config: dict[str, str], changes: Sequence[Change]) -> None:
    for change in changes:
        name = MECHANISMS[change.mechanism]
        if change.salted_password is None:
            if name not in config:
                detail = "Attempt to delete a user credential that does not exist"
                raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, detail)
            del config[name]
        else:
            config[name] = encode_credential(
                derived(name, change.salt, change.salted_password, change.iterations)
            )
