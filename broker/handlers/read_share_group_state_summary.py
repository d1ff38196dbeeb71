"""ReadShareGroupStateSummary, API 87, v0-1: the group coordinator reads epochs and start offset of
share-partitions.  v1 has the number of records that are done.

Source: KafkaApis, ShareCoordinatorService of Apache Kafka 4.2.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin.share_state_requests import ACCESS, carry_out, refused
from highwater.broker.context import Api, Context, Reply
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode

API = Api(key=87, name="ReadShareGroupStateSummary", versions=(0, 1), access=ACCESS)


def handle(ctx: Context, request: Any) -> Reply:
    return carry_out(ctx, request)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return refused(ctx, request, code)
