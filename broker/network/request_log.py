"""The request log: one line of JSON for each request, as Kafka's `kafka.request.logger` writes it.

It is off unless that logger is at DEBUG: through KAFKA_LOG4J_LOGGERS=kafka.request.logger=DEBUG, or
at run time through IncrementalAlterConfigs of the broker's BROKER_LOGGER resource (`kafka-configs
--entity-type broker-loggers`).  The request's part is made when a handler takes it, because a
Produce gives up its buffer before it is answered.  Of record batches only the size is logged.

Configuration values may be secrets.  A value is shown only if its property is known and is no
password; values of unknown properties are hidden, as in Kafka.

Source: kafka.network.RequestConvertToJson, kafka.server.KafkaConfig.loggableValue.
"""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any

from highwater.broker.request.response import FileSlice, Part
from highwater.kafka.config.checks import HIDDEN, is_secret
from highwater.kafka.config.property_table import KEPT, TOPIC
from highwater.kafka.wire.codec import BadMessage, UnknownApi
from highwater.kafka.wire.header import api_name
from highwater.kafka.wire.json_form import message_json, request_json, response_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from highwater.broker.network.request import Request
    from highwater.broker.request.response import Response

LOGGER = "kafka.request.logger"
log = logging.getLogger(LOGGER)

_WITH_CONFIGS = (33, 44)
_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS = 2, 4, 8, 16
_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]+\.")


class RequestLog:
    """Makes the lines while requests are logged."""

    def __init__(self) -> None:
        self.enabled = log.isEnabledFor(logging.DEBUG)

    def refresh(self) -> None:
        """Reads the logger's level, which may have changed."""
        self.enabled = log.isEnabledFor(logging.DEBUG)

    def taken(self, request: Request) -> None:
        """Makes the request's part of the line, while the request still has its body."""
        line: dict[str, Any] = {
            "isForwarded": False,
            "requestHeader": {
                "requestApiKey": request.api_key,
                "requestApiVersion": request.api_version,
                "correlationId": request.correlation_id,
                "clientId": request.client_id,
                "requestApiKeyName": _enum_name(api_name(request.api_key)),
            },
            "request": "",
            "response": "",
        }
        assert request.body is not None
        try:
            body = request_json(request.api_key, request.api_version, request.body)
        except (BadMessage, UnknownApi) as e:
            body = {"error": str(e)}
        if request.api_key in _WITH_CONFIGS:
            _hide(body)
        line["request"] = body
        request.logged = line

    def answered(self, request: Request, response: Response) -> None:
        line = request.logged
        if line is None:
            return
        try:
            if response.parts is None:
                line["response"] = message_json(response.message, request.api_version)
            else:
                whole = _joined(response.parts)
                line["response"] = response_json(request.api_key, request.api_version, whole)
        except (BadMessage, UnknownApi) as e:
            line["response"] = {"error": str(e)}

    def sent(self, request: Request, now: int) -> None:
        line = request.logged
        assert line is not None
        connection = request.connection
        name, version = connection.software
        line |= {
            "connection": connection.id,
            "totalTimeMs": _ms(now - request.received),
            "requestQueueTimeMs": _ms(request.taken - request.received),
            "localTimeMs": _ms(request.handled - request.taken),
            "remoteTimeMs": _ms(request.ready - request.handled),
            "throttleTimeMs": request.throttle_ms,
            "responseQueueTimeMs": _ms(request.taken_back - request.ready),
            "sendTimeMs": _ms(now - request.taken_back),
            "securityProtocol": connection.listener.security_protocol,
            "principal": connection.principal,
            "listener": connection.listener.name,
            "clientInformation": {"softwareName": name, "softwareVersion": version},
        }
        extra = request.extra
        if extra is not None and extra.temporary_memory_bytes:
            line["temporaryMemoryBytes"] = extra.temporary_memory_bytes
        if extra is not None and extra.conversions_ns:
            line["messageConversionsTime"] = _ms(extra.conversions_ns)
        log.debug("Completed request:%s", json.dumps(line, separators=(",", ":")))


def _ms(ns: int) -> float:
    """In milliseconds, to the microsecond."""
    return ns // 1000 / 1000


def _enum_name(name: str) -> str:
    """Turns JoinGroup into JOIN_GROUP."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def _joined(parts: Sequence[Part]) -> bytearray:
    """A body in which zeros stand for records, which go from file to socket."""
    whole = bytearray()
    for part in parts:
        whole += bytes(part.size) if isinstance(part, FileSlice) else part
    return whole


def _hide(body: dict[str, Any]) -> None:
    for resource in body.get("resources", ()):
        for config in resource["configs"]:
            if config["value"] is not None:
                kind, name = resource["resourceType"], config["name"]
                config["value"] = loggable(kind, name, config["value"])


def loggable(resource_type: int, name: str, value: str) -> str:
    """A configuration's value, or a mask if it may be a secret."""
    if resource_type in (_BROKER_LOGGER, _CLIENT_METRICS):
        return value
    if resource_type == _TOPIC:
        known = name in TOPIC
    else:
        known = _LISTENER_PREFIX.sub("", name) in KEPT
        known = known and resource_type == _BROKER
    return value if known and not is_secret(name) else HIDDEN
