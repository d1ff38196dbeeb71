"""DescribeClientQuotas, API 48, v0-1: the quotas of users, clients and addresses.

Quotas are not built, so there are none.
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import DescribeClientQuotasResponse

API = Api(key=48, name="DescribeClientQuotas", versions=(0, 1))


def handle(ctx: Context, request: Any) -> Reply:
    return Response(DescribeClientQuotasResponse(error_code=0, error_message=None, entries=[]))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = DescribeClientQuotasResponse(error_code=int(code), error_message=None, entries=None)
    return Response(answer, error_names=(code.name,))
