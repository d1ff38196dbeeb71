"""The OpenAPI 3.1 description of the control API, made from its table of routes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from highwater.agent.api_schemas import FLAG, INTEGER, NUMBER, TEXT, Schema, obj
from highwater.agent.errors import STATUS
from highwater.agent.fault_desk import FAULTS
from highwater.agent.routing import Route
from highwater.cluster.faults.forms import FORMS

_FIELDS: Mapping[str, Schema] = {
    "one_way": FLAG,
    "arrive": FLAG,
    "count": INTEGER,
    "leader": INTEGER,
    **dict.fromkeys(("latency", "jitter", "rate", "by"), NUMBER),
    "side": {"type": "string", "enum": ["request", "response"]},
}
"""The fields of verbs whose values are not text."""


def fault_entry() -> Schema:
    """The body of a fault: one form for each verb."""
    forms: list[Schema] = []
    for name in FAULTS:
        form = FORMS[name]
        properties: dict[str, Schema] = {"name": {"const": name}}
        if form.target is not None:
            properties["target"] = TEXT
        properties |= {field: _FIELDS.get(field, TEXT) for field in form.fields}
        if form.lasts:
            properties["for"] = {**NUMBER, "minimum": 0}
        forms.append({"title": name, **obj(["name", *form.must], **properties, **{"as": TEXT})})
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
        # the empty form: on loopback none is needed
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
