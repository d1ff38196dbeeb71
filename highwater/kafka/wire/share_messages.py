"""The messages of share groups (KIP-932), which kafka-python does not include: its classes, from
schemas of ours in Kafka's form (`schemas/share/`).

    76, 77      ShareGroupHeartbeat, ShareGroupDescribe: to the group coordinator
    78, 79      ShareFetch, ShareAcknowledge: to the partition's leader
    83 to 87    Initialize-, Read-, Write-, DeleteShareGroupState, ReadShareGroupStateSummary: of
                brokers, to the share coordinator
    90 to 92    Describe-, Alter-, DeleteShareGroupOffsets: to the group coordinator
"""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

_SCHEMAS = "highwater.kafka.wire.schemas.share"


class ShareGroupHeartbeatRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ShareGroupHeartbeatResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ShareGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ShareGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ShareFetchRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ShareFetchResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ShareAcknowledgeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ShareAcknowledgeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class InitializeShareGroupStateRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class InitializeShareGroupStateResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ReadShareGroupStateRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ReadShareGroupStateResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class WriteShareGroupStateRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class WriteShareGroupStateResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class DeleteShareGroupStateRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class DeleteShareGroupStateResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ReadShareGroupStateSummaryRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ReadShareGroupStateSummaryResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class AlterShareGroupOffsetsRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class AlterShareGroupOffsetsResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class DeleteShareGroupOffsetsRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class DeleteShareGroupOffsetsResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass
