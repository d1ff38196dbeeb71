"""AlterUserScramCredentials, API 51, v0: sets and removes SCRAM credentials (KIP-554).

The controller does it; every broker follows.  Each user has its own error.  No password is in a
request, only what it gives with its salt; this is a secret all the same.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin.change_waits import once_followed
from highwater.broker.admin.mutations import error_names
from highwater.broker.context import Access, Api, Context, Reply, cluster
from highwater.broker.request.response import Response
from highwater.broker.settings.scram_credentials import Change, alter, check
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation
from highwater.kafka.wire.messages import AlterUserScramCredentialsResponse
from highwater.kafka.znodes import CONFIG_CHANGES

API = Api(
    key=51,
    name="AlterUserScramCredentials",
    versions=(0, 0),
    access=Access(whole=(cluster(Operation.ALTER),), by_controller=True),
)

_Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


async def handle(ctx: Context, request: Any) -> Reply:
    if not ctx.services.controller.active:
        return error_response(ctx, request, ErrorCode.NOT_CONTROLLER)
    changes = [Change(d.name, d.mechanism) for d in request.deletions] + [
        Change(u.name, u.mechanism, u.iterations, bytes(u.salt), bytes(u.salted_password))
        for u in request.upsertions
    ]
    wrong = check(changes)
    results, codes = [], []
    for user in dict.fromkeys(change.user for change in changes):
        code, message = ErrorCode.NONE, None
        try:
            if user in wrong:
                raise wrong[user]
            await alter(ctx.services.zk, user, [c for c in changes if c.user == user])
        except ApiError as e:
            code, message = e.code, e.detail
        results.append(_Result(user=user, error_code=int(code), error_message=message))
        codes.append(code)
    message_of_all = AlterUserScramCredentialsResponse(results=results)
    answer = Response(message_of_all, error_names=error_names(codes))
    return await once_followed(ctx.services, answer, CONFIG_CHANGES)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    users = dict.fromkeys(e.name for e in (*request.deletions, *request.upsertions))
    results = [_Result(user=user, error_code=int(code), error_message=None) for user in users]
    return Response(AlterUserScramCredentialsResponse(results=results), error_names=(code.name,))
