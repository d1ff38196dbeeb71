"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848), which kafka-python does not include:
its classes, from schemas of ours in Kafka's form (`schemas/`)."""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

_SCHEMAS = "highwater.kafka.wire.schemas"


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass
