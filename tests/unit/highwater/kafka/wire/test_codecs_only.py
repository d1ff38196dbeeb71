"""Runs in a process of its own, as it changes the meaning of `kafka`."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from highwater.kafka.wire.codecs_only import load_codecs_only
assert load_codecs_only()
from highwater.kafka.wire import codec
from highwater.kafka.wire.header import APIS
assert not any(name.startswith("kafka.net") for name in sys.modules), "the clients were loaded"
for key in APIS:
    try:
        codec.request_class(key), codec.response_class(key)
    except codec.UnknownApi:
        pass
message = codec.response_class(3)(brokers=[], topics=[])
assert codec.decode_response(3, 12, codec.encode_response(message, 12)) == message
import broker.server
assert not load_codecs_only()
print("ok")
"""


@pytest.mark.thorough
def test_a_broker_runs_on_the_codecs_alone() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout == "ok\n", done.stderr
