"""One call of the control API, and the search for the one that a request asks for."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from highwater.agent.api_schemas import Schema, check
from highwater.agent.errors import ControlError, control_error
from highwater.agent.http_server import Call
from highwater.agent.supervisor import Agent


@dataclass(frozen=True, slots=True)
class Asked:
    """A request's arguments, checked against its route."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: dict[str, Any]


Handler = Callable[[Agent, Asked], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    """The path with its variable parts by name, as in /v1/topics/{name}."""
    handler: Handler
    summary: str
    answer: Schema
    body: Schema | None = None
    query: Mapping[str, Schema] = field(default_factory=dict)

    @property
    def parts(self) -> list[str]:
        return self.path.strip("/").split("/")

    def match(self, parts: Sequence[str]) -> dict[str, str] | None:
        """The values of the path's variable parts; None where the path is not this route's."""
        if len(parts) != len(self.parts):
            return None
        named = {}
        for ours, theirs in zip(self.parts, parts, strict=True):
            if ours.startswith("{"):
                named[ours[1:-1]] = unquote(theirs)
            elif ours != theirs:
                return None
        return named


async def answer(agent: Agent, routes: Sequence[Route], call: Call) -> dict[str, Any]:
    """The answer to a request; raises ControlError and nothing else."""
    try:
        route, asked = find(routes, call)
        return await route.handler(agent, asked)
    except ControlError as error:
        if error.kind == "timeout":
            error.state = {**agent.status(), **(error.state or {})}
        raise
    except Exception as error:
        known = control_error(error)
        if known.kind == "failed":
            agent.events.add(f"{call.method} {call.target} failed: {known.message}")
        raise known from error


def find(routes: Sequence[Route], call: Call) -> tuple[Route, Asked]:
    """The route of a request, and its arguments; ControlError where there is none."""
    try:
        url = urlsplit(call.target)
    except ValueError as error:
        raise ControlError("bad_request", f"{call.target[:200]} is no target: {error}") from None
    parts = url.path.strip("/").split("/")
    matching = [(route, named) for route in routes if (named := route.match(parts)) is not None]
    if not matching:
        raise ControlError("not_found", f"no {url.path}: /v1/openapi.json lists what there is")
    for route, named in matching:
        if route.method == call.method:
            query = dict(parse_qsl(url.query))
            if unknown := sorted(set(query) - set(route.query)):
                known = ", ".join(route.query) or "none"
                raise ControlError(
                    "bad_request", f"{url.path}: no parameter {unknown[0]!r}; it takes {known}"
                )
            return route, Asked(named, query, _body(route, call.body))
    methods = ", ".join(route.method for route, _ in matching)
    raise ControlError("not_found", f"no {call.method} {url.path}; there is {methods}")


def _body(route: Route, raw: bytes) -> dict[str, Any]:
    if not raw.strip():
        raw = b"{}"
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ControlError("bad_request", f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise ControlError("bad_request", "the body is no JSON object")
    if route.body is None and body:
        raise ControlError("bad_request", f"{route.method} {route.path} takes no body")
    if route.body is not None:
        check(body, route.body, "the body")
    return body


def number(text: str, what: str) -> int:
    """The whole number in a path or a query; ControlError names `what` where it is none."""
    if not (text.isdecimal() and len(text) < 20):
        raise ControlError("bad_request", f"{what} {text!r} is no whole number of 0 or more")
    return int(text)
