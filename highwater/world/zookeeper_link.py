"""How a world reaches ZooKeeper: as which user, over TLS or not, and who may use new znodes."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum


class Access(Enum):
    """Who may use a znode."""

    OPEN = "everybody may do everything"
    SHOWN = "everybody may read it, and its maker do everything"
    OWN = "its maker alone"


@dataclass(frozen=True, slots=True)
class ZooKeeperLink:
    user: str = ""
    """Logs in by SASL's DIGEST-MD5; "": does not log in."""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None
    """Makes connections secure; None: plain TCP."""
    access: Callable[[str], Access] = lambda path: Access.OPEN
    """Path of a new znode -> who may use it."""
