"""DescribeUserScramCredentials, API 50, v0: who has SCRAM credentials, and how strong (KIP-554).

It gives mechanisms and iterations, of the named users or of all, and no part of a credential.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin.mutations import error_names
from highwater.broker.context import Access, Api, Context, Reply, cluster
from highwater.broker.request.response import Response
from highwater.broker.settings.scram_credentials import describe, users
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation
from highwater.kafka.wire.messages import DescribeUserScramCredentialsResponse

API = Api(
    key=50,
    name="DescribeUserScramCredentials",
    versions=(0, 0),
    access=Access(whole=(cluster(Operation.DESCRIBE),)),
)

_Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


async def handle(ctx: Context, request: Any) -> Reply:
    zk = ctx.services.zk
    asked = [user.name for user in request.users or ()]
    results = []
    for name in dict.fromkeys(asked or await users(zk)):
        code, message, found = ErrorCode.NONE, None, []
        try:
            if name and asked.count(name) > 1:
                detail = f"user {name!r} is named more than once"
                raise ApiError(ErrorCode.DUPLICATE_RESOURCE, detail)
            found = await describe(zk, name)
        except ApiError as e:
            code, message = e.code, e.detail
        infos = [_Result.CredentialInfo(mechanism=m, iterations=i) for m, i in found]
        results.append(
            _Result(user=name, error_code=int(code), error_message=message, credential_infos=infos)
        )
    answer = DescribeUserScramCredentialsResponse(error_code=0, results=results)
    names = error_names(ErrorCode(result.error_code) for result in results)
    return Response(answer, error_names=names)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    nobody = _Result(user="", error_code=int(code), error_message=None, credential_infos=[])
    answer = DescribeUserScramCredentialsResponse(error_code=int(code), results=[nobody])
    return Response(answer, error_names=(code.name,))
