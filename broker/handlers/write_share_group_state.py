"""WriteShareGroupState, API 85, v0-1: a partition's leader adds what members have acknowledged to a
share-partition's state, and answers them when this is answered.  v1 says how many records are done.

Source: KafkaApis, ShareCoordinatorService of Apache Kafka 4.2.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin.share_state_requests import ACCESS, carry_out, refused
from highwater.broker.context import Api, Context, Reply
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode

API = Api(key=85, name="WriteShareGroupState", versions=(0, 1), access=ACCESS)


def handle(ctx: Context, request: Any) -> Reply:
    return carry_out(ctx, request)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return refused(ctx, request, code)
