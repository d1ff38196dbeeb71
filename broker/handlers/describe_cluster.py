"""DescribeCluster, API 60, v0-1: the cluster's id, its controller and its brokers.

v1 says whether the client asks for brokers or for controllers; there are only brokers here.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Reply, operations_of_cluster
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import DescribeClusterResponse

API = Api(
    key=60,
    name="DescribeCluster",
    versions=(0, 1),
    access=Access(inside="what the client may do, with Describe of the cluster"),
)

BROKERS, CONTROLLERS = 1, 2
_Broker = DescribeClusterResponse.DescribeClusterBroker


def handle(ctx: Context, request: Any) -> Reply:
    kind = request.endpoint_type if ctx.version >= 1 else BROKERS
    if kind == CONTROLLERS:
        detail = "this is a broker; controllers have no endpoints of their own here"
        return _error(ErrorCode.MISMATCHED_ENDPOINT_TYPE, detail)
    if kind != BROKERS:
        return _error(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {kind}")
    cache = ctx.services.metadata
    brokers = [
        _Broker(broker_id=b.id, host=e.host, port=e.port, rack=b.rack)
        for b in cache.brokers().values()
        if (e := b.endpoint(ctx.listener)) is not None
    ]
    operations = None
    if request.include_cluster_authorized_operations:
        operations = operations_of_cluster(ctx)
    return Response(
        DescribeClusterResponse(
            error_code=0,
            endpoint_type=BROKERS,
            cluster_id=ctx.services.cluster_id,
            controller_id=cache.controller_id,
            brokers=brokers,
            authorized_operations=operations,
        )
    )


def _error(code: ErrorCode, message: str) -> Response:
    answer = DescribeClusterResponse(
        error_code=int(code), error_message=message, cluster_id="", brokers=[]
    )
    return Response(answer, error_names=(code.name,))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return _error(code, "")
