"""DescribeClientQuotas, API 48, v0-1: the quotas of users, clients and addresses, by a filter.

v1 is flexible.  The parts of an entity stand in the order of their names, as in the answers of
Apache Kafka 4: the order means nothing, but some clients' tests expect it.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Reply, cluster
from highwater.broker.request.response import Response
from highwater.broker.settings.client_quotas import Component, describe
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Operation
from highwater.kafka.wire.messages import DescribeClientQuotasResponse

API = Api(
    key=48,
    name="DescribeClientQuotas",
    versions=(0, 1),
    access=Access(whole=(cluster(Operation.DESCRIBE_CONFIGS),)),
)

_Entry = DescribeClientQuotasResponse.EntryData


async def handle(ctx: Context, request: Any) -> Reply:
    asked = [Component(c.entity_type, c.match_type, c.match) for c in request.components]
    found = await describe(ctx.services.zk, asked, bool(request.strict))
    entries = [
        _Entry(
            entity=[
                _Entry.EntityData(entity_type=kind, entity_name=name)
                for kind, name in sorted(entity.items())
            ],
            values=[_Entry.ValueData(key=key, value=value) for key, value in values.items()],
        )
        for entity, values in found
    ]
    return Response(DescribeClientQuotasResponse(error_code=0, error_message=None, entries=entries))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = DescribeClientQuotasResponse(error_code=int(code), error_message=None, entries=None)
    return Response(answer, error_names=(code.name,))
