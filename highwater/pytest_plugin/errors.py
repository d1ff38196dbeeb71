"""The errors that a test sees: each is one clear line, and what it rests on below it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

from highwater.agent.client import ControlError


class FixtureError(Exception):
    """A call was refused, or failed."""


class NotInTime(FixtureError, AssertionError):
    """The condition did not hold in time; the message has the cluster's state."""


class SettingsWarning(UserWarning):
    """A property that no broker knows; it may be misspelled."""


class Anomaly(AssertionError):
    """A history shows what Kafka, or the application, must not do."""


class Ending(ABC):
    """Something that lasts until its block ends, or `end` is called."""

    @abstractmethod
    def end(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: object
    ) -> None:
        __tracebackhide__ = True
        try:
            self.end()
        except FixtureError as late:
            if error is None:
                raise
            error.add_note(str(late))


class Plainly:
    """Says the agent's errors in words; a class, because pytest hides no frames of contextlib."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: object
    ) -> None:
        __tracebackhide__ = True
        if isinstance(error, ControlError):
            wanted = NotInTime if error.kind == "timeout" else FixtureError
            raise wanted(
                "\n".join([*error.message.split("; "), *told(error.state or {})])
            ) from None


def told(state: dict[str, Any]) -> list[str]:
    """The parts of the cluster's state that a time-out's message leaves out."""
    members = state.get("members", {})
    lines = [", ".join(f"{name} {member['state']}" for name, member in members.items())]
    lines += [f"{one} is cut off from {other}" for one, other in state.get("cuts", [])]
    if "controller" in state:
        lines.append(f"the controller is {state['controller']}")
    return [f"  {line}" for line in lines if line]
