"""Messages are decoded alike where Python leaves assertions out: benchmarks and mutants run so."""

from __future__ import annotations

import subprocess
import sys

from highwater.kafka.wire.codec import decode_request, encode_request
from highwater.kafka.wire.controller_messages import (
    UPDATE_METADATA_VERSION,
    FeatureInUse,
    UpdateMetadataRequest,
)

UPDATE_METADATA = 6
DECODES = """
import sys
from highwater.kafka.wire.codec import decode_request
assert False, "this process must run without assertions"
body = bytes.fromhex(sys.argv[1])
print(decode_request(int(sys.argv[2]), int(sys.argv[3]), body))
"""


def test_structures_within_tagged_fields() -> None:
    request = UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        broker_epoch=5,
        topic_states=[],
        live_brokers=[],
        features_in_use=[FeatureInUse(name=name, level=1) for name in ("a", "b")],
        all_topics=["t"],
    )
    body = bytes(encode_request(request, UPDATE_METADATA_VERSION))
    decoded = decode_request(UPDATE_METADATA, UPDATE_METADATA_VERSION, body)
    assert decoded.all_topics == ["t"]
    numbers = (str(UPDATE_METADATA), str(UPDATE_METADATA_VERSION))
    found = subprocess.run(
        [sys.executable, "-O", "-c", DECODES, body.hex(), *numbers],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.stdout.strip() == str(decoded), found.stderr
