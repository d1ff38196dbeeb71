"""An answer, from a handler to a connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from highwater.world.api import Buffer

if TYPE_CHECKING:
    from highwater.world.api import File


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A run of whole record batches in a segment, sent by sendfile.

    The segment is pinned (`File` stays open) until the slice is sent; if the segment became shorter
    meanwhile, the connection is closed, so that no short frame is ever sent.
    """

    file: File
    position: int
    size: int


Part = Buffer | FileSlice


class Extra(NamedTuple):
    """The cost of an answer beyond its time, if records had to be converted for it."""

    temporary_memory_bytes: int = 0
    conversions_ns: int = 0


@dataclass(frozen=True, slots=True)
class Response:
    """An answer: a message to encode at the request's version, or the parts of a body already
    encoded.

    `then_close` closes the connection after the answer is sent.
    """

    message: Any = None
    parts: Sequence[Part] | None = None
    throttle_ms: int = 0
    then_close: bool = False
    error_names: tuple[str, ...] = ()
    extra: Extra | None = None


@dataclass(frozen=True, slots=True)
class NoResponse:
    """No answer: acks=0, or the client no longer waits.  `close` drops the connection, which shows
    the client that there was an error."""

    close: bool = False
