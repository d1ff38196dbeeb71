"""Create-, Renew-, Expire- and DescribeDelegationToken, which kafka-python does not include: its
classes, from schemas of ours in Kafka's form (`schemas/`)."""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

_SCHEMAS = "highwater.kafka.wire.schemas"


class CreateDelegationTokenRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class CreateDelegationTokenResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class RenewDelegationTokenRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class RenewDelegationTokenResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ExpireDelegationTokenRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ExpireDelegationTokenResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class DescribeDelegationTokenRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class DescribeDelegationTokenResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass
