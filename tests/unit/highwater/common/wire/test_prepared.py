"""What a controller sends is encoded and decoded without delay, from the first request on."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.schemas.fields import struct

from highwater.common.wire import codec, control


@pytest.mark.parametrize(
    ("key", "version", "request_class"),
    [
        (4, control.LEADER_AND_ISR_VERSION, control.LeaderAndIsrRequest),
        (5, control.STOP_REPLICA_VERSION, control.StopReplicaRequest),
        (6, control.UPDATE_METADATA_VERSION, control.UpdateMetadataRequest),
    ],
)
def test_nothing_is_compiled_when_it_comes(
    monkeypatch: pytest.MonkeyPatch, key: int, version: int, request_class: Any
) -> None:
    response_class = codec.response_class(key)
    for message in request_class, response_class:
        monkeypatch.setattr(message._struct, "_compiled_encoders", {})
    for decoders in "_request_decoders", "_response_decoders":
        monkeypatch.setattr(codec, decoders, {})
    codec.prepare_control()
    monkeypatch.setattr(codec, "_compile", None)
    monkeypatch.setattr(struct, "compile", None, raising=False)
    body = codec.encode_request(request_class(controller_id=7, controller_epoch=3), version)
    request = codec.decode_request(key, version, bytes(body))
    assert (request.controller_id, request.controller_epoch) == (7, 3)
    answer = codec.encode_response(response_class(error_code=41), version)
    assert codec.decode_response(key, version, bytes(answer)).error_code == 41
    with pytest.raises(TypeError):
        codec.decode_request(18, 0, b"")  # what was not prepared would have been compiled
    with pytest.raises(TypeError):
        codec.encode_request(codec.request_class(18)(), 0)
