"""DescribeAcls, API 29, v0-3: access rules by a filter; SECURITY_DISABLED without an authorizer.

v1 adds name patterns; in v0 every pattern is literal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from highwater.broker.context import Access, Api, Context, Reply, cluster
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Entry, Filter, Operation, Resource
from highwater.kafka.wire.codec import BadMessage
from highwater.kafka.wire.messages import DescribeAclsResponse

API = Api(
    key=29,
    name="DescribeAcls",
    versions=(0, 3),
    access=Access(whole=(cluster(Operation.DESCRIBE),)),
)

NO_AUTHORIZER = "No Authorizer is configured."
"""Kafka's words to those who would change rules."""
_Resource = DescribeAclsResponse.DescribeAclsResource


def handle(ctx: Context, request: Any) -> Reply:
    authorizer = ctx.services.authorizer
    if authorizer is None:
        return error_response(ctx, request, ErrorCode.SECURITY_DISABLED)
    resources = [_described(*found) for found in authorizer.found(filter_of(request))]
    return Response(DescribeAclsResponse(error_code=0, error_message=None, resources=resources))


def filter_of(asked: Any) -> Filter:
    """Raises BadMessage for a code that does not exist, upon which Kafka closes the connection."""
    found = Filter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )
    if found.unknown is not None:
        raise BadMessage(f"a filter of access rules with an unknown {found.unknown}")
    return found


def _described(resource: Resource, entries: Sequence[Entry]) -> Any:
    return _Resource(
        resource_type=resource.type,
        resource_name=resource.name,
        pattern_type=resource.pattern,
        acls=[
            _Resource.AclDescription(
                principal=e.principal,
                host=e.host,
                operation=e.operation,
                permission_type=e.permission,
            )
            for e in entries
        ],
    )


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    disabled = code is ErrorCode.SECURITY_DISABLED
    message = "No Authorizer is configured on the broker" if disabled else code.name
    answer = DescribeAclsResponse(error_code=int(code), error_message=message, resources=[])
    return Response(answer, error_names=(code.name,))
