"""ReadShareGroupState, API 84, v0: a broker that begins to lead a partition reads a
share-partition's state.  From then on writes of a lower leader epoch are refused.

Source: KafkaApis, ShareCoordinatorService of Apache Kafka 4.2.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin.share_state_requests import ACCESS, carry_out, refused
from highwater.broker.context import Api, Context, Reply
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode

API = Api(key=84, name="ReadShareGroupState", versions=(0, 0), access=ACCESS)


def handle(ctx: Context, request: Any) -> Reply:
    return carry_out(ctx, request)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return refused(ctx, request, code)
