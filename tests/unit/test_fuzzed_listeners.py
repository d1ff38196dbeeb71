"""Strangers at the ports: servers answer or close, and go on (`tests/fuzzing`)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzzing import listeners, sasl
from tests.fuzzing.attacked import PORTS

pytestmark = pytest.mark.thorough
_chances = st.randoms(use_true_random=False)


@settings(max_examples=500, deadline=None)
@given(chance=_chances)
def test_a_login_succeeds_rightly_or_is_refused_in_a_line(chance: Random) -> None:
    sasl.check_login(chance)


def test_an_honest_client_is_known_by_every_mechanism() -> None:
    """Else the fuzzing would reach no second token."""
    seen = [sasl.check_login(Random(f"login {number}")) for number in range(300)]
    assert seen.count("known") > 5


@settings(max_examples=500, deadline=None)
@given(chance=_chances)
def test_a_call_finds_its_route_or_is_refused(chance: Random) -> None:
    listeners.check_route(chance)


@pytest.mark.parametrize("port", PORTS)
async def test_a_port_goes_on(port: str) -> None:
    await PORTS[port](range(300))
