"""What a controller sends is decoded without delay, from the first request on."""

from __future__ import annotations

from typing import Any

import pytest

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
    body = bytes(codec.encode_request(request_class(controller_id=7, controller_epoch=3), version))
    monkeypatch.setattr(codec, "_request_decoders", {})
    codec.prepare_control()
    monkeypatch.setattr(codec, "_compile", None)
    request = codec.decode_request(key, version, body)
    assert (request.controller_id, request.controller_epoch) == (7, 3)
    with pytest.raises(TypeError):
        codec.decode_request(18, 0, b"")  # what was not prepared would have been compiled
