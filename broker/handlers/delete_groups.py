"""DeleteGroups, API 42, v0-2: deletes groups without members, with all their committed offsets.

The answer is given when the tombstones are committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import trio

from highwater.broker.context import Access, Api, Context, Reply, of
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import DeleteGroupsResponse

API = Api(
    key=42,
    name="DeleteGroups",
    versions=(0, 2),
    access=Access(
        each=of(ResourceType.GROUP, Operation.DELETE, ""),
        items=("groups_names",),
        answers="results",
    ),
)


async def handle(ctx: Context, request: Any) -> Reply:
    codes: dict[str, ErrorCode] = {}
    asked = list(dict.fromkeys(request.groups_names))
    finished = trio.Event()

    def settled(group_id: str, code: ErrorCode) -> Response:
        codes[group_id] = code
        if len(codes) == len(asked):
            finished.set()
        return Response()

    for group_id in asked:
        try:
            ticket = Waiting(partial(settled, group_id))
            ctx.services.groups.delete_group(group_id, ticket)
            ctx.services.purgatories.submit(ticket, lambda _: None)
        except ApiError as e:
            settled(group_id, e.code)
    if asked:
        await finished.wait()
    return _response(asked, codes)


def _response(groups: Sequence[str], codes: dict[str, ErrorCode]) -> Response:
    results = [
        DeleteGroupsResponse.DeletableGroupResult(group_id=group, error_code=int(codes[group]))
        for group in groups
    ]
    names = tuple(code.name for code in codes.values() if code)
    return Response(DeleteGroupsResponse(results=results), error_names=names)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return _response(request.groups_names, dict.fromkeys(request.groups_names, code))
