"""The errors of the control API: a kind, which decides the status, and one clear line."""

from __future__ import annotations

from typing import Any

from highwater.child_processes import StartError
from highwater.cluster.faults.fault_model import ScheduleError
from highwater.cluster.interface import ClusterError

STATUS = {
    "bad_request": 400,
    "unauthorized": 401,
    "not_found": 404,
    "refused": 409,
    "timeout": 504,
    "failed": 500,
}


class ControlError(Exception):
    """`kind` is one of STATUS; `state` shows the cluster, where that helps."""

    def __init__(self, kind: str, message: str, state: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.state = state

    def as_json(self) -> dict[str, Any]:
        error = {"kind": self.kind, "message": self.message}
        return {"error": error if self.state is None else {**error, "state": self.state}}


def control_error(error: Exception) -> ControlError:
    """The answer to an error that a call raised."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ControlError):
        return error
    if isinstance(error, ScheduleError):
        return ControlError("bad_request", str(error))
    if isinstance(error, ClusterError):
        return ControlError("refused", str(error))
    if isinstance(error, StartError):
        return ControlError("failed", str(error))
    return ControlError("failed", f"{type(error).__name__}: {error}")
