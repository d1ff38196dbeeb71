"""The messages of Kafka's protocol, one class each, made by kafka-python from Kafka's own schemas.

Code that needs a message imports it from here, so that the library stands behind one door. Field
names are the schemas' in snake_case; a field that a version does not have reads as its default.
Structures inside a message are nested classes (`MetadataResponse.MetadataResponseTopic(...)`).

The controller's requests of the ZooKeeper era (LeaderAndIsr, StopReplica, UpdateMetadata,
ControlledShutdown) are in `controller_messages`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import *  # noqa: F403
from kafka.protocol.consumer import *  # noqa: F403
from kafka.protocol.metadata import *  # noqa: F403
from kafka.protocol.producer import *  # noqa: F403
from kafka.protocol.sasl import *  # noqa: F403

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...  # the library has no types
