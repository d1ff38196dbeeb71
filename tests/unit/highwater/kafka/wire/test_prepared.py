"""The messages that a broker prepares are encoded and decoded without delay from the first request
on."""

from __future__ import annotations

import pytest
from kafka.protocol.schemas.fields import struct

from highwater.kafka.wire import codec
from highwater.kafka.wire import controller_messages as control

UNPREPARED = 18, 0


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (3, 12),
        (4, control.LEADER_AND_ISR_VERSION),
        (5, control.STOP_REPLICA_VERSION),
        (6, control.UPDATE_METADATA_VERSION),
    ],
)
def test_nothing_is_compiled_when_it_comes(
    monkeypatch: pytest.MonkeyPatch, key: int, version: int
) -> None:
    request_class, response_class = codec.request_class(key), codec.response_class(key)
    other = codec.request_class(UNPREPARED[0])
    for message in request_class, response_class, other:
        monkeypatch.setattr(message._struct, "_compiled_encoders", {})
    for decoders in "_request_decoders", "_response_decoders":
        monkeypatch.setattr(codec, decoders, {})
    codec.prepare((key, version))
    monkeypatch.setattr(codec, "_compile", None)
    monkeypatch.setattr(struct, "compile", None, raising=False)
    request = codec.encode_request(request_class(), version)
    assert codec.decode_request(key, version, bytes(request))
    answer = codec.encode_response(response_class(), version)
    assert codec.decode_response(key, version, bytes(answer))
    with pytest.raises(TypeError):
        codec.decode_request(*UNPREPARED, b"")  # would have been compiled
    with pytest.raises(TypeError):
        codec.encode_request(other(), UNPREPARED[1])
