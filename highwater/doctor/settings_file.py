"""Reads a client's settings: .properties, YAML, JSON, TOML, or Spring Boot's application file.

Of Spring's names it reads `spring.kafka.producer.*`, `spring.kafka.consumer.*` and
`spring.kafka.*`, each with its `properties.*`; one file may hold a producer's and a consumer's.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from highwater.kafka.config.checks import ConfigError
from highwater.kafka.config.sources import parse_properties

SPRING = "spring.kafka."
ROLES = ("producer", "consumer")
# Spring's names that are not Kafka's with dashes for dots
_SPRING_NAMES = {
    "transaction-id-prefix": "transactional.id",
    "value-serializer": "value.serializer",
    "retries": "retries",
}


class UnreadableSettings(Exception):
    """A file cannot be read; the message is one line: the file, and what is wrong with it."""


def read_settings(path: Path) -> dict[str, dict[str, str]]:
    """The settings by role; the role is "" if the file does not tell the roles apart."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableSettings(f"{path} cannot be read: {error}") from None
    try:
        if path.suffix == ".json":
            flat = _flat(json.loads(text))
        elif path.suffix in (".yml", ".yaml"):
            flat = _flat(yaml.safe_load(text))
        elif path.suffix == ".toml":
            flat = _flat(tomllib.loads(text))
        else:
            flat = parse_properties(text, str(path))
    except (ConfigError, ValueError, yaml.YAMLError) as error:
        raise UnreadableSettings(f"{path}: {' '.join(str(error).split())}") from None
    if any(name.startswith(SPRING) for name in flat):
        return _springs(flat)
    apart = {role: _below(flat, f"{role}.") for role in ROLES}
    if any(apart.values()):
        shared = {n: v for n, v in flat.items() if not n.startswith(("producer.", "consumer."))}
        return {role: shared | apart[role] for role in ROLES if apart[role]}
    return {"": flat}


def _flat(tree: Any, above: str = "") -> dict[str, str]:
    if not isinstance(tree, Mapping):
        raise ConfigError(["it is not a table of settings"])
    flat: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{above}{name}.")
        elif isinstance(value, list):
            flat[above + name] = ",".join(str(item) for item in value)
        else:
            flat[above + name] = str(value).lower() if isinstance(value, bool) else str(value)
    return flat


def _below(flat: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {n.removeprefix(prefix): v for n, v in flat.items() if n.startswith(prefix)}


def _springs(flat: Mapping[str, str]) -> dict[str, dict[str, str]]:
    ours = _below(flat, SPRING)
    shared = {n: v for n, v in ours.items() if not n.startswith(tuple(f"{r}." for r in ROLES))}
    by_role = {role: _below(ours, f"{role}.") for role in ROLES}
    some = [role for role in ROLES if by_role[role]] or list(ROLES)
    if "consumer" in some:  # Spring's listener containers commit by themselves
        by_role["consumer"].setdefault("enable-auto-commit", "false")
    return {role: _spring_names(shared) | _spring_names(by_role[role]) for role in some}


def _spring_names(names: Mapping[str, str]) -> dict[str, str]:
    renamed = {}
    for name, value in names.items():
        if name.startswith("properties."):
            renamed[name.removeprefix("properties.")] = value
        else:
            renamed[_SPRING_NAMES.get(name, name.replace("-", "."))] = value
    return renamed
