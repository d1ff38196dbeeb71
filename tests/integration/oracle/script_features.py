"""Features: what ApiVersions names, and each way in which UpdateFeatures is refused or not."""

from __future__ import annotations

from typing import Any

from tests.integration.oracle.asking import Case

API_VERSIONS, UPDATE_FEATURES = 18, 57
GROUPS = "group.version"
UP, SAFE, UNSAFE = 1, 2, 3


def update(*levels: tuple[str, int], kind: int = UP, **more: Any) -> Any:
    def body(version: int, _: Any) -> dict[str, Any]:
        updates = [
            {"feature": feature, "max_version_level": level}
            | ({"upgrade_type": kind} if version else {"allow_downgrade": kind != UP})
            for feature, level in levels
        ]
        return {"timeout_ms": 5000, "feature_updates": updates, **(more if version else {})}

    return body


def used(level: int) -> Any:
    """Whether ApiVersions shows this level of group.version."""

    def shown(answer: Any) -> bool:
        levels = {f["name"]: f["max_version_level"] for f in answer["finalized_features"]}
        return bool(levels.get(GROUPS, 0) == level)

    return shown


def cases() -> list[Case]:
    client = {"client_software_name": "a", "client_software_version": "1"}
    refused = {
        "of nothing": update(("nope", 1)),
        "above the highest": update((GROUPS, 2)),
        "below 0": update((GROUPS, -1), kind=UNSAFE),
        "down, and not asked for": update((GROUPS, 0)),
        "a type that there is not": update((GROUPS, 1), kind=9),
        "type 0": update((GROUPS, 0), kind=0),
        "one of two": update((GROUPS, 1), ("nope", 1)),
    }
    taken = {
        "nothing": update(),
        "the same level": update((GROUPS, 1)),
        "the same level, safely": update((GROUPS, 1), kind=SAFE),
        "twice": update((GROUPS, 1), (GROUPS, 1)),
        "down, only validated": update((GROUPS, 0), kind=SAFE, validate_only=True),
    }
    return [
        Case("at first", API_VERSIONS, client, versions=(3, 4), until=used(1)),
        *(Case(name, UPDATE_FEATURES, body) for name, body in (refused | taken).items()),
        Case("still", API_VERSIONS, client, versions=(3, 4), until=used(1)),
        Case("down", UPDATE_FEATURES, update((GROUPS, 0), kind=SAFE), versions=(1, 1)),
        Case("it is down", API_VERSIONS, client, versions=(3, 4), until=used(0)),
        Case("up as a downgrade", UPDATE_FEATURES, update((GROUPS, 1), kind=UNSAFE)),
        Case("down again", UPDATE_FEATURES, update((GROUPS, 0), kind=UNSAFE), versions=(2, 2)),
        Case("up", UPDATE_FEATURES, update((GROUPS, 1)), versions=(0, 0)),
        Case("it is up", API_VERSIONS, client, versions=(3, 4), until=used(1)),
    ]
