"""CreateAcls, API 30, v0-3: adds access rules; SECURITY_DISABLED without an authorizer.

Any broker does it, and answers when all of them have followed (`membership/agreement`).  Each rule
has its own error.  v1 adds name patterns.
A rule whose type, pattern, operation or permission is unknown closes the connection, as in Kafka.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin.change_waits import once_followed
from highwater.broker.admin.mutations import error_names
from highwater.broker.context import Access, Api, Context, Reply, cluster
from highwater.broker.handlers.describe_acls import NO_AUTHORIZER
from highwater.broker.request.response import Response
from highwater.broker.settings import authorizer as rules
from highwater.kafka.acl_znodes import ACL_CHANGES
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import (
    CLUSTER_NAME,
    Entry,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from highwater.kafka.wire.codec import BadMessage
from highwater.kafka.wire.messages import CreateAclsResponse

API = Api(
    key=30, name="CreateAcls", versions=(0, 3), access=Access(whole=(cluster(Operation.ALTER),))
)

Outcome = tuple[ErrorCode, str | None]


async def handle(ctx: Context, request: Any) -> Reply:
    acls = ctx.services.authorizer
    if acls is None:
        return error_response(ctx, request, ErrorCode.SECURITY_DISABLED)
    try:
        asked = [_rule(creation) for creation in request.creations]
    except ValueError as e:
        raise BadMessage(f"CreateAcls with a rule that is not understood: {e}") from e
    outcomes: list[Outcome] = [_problem(resource) for resource, _ in asked]
    for resource in dict.fromkeys(resource for resource, _ in asked):
        entries = [entry for r, entry in asked if r == resource]
        if _problem(resource)[0]:
            continue
        try:
            await rules.add(ctx.services.zk, acls, resource, entries)
        except ApiError as e:
            failed = (e.code, e.detail)
            outcomes = [
                failed if r == resource else o for (r, _), o in zip(asked, outcomes, strict=True)
            ]
    return await once_followed(ctx.services, _answer(outcomes), *ACL_CHANGES)


def _rule(asked: Any) -> tuple[Resource, Entry]:
    pattern = PatternType(asked.resource_pattern_type)
    if pattern is PatternType.MATCH:
        raise ValueError("MATCH is for filters")
    return (
        Resource(ResourceType(asked.resource_type), asked.resource_name, pattern),
        Entry(
            asked.principal,
            asked.host,
            Operation(asked.operation),
            Permission(asked.permission_type),
        ),
    )


def _problem(resource: Resource) -> Outcome:
    name = resource.name
    if resource.type is ResourceType.CLUSTER and name != CLUSTER_NAME:
        return ErrorCode.INVALID_REQUEST, f"the only name of the cluster is {CLUSTER_NAME}"
    if not name or "/" in name:
        return ErrorCode.INVALID_REQUEST, f"{name!r} cannot be the name of a resource"
    return ErrorCode.NONE, None


def _answer(outcomes: list[Outcome]) -> Response:
    results = [
        CreateAclsResponse.AclCreationResult(error_code=int(code), error_message=message)
        for code, message in outcomes
    ]
    names = error_names(code for code, _ in outcomes)
    return Response(CreateAclsResponse(results=results), error_names=names)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    message = NO_AUTHORIZER if code is ErrorCode.SECURITY_DISABLED else code.name
    return _answer([(code, message) for _ in request.creations])
