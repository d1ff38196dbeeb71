"""The operations of IncrementalAlterConfigs on one resource's properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from highwater.kafka.config.property_row import Kind, Property, text_of
from highwater.kafka.errors import ApiError, ErrorCode


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def joined(current: str, operation: int, value: str) -> str:
    """A list after items were appended or subtracted."""
    have = [i for i in current.split(",") if i]
    items = [i for i in value.split(",") if i]
    if operation == Operation.APPEND:
        have += [i for i in items if i not in have]
    else:
        have = [i for i in have if i not in items]
    return ",".join(have)


def apply_operations(
    table: Mapping[str, Property],
    what: str,
    defaults: Mapping[str, Any],
    overrides: Mapping[str, str],
    operations: Sequence[tuple[str, int, str | None]],
) -> dict[str, str]:
    """The overrides after the operations; raises ApiError.  `what` names those that have the
    properties of the table, in the plural."""
    changed = dict(overrides)
    for key, operation, value in operations:
        if operation == Operation.DELETE:
            changed.pop(key, None)  # of any name: an older or newer Kafka may have set it
            continue
        row = table.get(key)
        if row is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{key} is not a property of {what}")
        if operation not in (Operation.SET, Operation.APPEND, Operation.SUBTRACT):
            detail = f"operation {operation} on {key} is none of set, delete, append, subtract"
            raise ApiError(ErrorCode.INVALID_REQUEST, detail)
        if value is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{key} has no value (null)")
        if operation == Operation.SET:
            changed[key] = value
            continue
        if row.kind is not Kind.LIST:
            detail = f"{key} is not a list: it cannot be appended to or subtracted from"
            raise ApiError(ErrorCode.INVALID_CONFIG, detail)
        changed[key] = joined(changed.get(key) or text_of(defaults[key]), operation, value)
    return changed
