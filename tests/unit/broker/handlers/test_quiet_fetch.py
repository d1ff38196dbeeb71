"""A follower's fetch of partitions at rest: no second read, and the time of the fetch counts."""

from __future__ import annotations

from typing import Any

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.context import Delayed
from highwater.broker.handlers import fetch
from highwater.broker.request.response import Response
from highwater.kafka.wire.fetch import FetchPartition, FetchRequest, build_fetch
from tests.unit.broker.handlers.conftest import in_broker
from tests.unit.broker.handlers.test_fetch_waits import A, B, append, lead, state

FOLLOWER = 2


def ask(b: Any, session: int, epoch: int, asked: list[FetchPartition]) -> None:
    """A follower's fetch that does not wait."""
    request = FetchRequest(FOLLOWER, 0, 1, 1 << 20, 0, session, epoch, asked, [], "")
    reply = fetch.handle(b.context(fetch, 11), memoryview(build_fetch(request, 11)))
    assert isinstance(reply, Delayed)
    answers: list[Response] = []
    b.services.purgatories.submit(reply.operation, answers.append)
    assert len(answers) == 1


@in_broker()
async def test_a_partition_at_rest_is_not_read_again_and_its_follower_is_there(b: Any) -> None:
    await lead(b, replicas=(1, FOLLOWER))
    replicas = b.services.replicas
    for tp in (A, B):
        told = state(1, 0, (1, FOLLOWER))
        replicas.partitions[tp].isr.reset((1, FOLLOWER), told.zk_version)
    ask(b, 0, 0, [FetchPartition(tp, 0, 0, -1, 0, 1 << 20) for tp in (A, B)])
    (session,) = replicas.sessions._sessions.values()
    first = {tp: quiet.read for tp, quiet in session.quiet.items()}
    assert first.keys() == {A, B}

    await trio.sleep(0.05)
    now_ms = monotonic_ms()
    append(b, A)
    ask(b, session.id, 1, [])
    assert session.quiet.keys() == {B}
    assert session.quiet[B].read is first[B]
    assert replicas.partitions[B].followers[FOLLOWER].last_fetch_ms >= now_ms
    assert replicas.partitions[B].followers[FOLLOWER].last_caught_up_ms >= now_ms
