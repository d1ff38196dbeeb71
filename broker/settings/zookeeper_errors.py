"""Answers a client when ZooKeeper goes away in the middle of a change, or holds bad data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.znode_fields import BadZnode
from highwater.world.api import ConnectionLoss, SessionExpired


@contextmanager
def zookeeper_errors() -> Iterator[None]:
    """Turns a lost connection into an error that says that the outcome is unknown, and a damaged
    znode into one that asks the operator to correct it."""
    try:
        yield
    except (ConnectionLoss, SessionExpired) as e:
        detail = "the connection to ZooKeeper was lost; the outcome is not known"
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, detail) from e
    except BadZnode as e:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{e}; correct that znode") from e
