"""Reads files that people write: JSON, or YAML if the name's ending says so.

YAML needs PyYAML, which Highwater installs, but which a Spark driver may lack.
"""

from __future__ import annotations

import json
from typing import Any


class DocumentError(Exception):
    """The text is not valid; the message is one line that names the file."""


def decode(text: str, name: str) -> Any:
    """The text of the file `name` as lists, dicts and scalars."""
    if not name.endswith((".yaml", ".yml")):
        try:
            return json.loads(text)
        except ValueError as error:
            raise DocumentError(f"{name} is not JSON: {error}") from error
    try:
        import yaml
    except ModuleNotFoundError:
        raise DocumentError(
            f"{name}: YAML needs PyYAML (pip install pyyaml); or write the same as JSON"
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise DocumentError(f"{name} is not YAML: {' '.join(str(error).split())}") from error
