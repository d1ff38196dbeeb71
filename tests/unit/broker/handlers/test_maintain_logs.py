"""The request of one's own: rolls, retains or compacts, and says what cannot be read."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from highwater.broker.handlers import HANDLERS, api_versions, maintain_logs
from highwater.broker.log.upkeep import LONGEST_S, Upkeep, Work
from highwater.broker.request.response import Response
from highwater.cluster.faults import log_verbs
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.codec import BadMessage
from tests.unit.broker.handlers.conftest import in_broker


def asked(work: int, topic: str, partition: int) -> memoryview:
    name = topic.encode()
    return memoryview(struct.pack(f">bh{len(name)}si", work, len(name), name, partition))


async def ask(b: Any, body: memoryview) -> tuple[int, str, int]:
    """The error, its detail, and the number of replicas."""
    b.services.upkeep = Upkeep(b.services.logs, None)  # type: ignore[arg-type]
    reply = await maintain_logs.handle(b.context(maintain_logs, 0), body)
    assert isinstance(reply, Response)
    assert reply.parts is not None
    answer = b"".join(reply.parts)  # type: ignore[arg-type]
    code, length = struct.unpack_from(">hh", answer)
    (count,) = struct.unpack_from(">i", answer, 4 + length)
    return code, answer[4 : 4 + length].decode(), count


def test_the_harness_asks_for_what_the_broker_answers() -> None:
    assert maintain_logs.API.key == log_verbs.MAINTAIN_LOGS
    assert tuple(Work) == (log_verbs.ROLL, log_verbs.RETAIN, log_verbs.COMPACT)
    assert log_verbs.ALL == maintain_logs.ALL
    assert log_verbs.LONGEST_S > LONGEST_S, "the broker's own words come first"


def test_no_client_is_told_of_it() -> None:
    assert maintain_logs not in HANDLERS
    assert struct.pack(">h", maintain_logs.API.key) not in api_versions._encoded(2, (), -1)


@in_broker()
async def test_what_is_not_here_is_no_replica(b: Any) -> None:
    for work in (0, 1, 2):
        assert await ask(b, asked(work, "absent", -1)) == (0, "", 0)


@in_broker()
async def test_the_coordinators_topics_are_left_alone(b: Any) -> None:
    code, detail, _ = await ask(b, asked(0, "__consumer_offsets", -1))
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "the coordinators' own" in detail


def test_a_client_without_the_right_is_told_so() -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    ctx: Any = None
    reply = maintain_logs.error_response(ctx, asked(0, "t", -1), code)
    assert reply.parts is not None
    assert b"".join(reply.parts)[:2] == struct.pack(">h", code)  # type: ignore[arg-type]
    assert maintain_logs.API.access.whole, "Alter on the cluster"


@pytest.mark.parametrize(
    "body", [b"", b"\0\0\5ab", bytes(asked(3, "t", 0)), bytes(asked(0, "t", 0))[:-1]]
)
def test_a_request_that_does_not_parse(body: bytes) -> None:
    with pytest.raises(BadMessage):
        maintain_logs._parsed(memoryview(body))
