"""The token that calls to the control API must carry where it listens beyond loopback.

It is kept in a file that only its user can read, and never printed: output ends in logs.  This
module imports the standard library alone, because the command line reads the token at each call.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
from pathlib import Path

FILE = "control-token"
VARIABLE = "HIGHWATER_CONTROL_TOKEN"
SHORTEST = 16


class BadToken(ValueError):
    """One clear line."""


def beyond_loopback(host: str) -> bool:
    """Whether other machines could reach a server on this host."""
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def token_for(host: str, given: str) -> str:
    """The token of a server on this host: the given one, or a new one where it needs one and none
    is given.  Empty: none.  Raises BadToken where the given one is short, or fits in no header."""
    if given and (len(given) < SHORTEST or not given.isascii() or not given.isprintable()):
        raise BadToken(f"the control API's token needs {SHORTEST} printable ASCII characters")
    return given or (secrets.token_urlsafe(24) if beyond_loopback(host) else "")


def known_token(folder: Path, host: str, given: str) -> str:
    """As `token_for`; a folder's next server has the token that was kept there."""
    return token_for(host, given or (token_of(folder) if beyond_loopback(host) else ""))


def keep_token(folder: Path, token: str) -> None:
    """Tells it in the folder's file; without a token there is none.  By the folder's owner alone:
    another would take the token from those that use the cluster that runs."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    path.unlink(missing_ok=True)
    if token:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{token}\n")


def token_of(folder: Path) -> str:
    """The token of the agent that owns the cluster in this folder; empty where it has none."""
    path = folder / FILE
    return path.read_text().strip() if path.exists() else ""
