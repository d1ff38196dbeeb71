"""Who may do what with a znode: lists of (permissions, scheme, id).

Source: ZooKeeperServer.checkACL, PrepRequestProcessor.fixupACL, and the authentication providers
`world`, `digest` and `ip` of Apache ZooKeeper 3.9.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from highwater.zookeeper.codes import Code, KeeperError

READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
ALL: Final = READ | WRITE | CREATE | DELETE | ADMIN


class Id(NamedTuple):
    scheme: str
    id: str


class Acl(NamedTuple):
    perms: int
    scheme: str
    id: str


ANYONE: Final = Id("world", "anyone")
OPEN: Final = (Acl(ALL, *ANYONE),)
READ_ONLY: Final = (Acl(READ, *ANYONE),)


def digest_of(credentials: str) -> str:
    """The id of the scheme digest for USER:PASSWORD.

    >>> digest_of("super:secret")
    'super:VFNaaFNlhr1zFz5dvlIgzCUs9po='
    """
    user = credentials.partition(":")[0]
    hashed = base64.b64encode(hashlib.sha1(credentials.encode()).digest()).decode()
    return f"{user}:{hashed}"


def check(acl: Sequence[Acl], perm: int, ids: Collection[Id], path: str) -> None:
    """Raises NO_AUTH where none of these ids has the permission; a list without entries allows
    all."""
    if not acl or acl is OPEN or any(one.scheme == "super" for one in ids):
        return
    for entry in acl:
        if entry.perms & perm and (
            (entry.scheme, entry.id) == ANYONE or any(_matches(entry, one) for one in ids)
        ):
            return
    raise KeeperError(Code.NO_AUTH, path)


def _matches(entry: Acl, one: Id) -> bool:
    if entry.scheme != one.scheme:
        return False
    if entry.scheme != "ip":
        return entry.id == one.id
    return ipaddress.ip_address(one.id) in ipaddress.ip_network(entry.id, strict=False)


def fixed(acl: Sequence[Acl], ids: Collection[Id], path: str) -> tuple[Acl, ...]:
    """The list in its stored form, with the caller's own ids for `auth`.  Raises INVALID_ACL."""
    found = dict.fromkeys(entry for given in acl for entry in _fixed(given, ids, path))
    if not found:
        raise KeeperError(Code.INVALID_ACL, path)
    return OPEN if tuple(found) == OPEN else tuple(found)


def _fixed(entry: Acl, ids: Collection[Id], path: str) -> Iterator[Acl]:
    if entry.scheme == "auth":
        own = [one for one in ids if one.scheme in ("digest", "super")]
        if not own:
            raise KeeperError(Code.INVALID_ACL, path)
        for one in own:
            yield Acl(entry.perms, *one)
        return
    if not _valid(entry):
        raise KeeperError(Code.INVALID_ACL, path)
    yield entry


def _valid(entry: Acl) -> bool:
    match entry.scheme:
        case "world":
            return entry.id == "anyone"
        case "digest":
            return len(entry.id.split(":")) == 2
        case "ip":
            try:
                ipaddress.ip_network(entry.id, strict=False)
            except ValueError:
                return False
            return True
    return False
