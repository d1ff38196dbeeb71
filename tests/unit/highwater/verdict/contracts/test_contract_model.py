"""A contract's file: what is refused, and how it is said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from highwater.verdict.contracts.contract_model import ContractError, json_path, load

ORDERS = {"sequence": {"json": "$.n"}, "must": "no gap"}
IDS = {"id": {"json": "$.id"}}


def read(document: Any, name: str = "c.json", **files: str) -> str | None:
    """Loads it; the error's text."""
    text = document if isinstance(document, str) else json.dumps(document)
    try:
        load(name, {name: text, **files}.get)
    except ContractError as error:
        told = str(error)
    else:
        return None
    assert "\n" not in told
    return told


def test_json_and_yaml_say_the_same() -> None:
    as_yaml = "topics: {orders: {sequence: {json: $.n}, must: no gap}}"
    one = load("c.json", {"c.json": json.dumps({"topics": {"orders": ORDERS}})}.get)
    two = load("c.yaml", {"c.yaml": as_yaml}.get)
    assert one.topics == two.topics
    assert one.topics["orders"].wanted == {"sequence", "key"}


REFUSED: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "c.json is not JSON"),
    "nothing": ({}, "c.json: the contract: topics names the topics"),
    "unknown at the top": ({"topic": {}}, "unknown field 'topic'; there are isolation, topics"),
    "unknown in a topic": ({"topics": {"a": {"sequnce": {}}}}, "topics.a: unknown field 'sequnce'"),
    "nothing demanded": ({"topics": {"a": IDS}}, "topics.a: nothing is demanded of it"),
    "unknown rule": ({"topics": {"a": {"must": "no gaps"}}}, "must: 'no gaps' is unknown"),
    "no field": ({"topics": {"a": {"must": "no gap"}}}, "needs the field sequence of topics.a"),
    "no place": (
        {"topics": {"a": ORDERS | {"key": {"jsn": "$.k"}}}},
        "topics.a.key: name one place of it: column, header, json, avro",
    ),
    "no path": ({"topics": {"a": ORDERS | {"key": {"json": "k"}}}}, "'k' is no path: write '$.k'"),
    "no column": ({"topics": {"a": ORDERS | {"key": {"column": "id"}}}}, "'id' is unknown"),
    "no schema": ({"topics": {"a": ORDERS | {"key": {"avro": "k"}}}}, "needs the schema's file"),
    "schema not there": (
        {"topics": {"a": ORDERS | {"key": {"avro": "k", "schema": "k.avsc"}}}},
        "there is no schema k.avsc",
    ),
    "isolation": ({"isolation": "all", "topics": {"a": ORDERS}}, "isolation: 'all' is unknown"),
    "another topic": (
        {"topics": {"a": IDS}, "pipelines": [{"from": "a", "to": "b", "must": "exactly once"}]},
        "pipelines, entry 1: to: 'b' is not among topics (a)",
    ),
    "no id": (
        {
            "topics": {"a": IDS, "b": {}},
            "pipelines": [{"from": "a", "to": "b", "must": "exactly once"}],
        },
        "needs the field id of topics.b",
    ),
    "a compacted target": (
        {
            "topics": {"a": IDS, "b": IDS | {"compacted": True}},
            "pipelines": [{"from": "a", "to": "b", "must": "exactly once"}],
        },
        "exactly once cannot be told of b: it is compacted",
    ),
    "seconds": (
        {"topics": {"a": IDS}, "pipelines": [{"from": "a", "to": "a", "within_s": "1 min"}]},
        "within_s is a number of seconds above 0, not '1 min'",
    ),
    "one sum": ({"topics": {"a": ORDERS}, "sums": [{"topics": ["a"]}]}, "two topics or more"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_understood_is_one_line(what: str) -> None:
    document, told = REFUSED[what]
    error = read(document)
    assert error is not None
    assert told in error


def test_a_file_that_is_not_there_and_a_schema_that_is_none() -> None:
    with pytest.raises(ContractError, match=r"^x\.json: there is no such file$"):
        load("x.json", lambda path: None)
    key = {"avro": "k", "schema": "k.avsc"}
    document = {"topics": {"a": ORDERS | {"key": key}}}
    error = read(document, "d/c.json", **{"d/k.avsc": '{"type": "recrd", "name": "K"}'})
    assert error == "d/c.json: topics.a.key: k.avsc is no Avro schema: there is no type recrd"


def test_paths() -> None:
    assert json_path("$.a['b c'][0].d[-1]") == ["a", "b c", 0, "d", -1]
    assert [json_path(text) for text in ("$", "a", "$a", "$.a[", "$..a")] == [None] * 5
