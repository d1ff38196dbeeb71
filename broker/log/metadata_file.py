"""The file `partition.metadata` in a log's folder: the id of the topic that the log belongs to.

It is written once, when the controller first names the id, and copied when a log moves to another
directory.  A file that does not parse counts as none: a power loss may have emptied it, and the
next LeaderAndIsr names the id again.

Source: kafka.server.PartitionMetadataFile (version 0).
"""

from __future__ import annotations

import logging

from highwater.kafka import topic_ids
from highwater.world.api import Disk

log = logging.getLogger(__name__)

NAME = "partition.metadata"


def read(disk: Disk, folder: str) -> bytes | None:
    path = f"{folder}/{NAME}"
    if not disk.exists(path):
        return None
    data = disk.read_all(path)
    try:
        return decode(data)
    except ValueError:
        log.warning("%s does not parse, and is passed over: %r", path, data[:100])
        return None


def decode(data: bytes) -> bytes:
    """The id in a file's content; raises ValueError."""
    version, topic_id = str(data, "utf-8").splitlines()[:2]
    if version != "version: 0":
        raise ValueError(version)
    return topic_ids.from_text(topic_id.removeprefix("topic_id: "))


def write(disk: Disk, folder: str, topic_id: bytes) -> None:
    text = f"version: 0\ntopic_id: {topic_ids.to_text(topic_id)}"
    disk.replace(f"{folder}/{NAME}", text.encode())
