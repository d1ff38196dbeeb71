"""The controller's table of procedures."""

from __future__ import annotations

from typing import get_args

from highwater.controller.rules.events import Answer, Event
from highwater.controller.rules.machine import PROCEDURES


def test_there_is_a_procedure_for_every_event() -> None:
    assert set(PROCEDURES) == set(get_args(Event)) - {Answer}
