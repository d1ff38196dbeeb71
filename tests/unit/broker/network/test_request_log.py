"""The request log: Kafka's line, and no secret in it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from struct import pack
from typing import Any

import pytest
import trio

from highwater.broker.context import Context
from highwater.broker.network.request_log import LOGGER, loggable
from highwater.broker.request.response import FileSlice, NoResponse, Response
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.codec import encode_request
from highwater.kafka.wire.fetch import FetchedPartition, response_parts
from highwater.kafka.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from highwater.world.real.disk import RealDisk
from highwater.world.real.network import RealNetwork

from .conftest import Serving, entry, serving

SECRETS = ("hunter2", "org.apache.kafka.Login required password=swordfish;", "MIIEvQIBADANBg")


async def logged(s: Serving, caplog: pytest.LogCaptureFixture, count: int = 1) -> list[Any]:
    """The lines of the log, once they are written: an answer may arrive earlier."""
    while True:
        found = [m for m in caplog.messages if m.startswith("Completed request:")]
        if len(found) >= count:
            return [json.loads(m.removeprefix("Completed request:")) for m in found]
        await trio.sleep(0)


async def test_a_line_has_what_kafkas_has(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger=LOGGER)
    partition = ProduceRequest.TopicProduceData.PartitionProduceData(index=3, records=b"x" * 77)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    body = encode_request(
        ProduceRequest(transactional_id=None, acks=0, timeout_ms=5, topic_data=[topic]), 9
    )
    quiet = entry(lambda ctx, body: NoResponse(), key=0)
    async with serving(RealNetwork(), quiet) as s:
        client = await s.connect()
        await client.send(bytes(body), key=0, version=9, id_=99)
        (line,) = await logged(s, caplog)
    assert list(line) == [
        "isForwarded", "requestHeader", "request", "response", "connection", "totalTimeMs",
        "requestQueueTimeMs", "localTimeMs", "remoteTimeMs", "throttleTimeMs",
        "responseQueueTimeMs", "sendTimeMs", "securityProtocol", "principal", "listener",
        "clientInformation",
    ]  # fmt: skip
    assert line["requestHeader"] == {
        "requestApiKey": 0, "requestApiVersion": 9, "correlationId": 99, "clientId": "test",
        "requestApiKeyName": "PRODUCE",
    }  # fmt: skip
    assert line["request"] == {
        "transactionalId": None,
        "acks": 0,
        "timeoutMs": 5,
        "topicData": [
            {"name": "t", "partitionData": [{"index": 3, "recordsSizeInBytes": 77}]},
        ],
    }
    assert line["response"] == ""
    times = [line[f"{n}TimeMs"] for n in ("requestQueue", "local", "remote", "responseQueue")]
    assert sum(times) + line["sendTimeMs"] == pytest.approx(line["totalTimeMs"], abs=0.006)
    assert line["principal"] == "User:ANONYMOUS"


async def test_a_fetch_is_told_by_the_size_of_its_records(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG, logger=LOGGER)
    (tmp_path / "log").write_bytes(b"r" * 50)
    piece = FileSlice(RealDisk().open(str(tmp_path / "log")), 10, 40)
    fetched = FetchedPartition(TopicPartition("t", 1), 0, 5, 5, 0, piece, 40)

    def handle(ctx: Context, body: memoryview) -> Response:
        return Response(parts=response_parts(11, 0, 0, [fetched]))

    body = pack(">iiiibiiiiH", -1, 100, 1, 1000, 0, 0, -1, 0, 0, 0)
    async with serving(RealNetwork(), entry(handle)) as s:
        client = await s.connect()
        await client.call(body, version=11)
        (line,) = await logged(s, caplog)
    (topic,) = line["response"]["responses"]
    assert topic["partitions"][0]["recordsSizeInBytes"] == 40
    assert line["request"]["maxWaitMs"] == 100


def alter(configs: dict[str, str], kind: int) -> AlterConfigsRequest:
    resource = AlterConfigsRequest.AlterConfigsResource
    entries = [resource.AlterableConfig(name=n, value=v) for n, v in configs.items()]
    resources = [resource(resource_type=kind, resource_name="1", configs=entries)]
    return AlterConfigsRequest(resources=resources, validate_only=False)


def incremental(configs: dict[str, str], kind: int) -> IncrementalAlterConfigsRequest:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    entries = [
        resource.AlterableConfig(name=n, config_operation=0, value=v) for n, v in configs.items()
    ]
    resources = [resource(resource_type=kind, resource_name="1", configs=entries)]
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=False)


@pytest.mark.parametrize("kind", [2, 4, 99])
async def test_secrets_are_hidden(caplog: pytest.LogCaptureFixture, kind: int) -> None:
    caplog.set_level(logging.DEBUG, logger=LOGGER)
    configs = {
        "ssl.keystore.password": SECRETS[0],
        "listener.name.external.scram-sha-256.sasl.jaas.config": SECRETS[1],
        "ssl.keystore.key": SECRETS[2],
        "a.property.of.a.plugin": SECRETS[0],
        "num.io.threads" if kind == 4 else "retention.ms": "16",
    }
    handlers = (
        entry(lambda ctx, m: Response(AlterConfigsResponse(responses=[])), key=33, raw=False),
        entry(
            lambda ctx, m: Response(IncrementalAlterConfigsResponse(responses=[])),
            key=44,
            raw=False,
        ),
    )
    async with serving(RealNetwork(), *handlers) as s:
        client = await s.connect()
        await client.call(bytes(encode_request(alter(configs, kind), 1)), key=33, version=1)
        await client.call(bytes(encode_request(incremental(configs, kind), 0)), key=44, version=0)
        lines = await logged(s, caplog, 2)
    for secret in SECRETS:
        assert secret not in caplog.text
    for line in lines:
        (resource,) = line["request"]["resources"]
        values = {c["name"]: c["value"] for c in resource["configs"]}
        assert set(values) == set(configs), "only values are hidden"
        shown = [v for v in values.values() if v != "[hidden]"]
        assert shown == ([] if kind == 99 else ["16"])


async def test_what_a_client_proves_itself_with_is_hidden(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger=LOGGER)
    answer = SaslAuthenticateResponse(
        error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=0
    )
    async with serving(
        RealNetwork(), entry(lambda ctx, m: Response(answer), key=36, raw=False)
    ) as s:
        client = await s.connect()
        request = SaslAuthenticateRequest(auth_bytes=b"\0alice\0hunter2")
        await client.call(bytes(encode_request(request, 1)), key=36, version=1)
        (line,) = await logged(s, caplog)
    assert line["request"] == {"authBytes": "[hidden]"}


async def test_it_is_off_and_can_be_turned_on(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(RealNetwork(), entry(lambda ctx, m: Response(parts=[b""]), key=9)) as s:
        client = await s.connect()
        await client.call(b"", key=9)
        caplog.set_level(logging.DEBUG, logger=LOGGER)
        await client.call(b"", key=9)
        assert not caplog.messages
        s.server.request_log.refresh()
        await client.call(b"", key=9)
        assert len(await logged(s, caplog)) == 1


def test_the_value_of_a_logger_is_its_level() -> None:
    assert loggable(8, "kafka.request.logger", "DEBUG") == "DEBUG"
