"""DeleteAcls, API 31, v0-3: removes the access rules that match a filter; SECURITY_DISABLED without
an authorizer.

A rule that several filters match is answered under the first.  v1 adds name patterns.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin.change_waits import once_followed
from highwater.broker.context import Access, Api, Context, Reply, cluster
from highwater.broker.handlers.describe_acls import NO_AUTHORIZER, filter_of
from highwater.broker.request.response import Response
from highwater.broker.settings import authorizer as rules
from highwater.kafka.acl_znodes import ACL_CHANGES
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Operation
from highwater.kafka.wire.messages import DeleteAclsResponse

API = Api(
    key=31, name="DeleteAcls", versions=(0, 3), access=Access(whole=(cluster(Operation.ALTER),))
)

_Result = DeleteAclsResponse.DeleteAclsFilterResult


async def handle(ctx: Context, request: Any) -> Reply:
    acls = ctx.services.authorizer
    if acls is None:
        return error_response(ctx, request, ErrorCode.SECURITY_DISABLED)
    filters = [filter_of(asked) for asked in request.filters]
    removed = await rules.remove(ctx.services.zk, acls, filters)
    results = [
        _Result(
            error_code=0,
            error_message=None,
            matching_acls=[
                _Result.DeleteAclsMatchingAcl(
                    error_code=0,
                    error_message=None,
                    resource_type=resource.type,
                    resource_name=resource.name,
                    pattern_type=resource.pattern,
                    principal=entry.principal,
                    host=entry.host,
                    operation=entry.operation,
                    permission_type=entry.permission,
                )
                for resource, entry in found
            ],
        )
        for found in removed
    ]
    answer = Response(DeleteAclsResponse(filter_results=results))
    return await once_followed(ctx.services, answer, *ACL_CHANGES)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    message = NO_AUTHORIZER if code is ErrorCode.SECURITY_DISABLED else code.name
    result = _Result(error_code=int(code), error_message=message, matching_acls=[])
    answer = DeleteAclsResponse(filter_results=[result for _ in request.filters])
    return Response(answer, error_names=(code.name,))
