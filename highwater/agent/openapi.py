"""The OpenAPI 3.1 description of the control API, made from its table of routes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from highwater.agent.api_schemas import FLAG, INTEGER, NUMBER, TEXT, Schema, obj
from highwater.agent.errors import STATUS
from highwater.agent.routing import Route
from highwater.cluster.faults.verb_row import Field, Verb
from highwater.cluster.faults.verb_table import FAULTS

_TYPES: Mapping[type, Schema] = {str: TEXT, int: INTEGER, float: NUMBER, bool: FLAG}


def _value(field: Field) -> Schema:
    choices = {"enum": list(field.choices)} if field.choices else {}
    return _TYPES[field.type] | choices


def fault_entry(verbs: Mapping[str, Verb] = FAULTS) -> Schema:
    """The body of a fault: one form for each verb."""
    forms: list[Schema] = []
    for name, verb in verbs.items():
        properties: dict[str, Schema] = {"name": {"const": name}}
        if verb.target is not None:
            properties["target"] = TEXT
        properties |= {field.name: _value(field) for field in verb.fields}
        if verb.lasts:
            properties["for"] = {**NUMBER, "minimum": 0}
        forms.append({"title": name, **obj(["name", *verb.required], **properties, **{"as": TEXT})})
    return {"type": "object", "required": ["name"], "oneOf": forms}


def description(routes: Sequence[Route]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Highwater's control API",
            "version": "1",
            "description": "A cluster that can be broken and mended, and what happened to it.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": _error()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # the empty form means that no token is needed, as on loopback
        "security": [{"token": []}, {}],
    }


def _operation(route: Route) -> dict[str, Any]:
    named = re.findall(r"\{(\w+)\}", route.path)
    words = re.sub(r"[^a-z]+", "_", route.path.removeprefix("/v1"))
    parameters = [{"name": n, "in": "path", "required": True, "schema": TEXT} for n in named]
    parameters += [{"name": n, "in": "query", "schema": s} for n, s in route.query.items()]
    wrong = {"content": _json({"$ref": "#/components/schemas/Error"}), "description": "An error."}
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{words}".strip("_"),
        "summary": route.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done.", "content": _json(route.answer)},
            "default": wrong,
        },
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(route.body)}
    return operation


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _error() -> Schema:
    kind = {"type": "string", "enum": list(STATUS)}
    return obj(
        ["error"], error=obj(["kind", "message"], kind=kind, message=TEXT, state={"type": "object"})
    )
