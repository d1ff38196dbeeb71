"""The rules for names of topics.

Names end up as directory names and in metric names, where a dot reads as an underscore: two names
that differ in those alone collide.

Source: org.apache.kafka.common.internals.Topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from highwater.kafka.errors import ApiError, ErrorCode

MAX_NAME_LENGTH = 249
GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset(
    {GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC}
)
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def problem_with(name: str) -> str | None:
    """The reason why this cannot be a topic's name, or None."""
    if not name:
        return "a topic name cannot be empty"
    if name in (".", ".."):
        return f"a topic cannot be named {name!r}"
    if len(name) > MAX_NAME_LENGTH:
        return f"a topic name has at most {MAX_NAME_LENGTH} characters, and this has {len(name)}"
    if _LEGAL.fullmatch(name) is None:
        return f"topic name {name!r} may hold only ASCII letters, digits, '.', '_' and '-'"
    return None


def is_valid_name(name: str) -> bool:
    return problem_with(name) is None


def check_name(name: str) -> None:
    """Raises ApiError(INVALID_TOPIC_EXCEPTION)."""
    problem = problem_with(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def check_collision(name: str, existing: Iterable[str]) -> None:
    """Raises ApiError if an existing topic differs from it in '.' and '_' only."""
    if "." not in name and "_" not in name:
        return
    key = name.replace(".", "_")
    colliding = sorted(t for t in existing if t != name and t.replace(".", "_") == key)
    if colliding:
        detail = f"topic name {name!r} collides with {', '.join(colliding)} ('.' and '_' are alike)"
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, detail)
