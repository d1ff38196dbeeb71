"""The table of calls: requests find their route or a clear error, and the description has all."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from highwater.agent.agent_settings import SCHEMA, AgentSettings
from highwater.agent.errors import STATUS, ControlError
from highwater.agent.http_server import Call
from highwater.agent.openapi import description
from highwater.agent.routes import ROUTES
from highwater.agent.routing import find
from highwater.child_processes import StartError
from highwater.cluster.faults.verb_table import FAULTS


def test_a_request_finds_its_route_with_its_arguments() -> None:
    route, asked = find(ROUTES, Call("GET", "/v1/topics/with%2Fslash", b""))
    assert (route.path, asked.path) == ("/v1/topics/{name}", {"name": "with/slash"})
    route, asked = find(ROUTES, Call("GET", "/v1/events?since=3", b""))
    assert (route.path, asked.query) == ("/v1/events", {"since": "3"})
    body = b'{"name": "orders", "partitions": 3, "replication_factor": null}'
    _, asked = find(ROUTES, Call("POST", "/v1/topics", body))
    assert asked.body == {"name": "orders", "partitions": 3, "replication_factor": None}


@pytest.mark.parametrize(
    ("method", "target", "body", "kind", "said"),
    [
        ("GET", "/v2/status", "", "not_found", "no /v2/status: /v1/openapi.json lists"),
        ("PUT", "/v1/topics/x", "", "not_found", "no PUT /v1/topics/x; there is GET, DELETE"),
        ("GET", "/v1/events?sine=3", "", "bad_request", "no parameter 'sine'; it takes since"),
        ("POST", "/v1/topics", "{", "bad_request", "the body is not JSON"),
        ("GET", "//[", "", "bad_request", "//[ is no target"),
        ("POST", "/v1/topics", "[" * 100_000, "bad_request", "the body is not JSON"),
        ("POST", "/v1/topics", "[]", "bad_request", "the body is no JSON object"),
        ("POST", "/v1/topics", "", "bad_request", "the body needs 'name'"),
        ("POST", "/v1/topics", '{"name": 3}', "bad_request", "name: 3 is no string"),
        ("POST", "/v1/topics", '{"name": "x", "partitions": 0}', "bad_request", "0 is less than 1"),
        ("POST", "/v1/topics", '{"name": "x", "partitions": true}', "bad_request", "no integer"),
        ("POST", "/v1/topics", '{"name": "x", "parts": 1}', "bad_request", "has no 'parts'; it"),
        ("POST", "/v1/topics", '{"name":"x","config":{"a":[]}}', "bad_request", "a: [] is no"),
        ("POST", "/v1/mend", '{"all": 1}', "bad_request", "POST /v1/mend takes no body"),
        ("POST", "/v1/waits", '{"until": "x", "within": "3"}', "bad_request", "'3' is no number"),
        ("POST", "/v1/faults", "{}", "bad_request", "the body needs 'name'"),
    ],
)
def test_what_cannot_be_is_one_line(
    method: str, target: str, body: str, kind: str, said: str
) -> None:
    with pytest.raises(ControlError) as error:
        find(ROUTES, Call(method, target, body.encode()))
    assert error.value.kind == kind
    assert said in error.value.message
    assert "\n" not in error.value.message


def test_every_route_and_every_verb_stands_in_the_description() -> None:
    told = json.loads(json.dumps(description(ROUTES)))
    assert told["openapi"].startswith("3.1")
    operations = {
        (method.upper(), path): operation
        for path, methods in told["paths"].items()
        for method, operation in methods.items()
    }
    assert set(operations) == {(route.method, route.path) for route in ROUTES}
    ids = [operation["operationId"] for operation in operations.values()]
    assert len(set(ids)) == len(ids)
    for (_, path), operation in operations.items():
        named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
        assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}
        assert operation["summary"]
    faults = operations["POST", "/v1/faults"]["requestBody"]["content"]["application/json"]
    forms = {form["properties"]["name"]["const"]: form for form in faults["schema"]["oneOf"]}
    assert list(forms) == list(FAULTS)
    for name, form in forms.items():
        assert {field.name for field in FAULTS[name].fields} <= set(form["properties"])
        assert ("for" in form["properties"]) is FAULTS[name].lasts
        assert form["required"] == ["name", *FAULTS[name].required]
    for pointer in _references(told):
        found: Any = told
        for word in pointer.removeprefix("#/").split("/"):
            found = found[word]
    kinds = told["components"]["schemas"]["Error"]["properties"]["error"]["properties"]["kind"]
    assert kinds["enum"] == list(STATUS)


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [found for inner in value.values() for found in _references(inner)]
    return (
        [found for inner in value for found in _references(inner)]
        if isinstance(value, list)
        else []
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ([], "the settings: [] is no object"),
        ({}, "the settings needs 'folder'"),
        ({"folder": "x", "broker": 3}, "the settings has no 'broker'; it takes folder, brokers"),
        ({"folder": "x", "brokers": 0}, "brokers: 0 is less than 1"),
        ({"folder": "x", "brokers": 10}, "brokers: 10 is more than 9"),
        ({"folder": "x", "profile": "tset"}, "profile: 'tset' is none of test, kafka"),
        ({"folder": "x", "external_ports": [1]}, "3 brokers need as many external_ports"),
        ({"folder": "x", "runtime": "compose", "brokers": 2}, "the compose runtime has three"),
        (
            {"folder": "x", "runtime": "compose", "security": "sasl_ssl"},
            "security is for the process runtime",
        ),
    ],
)
def test_settings_that_make_no_sense_are_one_line(settings: Any, said: str) -> None:
    with pytest.raises(StartError) as error:
        AgentSettings.from_json(settings)
    assert said in str(error.value)


def test_settings_have_the_defaults_of_their_class() -> None:
    made = AgentSettings.from_json(
        {"folder": "x", "properties": {"a": 1, "b": True, "c": "d"}, "external_ports": [7, 8, 9]}
    )
    assert (made.brokers, made.profile, made.proxies, made.quick_end) == (3, "test", True, True)
    assert made.properties == {"a": "1", "b": "true", "c": "d"}
    assert made.external_ports == (7, 8, 9)
    assert set(SCHEMA["properties"]) == set(AgentSettings.__slots__)


def test_the_client_brings_no_other_package_along() -> None:
    code = (
        "import sys; before = set(sys.modules); import highwater.agent.client;"
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}"
        " - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["highwater"]


def test_the_page_names_every_call_and_no_other() -> None:
    page = (Path(__file__).parents[4] / "docs/control.md").read_text()
    named = set(re.findall(r"`(GET|POST|DELETE) (/v1/[^`?]+)", page))
    routes = {(route.method, re.sub(r"\{(\w+)\}", _placeholder, route.path)) for route in ROUTES}
    assert named == routes


def _placeholder(match: re.Match[str]) -> str:
    return match.group(1).upper()
