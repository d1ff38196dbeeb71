"""Topic ids: 16 bytes that tell a topic from an earlier one of its name (KIP-516).

On the wire an id is its bytes, and zero where there is none.  As text, in a topic's znode and in
`partition.metadata`, it is URL-safe base64 without padding, as in Kafka.

Kafka draws ids at random.  Here an id is computed from what makes a topic unique: its cluster, its
name, and the transaction that created its znode.  So it can be computed again with the same result:
a controller need not know whether its predecessor has written it, and a tool that drops the id from
the znode (KAFKA-14190) loses nothing.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

SIZE = 16
NO_ID = bytes(SIZE)
_VERSION, _VARIANT = 0x80, 0x80
"""RFC 9562: version 8, whose other bits are the maker's own."""


def made_of(cluster_id: str, topic: str, czxid: int) -> bytes:
    """The id of the topic whose znode this transaction created; never zero."""
    seed = f"{cluster_id}/{topic}/{czxid}".encode()
    while True:
        seed = sha256(seed).digest()
        made = bytearray(seed[:SIZE])
        made[6] = made[6] & 0x0F | _VERSION
        made[8] = made[8] & 0x3F | _VARIANT
        if to_text(bytes(made))[0] != "-":  # a command line would take it for an option
            return bytes(made)


def to_text(topic_id: bytes) -> str:
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def from_text(text: str) -> bytes:
    """The id in this text; raises ValueError if it is no id, or is zero."""
    found = urlsafe_b64decode(text + "==") if text.isascii() else b""
    if len(found) != SIZE or to_text(found) != text or found == NO_ID:
        raise ValueError(f"{text[:100]!r} is not a topic id")
    return found


def unknown_name(topic_id: bytes) -> str:
    """Stands for the name of a topic that has none; no topic can be called so."""
    return f"?{topic_id.hex()}"


def is_unknown(topic: str) -> bool:
    """Whether it is an `unknown_name`."""
    return topic.startswith("?")
