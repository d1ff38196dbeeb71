"""The control API's calls for histories: clients beside a test, and checks of what they saw."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import trio

from highwater.agent import topic_calls
from highwater.agent.api_schemas import FLAG, INTEGER, NOTHING, NUMBER, TEXT, array, obj
from highwater.agent.routing import Asked, Route, number

if TYPE_CHECKING:
    from highwater.agent.histories import Histories
    from highwater.agent.supervisor import Agent

_ONE = "/v1/history/{id}"
_OPENED = obj(["history", "folder"], history=INTEGER, folder=TEXT)
_CLIENT = obj(["does", "topic"], does=TEXT, topic=TEXT, client=TEXT, rate=NUMBER, acks=INTEGER)
_CLAIM = obj(["topic", "does", "values"], topic=TEXT, does=TEXT, values=array(TEXT))
_CHECK = obj(["topic"], topic=TEXT, processed=FLAG, exactly_once=FLAG, within=NUMBER)


def _place(what: str) -> dict[str, Any]:
    return {"type": ["object", "null"], "description": f"the partition and offset of {what}"}


_CHECKED = obj(
    ["story", "further", "acknowledged", "read", "checks", "folder"],
    story={**TEXT, "description": "of the first violation; empty where there is none"},
    further={**array(TEXT), "description": "more violations"},
    missed=_place("the first record that was not processed"),
    repeated=_place("the first record that was processed again, or after a later one"),
    acknowledged=INTEGER,
    read=INTEGER,
    checks={**INTEGER, "description": "rules that had something to examine, and passed"},
    folder=TEXT,
)
_GAP = ("partition", "longest_s", "began_ns", "acknowledged")
_GAPS = obj(
    [*_GAP, "partitions"],
    partition={**INTEGER, "description": "the one with the longest wait"},
    longest_s=NUMBER,
    began_ns=INTEGER,
    acknowledged={**INTEGER, "description": "records of all partitions"},
    partitions=array(
        obj(_GAP, partition=INTEGER, longest_s=NUMBER, began_ns=INTEGER, acknowledged=INTEGER)
    ),
)


async def _histories(agent: Agent) -> Histories:
    """Made by the first call: most agents check nothing, and start sooner without DuckDB."""
    if agent.histories is None:
        module = await trio.to_thread.run_sync(importlib.import_module, "highwater.agent.histories")
        if agent.histories is None:
            agent.histories = module.Histories(
                agent.cluster, agent.settings.folder, agent.nursery, lambda: _faults(agent)
            )
            agent.at_end.append(agent.histories.close_all)
    return agent.histories


def _faults(agent: Agent) -> list[dict[str, Any]]:
    """The faults so far that were seen to act, as lines of faults.jsonl."""
    return [
        {"name": told["name"], "target": told["target"], "t_ns": told["t_ns"], "effect": effect}
        for told in (fired.as_json() for fired in agent.desk.fired.values())
        if (effect := told["effect"]) is not None
    ]


def _topic(agent: Agent, name: str) -> dict[str, Any]:
    return {"name": name, "partitions": len(topic_calls.topic(agent.stage, name)["partitions"])}


async def _open(agent: Agent, asked: Asked) -> dict[str, Any]:
    return await (await _histories(agent)).open(asked.body.get("seed", 0))


async def _add(agent: Agent, asked: Asked) -> dict[str, Any]:
    histories = await _histories(agent)
    topic = _topic(agent, asked.body["topic"])
    return await histories.add(number(asked.path["id"], "history"), topic, asked.body)


async def _end(agent: Agent, asked: Asked) -> dict[str, Any]:
    histories = await _histories(agent)
    return await histories.end(number(asked.path["id"], "history"), asked.path["name"])


async def _claim(agent: Agent, asked: Asked) -> dict[str, Any]:
    histories, body = await _histories(agent), asked.body
    which = number(asked.path["id"], "history")
    return histories.claim(which, body["topic"], body["does"], body["values"])


async def _gaps(agent: Agent, asked: Asked) -> dict[str, Any]:
    histories = await _histories(agent)
    return await histories.gaps(number(asked.path["id"], "history"), asked.path["topic"])


async def _check(agent: Agent, asked: Asked) -> dict[str, Any]:
    histories = await _histories(agent)
    topic = _topic(agent, asked.body["topic"])
    return await histories.check(number(asked.path["id"], "history"), topic, asked.body)


async def _close(agent: Agent, asked: Asked) -> dict[str, Any]:
    return await (await _histories(agent)).close(number(asked.path["id"], "history"))


HISTORY_ROUTES = (
    Route("POST", "/v1/history", _open, "Begins a history", _OPENED, obj(seed=INTEGER)),
    Route(
        "POST",
        f"{_ONE}/clients",
        _add,
        "Starts a client: it does produce (so many records a second) or consume",
        obj(["name"], name=TEXT),
        _CLIENT,
    ),
    Route("DELETE", f"{_ONE}/clients/{{name}}", _end, "Ends a client", NOTHING),
    Route(
        "POST",
        f"{_ONE}/claims",
        _claim,
        "Adds values that the application was acknowledged, or has processed",
        NOTHING,
        _CLAIM,
    ),
    Route(
        "GET",
        f"{_ONE}/gaps/{{topic}}",
        _gaps,
        "The longest time in which a producer waited for an acknowledgement, by partition",
        _GAPS,
    ),
    Route(
        "POST", f"{_ONE}/check", _check, "Reads the topic to its end, and checks", _CHECKED, _CHECK
    ),
    Route("DELETE", _ONE, _close, "Ends a history and its clients; its folder stays", NOTHING),
)
