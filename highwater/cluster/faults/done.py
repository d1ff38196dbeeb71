"""The result of a verb."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Effect = str | None
"""The effect that was seen, or None."""


@dataclass(slots=True)
class Done:
    """The result of a verb: its targets, its visible effect, and its undoing."""

    target: str
    effect: Effect = None
    undo_name: str = ""
    undo: Callable[[], Awaitable[Effect]] | None = None
    effect_at_undo: bool = False
    """The fault's own effect is known only when it ends."""
    felt: Callable[[], int] | None = None
    """How many streams or messages the fault has met so far; None if its effect is seen at once."""
    holds: Callable[[], bool] | None = None
    """Whether a fault that lasts is still there: something else may have ended it."""
