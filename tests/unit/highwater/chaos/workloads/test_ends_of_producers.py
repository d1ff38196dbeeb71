"""What librdkafka tells of a delivered record, and of a producer that is of no use any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from highwater.chaos.workloads.confluent import offset_of, serve


def raising(error: BaseException) -> Any:
    def call(timeout_s: float) -> int:
        raise error

    return call


def test_a_delivered_record_may_have_no_offset() -> None:
    """The callback raised a TypeError, which ended the workload's producer in a run with security
    (seed 3, on an overloaded machine)."""
    assert offset_of(SimpleNamespace(offset=lambda: None)) == -1
    assert offset_of(SimpleNamespace(offset=lambda: 0)) == 0


def test_a_fatal_error_ends_a_producer_and_a_callback_s_own_is_told() -> None:
    hidden = (
        "<method 'flush' of 'cimpl.Producer' objects> returned NULL without setting an exception"
    )
    assert serve(lambda timeout_s: 0, 0.1)
    assert not serve(raising(KafkaException(KafkaError(KafkaError._FENCED))), 0.1)
    assert not serve(raising(SystemError(hidden)), 0.1)
    with pytest.raises(SystemError, match="BaseException subclass"):
        serve(raising(SystemError("exception <class 'str'> is not a BaseException subclass")), 0.1)
