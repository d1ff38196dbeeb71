"""InitializeShareGroupState, API 83, v0: the group coordinator has the state of share-partitions
made, before it assigns them to anybody; or made anew, with another start offset.

Source: KafkaApis, ShareCoordinatorService of Apache Kafka 4.2.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin.share_state_requests import ACCESS, carry_out, refused
from highwater.broker.context import Api, Context, Reply
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode

API = Api(key=83, name="InitializeShareGroupState", versions=(0, 0), access=ACCESS)


def handle(ctx: Context, request: Any) -> Reply:
    return carry_out(ctx, request)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return refused(ctx, request, code)
