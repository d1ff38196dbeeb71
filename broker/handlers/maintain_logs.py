"""MaintainLogs, an API of Highwater's own under a key that Kafka does not use: rolls, retains or
compacts this broker's replicas of a topic at once.  ApiVersions does not list it.

    request    work int8 (`Work`), topic string, partition int32 (-1: all)
    response   error int16, detail string, then an array of partition int32, changed int64,
               log start int64, size int64
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from highwater.broker.context import Access, Api, Context, Reply, cluster
from highwater.broker.log.upkeep import Done, Work
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation
from highwater.kafka.topic_names import INTERNAL_TOPICS
from highwater.kafka.wire.codec import BadMessage

API = Api(
    key=10_001,
    name="MaintainLogs",
    versions=(0, 0),
    access=Access(whole=(cluster(Operation.ALTER),)),
    raw=True,
)
ALL = -1


async def handle(ctx: Context, body: memoryview) -> Reply:
    work, topic, wanted = _parsed(body)
    try:
        if topic in INTERNAL_TOPICS:
            detail = f"{topic} is the coordinators' own"
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, detail)
        logs = {
            tp.partition: log
            for tp, log in sorted(ctx.services.logs.logs.items())
            if tp.topic == topic and wanted in (ALL, tp.partition)
        }
        done = [(number, await ctx.services.upkeep.do(work, log)) for number, log in logs.items()]
    except ApiError as e:
        return error_response(ctx, body, e.code, str(e))
    return Response(parts=(_answer(ErrorCode.NONE, "", done),))


def error_response(ctx: Context, body: memoryview, code: ErrorCode, detail: str = "") -> Response:
    return Response(parts=(_answer(code, detail or code.name, ()),), error_names=(code.name,))


def _parsed(body: memoryview) -> tuple[Work, str, int]:
    try:
        work, length = struct.unpack_from(">bh", body)
        topic = str(body[3 : 3 + length], "utf-8")
        (partition,) = struct.unpack_from(">i", body, 3 + length)
        return Work(work), topic, partition
    except (struct.error, ValueError) as e:
        raise BadMessage(f"a MaintainLogs request that does not parse: {e}") from e


def _answer(code: ErrorCode, detail: str, done: Sequence[tuple[int, Done]]) -> bytes:
    text = detail.encode()[:1000]
    head = struct.pack(f">hh{len(text)}si", int(code), len(text), text, len(done))
    return head + b"".join(struct.pack(">iqqq", number, *one) for number, one in done)
