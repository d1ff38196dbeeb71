"""JSON schemas of bodies and answers, and the check of a body against its schema.

The schemas are those of the OpenAPI description; `check` knows the few words that they use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from highwater.agent.errors import ControlError

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
INTEGERS: Schema = {"type": "array", "items": INTEGER}
NOTHING: Schema = {"type": "object", "additionalProperties": False}
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def obj(required: Sequence[str] = (), **properties: Schema) -> Schema:
    """An object with exactly these properties."""
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def optional(schema: Schema) -> Schema:
    """The schema, or null."""
    return {**schema, "type": [schema["type"], "null"]}


def mapping(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def check(value: Any, schema: Schema, what: str) -> None:
    """Raises ControlError with the place of the first value that the schema does not allow."""
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    if names and not any(_is(value, name) for name in names):
        raise ControlError("bad_request", f"{what}: {value!r} is no {' or '.join(names)}")
    if "enum" in schema and value not in schema["enum"]:
        known = ", ".join(map(str, schema["enum"]))
        raise ControlError("bad_request", f"{what}: {value!r} is none of {known}")
    if "minimum" in schema and value is not None and value < schema["minimum"]:
        raise ControlError("bad_request", f"{what}: {value!r} is less than {schema['minimum']}")
    if "maximum" in schema and value is not None and value > schema["maximum"]:
        raise ControlError("bad_request", f"{what}: {value!r} is more than {schema['maximum']}")
    if isinstance(value, dict):
        _check_object(value, schema, what)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check(item, schema.get("items", {}), f"{what}[{index}]")


def _check_object(value: dict[str, Any], schema: Schema, what: str) -> None:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            raise ControlError("bad_request", f"{what} needs {name!r}")
    for name, item in value.items():
        further = schema.get("additionalProperties", True)
        if name in properties:
            check(item, properties[name], name)
        elif further is False:
            known = ", ".join(properties) or "nothing"
            raise ControlError("bad_request", f"{what} has no {name!r}; it takes {known}")
        elif isinstance(further, dict):
            check(item, further, name)


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool) and name != "boolean":
        return False
    return isinstance(value, _TYPES[name])
