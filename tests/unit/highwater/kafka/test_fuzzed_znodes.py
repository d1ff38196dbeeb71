"""Whatever a znode holds: a value, or BadZnode, and nothing else."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.kafka.znodes import BadZnode
from tests.fuzzing.znode_samples import EXAMPLES, damaged_data, decode


@pytest.mark.parametrize("kind", EXAMPLES)
def test_what_kafka_writes_is_understood(kind: str) -> None:
    """Else the fuzzing would begin from nothing."""
    decode(kind, EXAMPLES[kind])


@pytest.mark.thorough
@settings(max_examples=1000, deadline=None)
@given(chance=st.randoms(use_true_random=False), kind=st.sampled_from(sorted(EXAMPLES)))
def test_every_znode_is_one_or_is_refused(chance: Random, kind: str) -> None:
    with suppress(BadZnode):
        decode(kind, damaged_data(chance, EXAMPLES[kind]))
