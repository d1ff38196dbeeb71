"""Brokers asked whether they show a change, when one gives an answer that makes no sense."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from highwater.broker.membership.agreement import about_topics
from highwater.kafka.wire.codec import encode_response
from highwater.kafka.wire.header import parse_request_header, response_header
from highwater.kafka.wire.messages import MetadataResponse
from highwater.world.api import Connection
from tests.unit.broker.handlers.conftest import in_broker


async def _frame(connection: Connection) -> bytes:
    buffer, chunk = b"", bytearray(4096)
    while len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4]):
        n = connection.recv_into(memoryview(chunk))
        if n is None:
            await connection.wait_readable()
        else:
            assert n, "closed before a whole request had come"
            buffer += chunk[:n]
    return buffer[4:]


async def _name_another_topic(connection: Connection) -> None:
    """Answers one Metadata request with a topic that was not in the request."""
    header = parse_request_header(await _frame(connection))
    topic = MetadataResponse.MetadataResponseTopic(
        error_code=0, name="another", is_internal=False, partitions=[]
    )
    response = MetadataResponse(brokers=[], cluster_id="c", controller_id=1, topics=[topic])
    answer = response_header(header.api_key, header.api_version, header.correlation_id)
    answer += encode_response(response, header.api_version)
    connection.send([len(answer).to_bytes(4) + answer])


@in_broker()
async def test_an_answer_that_cannot_be_compared_ends_no_broker(
    b: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await b.update_metadata({}, {1: None, 2: None}, host="machine")
    listener = await b.services.world.network.listen("machine", 9092)
    settled = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(b.services.agreement.run)
        asking = b.services.agreement.begin(about_topics({"t": (0,)}), 10_000, settled.set)
        assert not asking.over
        await _name_another_topic(await listener.accept())
        with trio.fail_after(1):  # less than the patience with a broker that says nothing
            await settled.wait()
        assert asking.over
        later = b.services.agreement.begin(about_topics({"t": ()}), 1000, lambda: None)
        assert not later.over, "it goes on asking"
        nursery.cancel_scope.cancel()
    assert "broker 2 is not waited for" in caplog.text
