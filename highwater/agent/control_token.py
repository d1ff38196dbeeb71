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
    """The token cannot be used; the message is one clear line."""


def beyond_loopback(host: str) -> bool:
    """Whether other machines could reach a server on this host."""
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def token_for(host: str, given: str) -> str:
    """The token for a server on this host: the given one, else a new one if the host needs one,
    else empty (no token).  Raises BadToken if the given token is too short or fits in no header."""
    if given and (len(given) < SHORTEST or not given.isascii() or not given.isprintable()):
        raise BadToken(f"the control API's token needs {SHORTEST} printable ASCII characters")
    return given or (secrets.token_urlsafe(24) if beyond_loopback(host) else "")


def known_token(folder: Path, host: str, given: str) -> str:
    """As `token_for`, but where that would make a new token, it reuses the one that an earlier
    server left in the folder."""
    return token_for(host, given or (token_of(folder) if beyond_loopback(host) else ""))


def keep_token(folder: Path, token: str) -> None:
    """Writes the token into the folder's file; an empty token deletes the file.

    Only the agent that owns the folder may call this: any other would overwrite the token that the
    running cluster's callers read there.
    """
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
