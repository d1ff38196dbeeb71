"""The cluster that a test needs: by its markers, else by the command line, else the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from highwater.pytest_plugin.choices import (
    GROUP_PROTOCOLS,
    MOST_BROKERS,
    PROFILES,
    RUNTIMES,
    SECURITIES,
    is_runtime,
)


@dataclass(frozen=True, slots=True)
class Settings:
    brokers: int = 3
    config: tuple[tuple[str, str], ...] = ()
    """Broker properties, in the order of their names."""
    profile: str = "test"
    seed: int = 0
    runtime: str = "process"
    security: str = "plaintext"
    keep: bool = False
    zookeeper: str = ""
    """As `highwater up --zookeeper` has it; empty: embedded."""
    group_protocol: str = "classic"
    """What `group()` gives, unless the test says otherwise."""

    @property
    def cluster(self) -> tuple[object, ...]:
        """Equal for tests that can share a cluster."""
        return self.brokers, self.config, self.profile, self.runtime, self.security, self.zookeeper

    def for_agent(self, folder: Path) -> dict[str, Any]:
        return {
            "folder": str(folder),
            "brokers": self.brokers,
            "profile": self.profile,
            "program": self.runtime if self.runtime.startswith("apache") else "highwater",
            "runtime": "compose" if self.runtime == "compose" else "process",
            "properties": dict(self.config),
            "security": self.security,
            "zookeeper": self.zookeeper,
        }


def as_text(config: Mapping[str, object]) -> dict[str, str]:
    """Properties as Kafka writes them: true, not True."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in config.items()
    }


def of_test(item: pytest.Item, marker: str) -> Settings:
    """Ends the test as failed where a marker makes no sense."""
    option = item.config.getoption
    given: dict[str, Any] = {
        name: option(f"kafka_{name}")
        for name in (f.name for f in fields(Settings) if f.name != "config")
        if option(f"kafka_{name}") is not None
    }
    config = dict(option("kafka_config"))
    for mark in reversed(list(item.iter_markers(marker))):
        _require_known(mark, marker)
        more = dict(mark.kwargs)
        config |= as_text(more.pop("config", {}))
        given |= more
    return Settings(**given, config=tuple(sorted(config.items())))


def _require_known(mark: pytest.Mark, marker: str) -> None:
    kinds: dict[str, type | tuple[type, ...]] = {
        "brokers": int, "config": Mapping, "profile": str, "seed": int, "runtime": str,
        "security": str, "keep": bool, "zookeeper": str, "group_protocol": str,
    }  # fmt: skip
    assert set(kinds) == {f.name for f in fields(Settings)}
    wrong = ""
    if mark.args:
        wrong = f"it takes names, as brokers=3, and not {mark.args[0]!r} alone"
    for name, value in mark.kwargs.items():
        if name not in kinds:
            wrong = f"no setting {name!r}; there are {', '.join(kinds)}"
        elif not isinstance(value, kinds[name]):
            wrong = f"{name}={value!r} is of the wrong type"
    if not wrong and not 1 <= mark.kwargs.get("brokers", 1) <= MOST_BROKERS:
        wrong = f"brokers={mark.kwargs['brokers']}: there may be 1 to {MOST_BROKERS}"
    choices_of = {
        "profile": PROFILES, "runtime": RUNTIMES, "security": SECURITIES,
        "group_protocol": GROUP_PROTOCOLS,
    }  # fmt: skip
    for name, choices in choices_of.items():
        value = mark.kwargs.get(name, choices[0])
        known = is_runtime(value) if name == "runtime" else value in choices
        if not wrong and not known:
            wrong = f"no {name} {value!r}; there are {', '.join(choices)}"
    if wrong:
        pytest.fail(f"@pytest.mark.{marker}: {wrong}", pytrace=False)
