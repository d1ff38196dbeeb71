"""Properties of groups: described, changed by both requests, and each way in which one is
refused."""

from __future__ import annotations

from typing import Any

from tests.integration.oracle.asking import Case
from tests.integration.oracle.script_admin import ALTER, DESCRIBE_CONFIGS, INCREMENTAL

GROUP = 32
SESSION, BEATS = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
SET, DELETE, APPEND, SUBTRACT = range(4)


def shown(name: str = "g", *keys: str, **more: Any) -> dict[str, Any]:
    resource = {
        "resource_type": GROUP, "resource_name": name,
        "configuration_keys": list(keys or (SESSION, BEATS)),
    }  # fmt: skip
    return {"resources": [resource], "include_synonyms": True, **more}


def sets(
    *changes: tuple[str, int, str | None], name: str = "g", check: bool = False
) -> dict[str, Any]:
    given = [{"name": n, "config_operation": op, "value": value} for n, op, value in changes]
    resource = {"resource_type": GROUP, "resource_name": name, "configs": given}
    return {"resources": [resource], "validate_only": check}


def replaces(name: str = "g", **values: str | None) -> dict[str, Any]:
    given = [{"name": f"consumer.{n.replace('_', '.')}", "value": v} for n, v in values.items()]
    resource = {"resource_type": GROUP, "resource_name": name, "configs": given}
    return {"resources": [resource], "validate_only": False}


def cases() -> list[Case]:
    refused = {
        "below the least session": sets((SESSION, SET, "44999")),
        "above the longest session": sets((SESSION, SET, "60001")),
        "below the least interval": sets((BEATS, SET, "4999")),
        "above the longest interval": sets((BEATS, SET, "15001")),
        "no number": sets((SESSION, SET, "x")),
        "an empty value": sets((SESSION, SET, "")),
        "an unknown name": sets(("session.timeout.ms", SET, "50000")),
        "an unknown name goes": sets(("session.timeout.ms", DELETE, None)),
        "appended": sets((SESSION, APPEND, "50000")),
        "subtracted": sets((SESSION, SUBTRACT, "50000")),
        "no value": sets((SESSION, SET, None)),
        "no operation": sets((SESSION, 9, "50000")),
        "twice": sets((SESSION, SET, "50000"), (SESSION, SET, "50001")),
        "no group": sets((SESSION, SET, "50000"), name=""),
        "only to check": sets((SESSION, SET, "50000"), check=True),
        "wrong, to check": sets((SESSION, SET, "1"), check=True),
        "nothing": sets(),
        "what was not set goes": sets((SESSION, DELETE, None)),
    }
    return [
        Case("of a group without any", DESCRIBE_CONFIGS, shown()),
        Case("of no such group", DESCRIBE_CONFIGS, shown("nobody")),
        Case("of no group", DESCRIBE_CONFIGS, shown("")),
        Case("of no such property", DESCRIBE_CONFIGS, shown("g", "x")),
        *(Case(name, INCREMENTAL, body) for name, body in refused.items()),
        Case("as before", DESCRIBE_CONFIGS, shown(), versions=(4, 4)),
        Case("both", INCREMENTAL, sets((SESSION, SET, "50000"), (BEATS, SET, "6000")),
             versions=(1, 1)),
        Case("both", DESCRIBE_CONFIGS, shown()),
        Case("one goes", INCREMENTAL, sets((SESSION, DELETE, None)), versions=(1, 1)),
        Case("the other", DESCRIBE_CONFIGS, shown(), versions=(4, 4)),
        Case("by the old way", ALTER, replaces(session_timeout_ms="55000"), versions=(2, 2)),
        Case("replaced", DESCRIBE_CONFIGS, shown(), versions=(4, 4)),
        Case("by the old way, wrong", ALTER, replaces(session_timeout_ms="1")),
        Case("by the old way, none", ALTER, replaces(session_timeout_ms=None)),
        Case("by the old way, no group", ALTER, replaces("", session_timeout_ms="55000")),
        Case("by the old way, nothing", ALTER, replaces(), versions=(2, 2)),
        Case("all gone", DESCRIBE_CONFIGS, shown(), versions=(4, 4)),
        Case("a strange name", INCREMENTAL, sets((BEATS, SET, "6000"), name="a b/%c"),
             versions=(1, 1)),
        Case("a strange name", DESCRIBE_CONFIGS, shown("a b/%c"), versions=(4, 4)),
    ]  # fmt: skip
