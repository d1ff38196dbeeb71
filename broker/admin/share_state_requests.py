"""What the five APIs of the share coordinator have in common: requests of brokers, whose calls go
to the coordinator one by one, and whose answer tells of each.

A request without a group or without partitions gets an empty answer.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from highwater.broker.admin.mutations import error_names
from highwater.broker.context import Access, Context, Delayed, Reply, cluster
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.request.response import Response
from highwater.broker.share.persister import SharePartitionKey, StateAnswer
from highwater.broker.share.state_messages import calls_of, response_of
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Operation

ACCESS = Access(whole=(cluster(Operation.CLUSTER_ACTION),))
_Answers = dict[SharePartitionKey, StateAnswer]


def carry_out(ctx: Context, request: Any) -> Reply:
    key, coordinator = ctx.api.key, ctx.services.share_states
    calls = calls_of(key, request) if request.group_id else []
    answers: _Answers = {}
    if not calls:
        return _response(key, answers)
    ticket = Waiting(lambda found: _response(key, found))
    left = dict.fromkeys(call.key for call in calls)

    def take(share_partition: SharePartitionKey, answer: StateAnswer) -> None:
        answers[share_partition] = answer
        if len(answers) == len(left):
            coordinator.answer(ticket, {key: answers[key] for key in left})

    for call in calls:
        coordinator.carry_out(call, partial(take, call.key))
    return Delayed(ticket)


def refused(ctx: Context, request: Any, code: ErrorCode) -> Response:
    calls = calls_of(ctx.api.key, request)
    return _response(ctx.api.key, {call.key: StateAnswer(code) for call in calls})


def _response(key: int, answers: _Answers) -> Response:
    names = error_names(answer.error for answer in answers.values())
    return Response(response_of(key, answers.items()), error_names=names)
