"""The levels of a broker's loggers, read and changed while it runs (KIP-412).

The resource is BROKER_LOGGER, its name the broker's id.  Nothing is stored: a restart forgets all.
`kafka.request.logger` at DEBUG turns the request log on.  Levels have log4j's names.

Source: kafka.utils.Log4jController.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from highwater.kafka.errors import ApiError, ErrorCode

ROOT = "root"
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES = {logging.WARNING: "WARN", logging.CRITICAL: "FATAL"}
_SET, _DELETE = 0, 1


def levels() -> dict[str, str]:
    """Every logger's effective level."""
    found = {ROOT: _name(logging.getLogger().getEffectiveLevel())}
    for name in sorted(logging.Logger.manager.loggerDict):
        found[name] = _name(logging.getLogger(name).getEffectiveLevel())
    return found


def _name(level: int) -> str:
    return _NAMES.get(level) or logging.getLevelName(level)


def alter(operations: Sequence[tuple[str, int, str | None]], validate_only: bool) -> None:
    """Carries out all of (logger, operation, level), or none with an ApiError."""
    known = levels()
    for name, operation, level in operations:
        if operation not in (_SET, _DELETE):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name}: a level is set or deleted")
        if name not in known:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"there is no logger {name}")
        if operation == _SET and (level or "") not in _LEVELS:
            detail = f"{name}={level}: must be one of {', '.join(_LEVELS)}"
            raise ApiError(ErrorCode.INVALID_CONFIG, detail)
        if operation == _DELETE and name == ROOT:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the root logger needs a level")
    if validate_only:
        return
    for name, operation, level in operations:
        logger = logging.getLogger(None if name == ROOT else name)
        logger.setLevel(_LEVELS[level or ""] if operation == _SET else logging.NOTSET)
