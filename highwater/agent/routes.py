"""The calls of the control API: one table, from which its OpenAPI description is made."""

from __future__ import annotations

from typing import Any

from highwater.agent import group_calls, routing, topic_calls, waits
from highwater.agent.api_schemas import (
    FLAG,
    INTEGER,
    INTEGERS,
    NOTHING,
    NUMBER,
    TEXT,
    array,
    mapping,
    obj,
    optional,
)
from highwater.agent.app_routes import APP_ROUTES
from highwater.agent.errors import ControlError
from highwater.agent.history_routes import HISTORY_ROUTES
from highwater.agent.http_server import Call
from highwater.agent.openapi import description, fault_entry
from highwater.agent.routing import Asked, Route, number
from highwater.agent.supervisor import Agent

_FAULT = obj(
    ["id", "name", "target", "effect", "t_ns", "at"],
    id=INTEGER,
    name=TEXT,
    target=TEXT,
    effect=optional(TEXT),
    t_ns=INTEGER,
    at=TEXT,
    met=INTEGER,
    ended=TEXT,
)
_MEMBER = obj(
    state={"type": "string", "enum": ["up", "paused", "down"]},
    pid=optional(INTEGER),
    port=INTEGER,
    metrics=optional(TEXT),
)
_STATUS = obj(
    runtime=TEXT,
    program=TEXT,
    bootstrap=TEXT,
    zookeeper=TEXT,
    zookeeper_kind={"type": "string", "enum": ["", "java", "embedded", "elsewhere"]},
    folder=TEXT,
    controller=INTEGER,
    brokers=INTEGERS,
    members=mapping(_MEMBER),
    cuts=array(array(TEXT)),
    faults=array(_FAULT),
)
_PARTITION = obj(
    partition=INTEGER, leader=INTEGER, leader_epoch=INTEGER, isr=INTEGERS, replicas=INTEGERS
)
_TOPIC = obj(name=TEXT, internal=FLAG, partitions=array(_PARTITION))
_NEW_TOPIC = obj(
    ["name"],
    name=TEXT,
    partitions={**INTEGER, "minimum": 1},
    replication_factor={"type": ["integer", "null"], "minimum": 1},
    config=mapping({"type": ["string", "integer", "number", "boolean"]}),
)
_GROUP = obj(
    group=TEXT,
    state=TEXT,
    members=INTEGER,
    coordinator=INTEGER,
    committed=mapping(INTEGER),
    lag=mapping(INTEGER),
    total_lag=INTEGER,
)
_TRANSACTION = obj(transactional_id=TEXT, state=TEXT, producer_id=INTEGER, topics=array(TEXT))
_EVENT = obj(n=INTEGER, t_ns=INTEGER, at=TEXT, text=TEXT)


async def _status(agent: Agent, asked: Asked) -> dict[str, Any]:
    return agent.status()


async def _topics(agent: Agent, asked: Asked) -> dict[str, Any]:
    await agent.stage.zookeeper.catch_up()
    return {"topics": topic_calls.topics(agent.stage)}


async def _topic(agent: Agent, asked: Asked) -> dict[str, Any]:
    await agent.stage.zookeeper.catch_up()
    return topic_calls.topic(agent.stage, asked.path["name"])


async def _create_topic(agent: Agent, asked: Asked) -> dict[str, Any]:
    return await topic_calls.create(agent.stage, asked.body)


async def _delete_topic(agent: Agent, asked: Asked) -> dict[str, Any]:
    await agent.stage.zookeeper.catch_up()
    return await topic_calls.delete(agent.stage, asked.path["name"])


async def _group(agent: Agent, asked: Asked) -> dict[str, Any]:
    return await group_calls.group(agent.stage, asked.path["name"])


async def _delete_group(agent: Agent, asked: Asked) -> dict[str, Any]:
    await group_calls.delete_group(agent.stage, asked.path["name"])
    return {}


async def _transactions(agent: Agent, asked: Asked) -> dict[str, Any]:
    found = await group_calls.patiently(lambda: group_calls.open_transactions(agent.stage))
    return {"open": found}


async def _fault(agent: Agent, asked: Asked) -> dict[str, Any]:
    return (await agent.desk.fire(asked.body)).as_json()


async def _one_fault(agent: Agent, asked: Asked) -> dict[str, Any]:
    return agent.desk.get(number(asked.path["id"], "fault")).as_json()


async def _end_fault(agent: Agent, asked: Asked) -> dict[str, Any]:
    return (await agent.desk.end(number(asked.path["id"], "fault"))).as_json()


async def _mend(agent: Agent, asked: Asked) -> dict[str, Any]:
    await agent.desk.mend()
    return {}


async def _elect(agent: Agent, asked: Asked) -> dict[str, Any]:
    await topic_calls.elect_first_replicas(agent.stage)
    return {}


async def _events(agent: Agent, asked: Asked) -> dict[str, Any]:
    agent.desk.open()
    return {"events": agent.events.since(number(asked.query.get("since", "0"), "since"))}


async def _wait(agent: Agent, asked: Asked) -> dict[str, Any]:
    took = await waits.Wait(agent.stage, agent.desk).until(
        asked.body["until"], waits.within(asked.body)
    )
    return {"seconds": round(took, 3)}


async def _openapi(agent: Agent, asked: Asked) -> dict[str, Any]:
    return description(ROUTES)


async def _cluster(agent: Agent, asked: Asked) -> dict[str, Any]:
    raise ControlError("refused", "the cluster runs already")


CLUSTER = Route(
    "POST",
    "/v1/cluster",
    _cluster,
    "Start the cluster of a container, with a broker for each address (HOST:PORT) by which"
    " clients are to reach it; answered when it serves.",
    _STATUS,
    body=obj(
        ["advertised"],
        advertised=array(TEXT),
        profile=TEXT,
        properties=mapping({"type": ["string", "integer", "number", "boolean"]}),
    ),
)
OPENAPI = Route("GET", "/v1/openapi.json", _openapi, "This description.", {"type": "object"})
_UNTIL = f"What to wait for: {'; '.join(waits.FORMS)}."
ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/status", _status, "The cluster, its members, cuts and faults.", _STATUS),
    Route("GET", "/v1/topics", _topics, "All topics.", obj(topics=array(_TOPIC))),
    Route("GET", "/v1/topics/{name}", _topic, "One topic with its partitions.", _TOPIC),
    Route(
        "POST",
        "/v1/topics",
        _create_topic,
        "Make a topic; answered when every broker knows it and each partition has a leader.",
        _TOPIC,
        body=_NEW_TOPIC,
    ),
    Route(
        "DELETE",
        "/v1/topics/{name}",
        _delete_topic,
        "Delete a topic; answered when no broker knows it.",
        NOTHING,
    ),
    Route(
        "POST",
        "/v1/faults",
        _fault,
        "Begin a fault; answered when its effect is seen.  Where that shows at the end only, as"
        " for cut, hold and drop, the effect is null until then.",
        _FAULT,
        body=fault_entry(),
    ),
    Route(
        "GET",
        "/v1/faults/{id}",
        _one_fault,
        "A fault; of a link's, `met` counts the streams or messages that it has met so far.",
        _FAULT,
    ),
    Route("DELETE", "/v1/faults/{id}", _end_fault, "End a fault that lasts.", _FAULT),
    Route(
        "POST",
        "/v1/mend",
        _mend,
        "End every fault, heal every link, start every member that is down.",
        NOTHING,
    ),
    Route(
        "POST",
        "/v1/elections",
        _elect,
        "Make the first replica of every partition its leader (a preferred election); answered"
        " when they lead.",
        NOTHING,
    ),
    Route(
        "GET",
        "/v1/events",
        _events,
        "What happened: each fault, its end, each unexpected end of a member.",
        obj(events=array(_EVENT)),
        query={"since": INTEGER},
    ),
    Route(
        "POST",
        "/v1/waits",
        _wait,
        f"Wait until something is so.  {_UNTIL}",
        obj(["seconds"], seconds=NUMBER),
        body=obj(["until"], until=TEXT, within={**NUMBER, "minimum": 0}),
    ),
    Route("GET", "/v1/groups/{name}", _group, "A group's state, members and lag.", _GROUP),
    Route("DELETE", "/v1/groups/{name}", _delete_group, "Delete a group that is empty.", NOTHING),
    Route(
        "GET",
        "/v1/transactions",
        _transactions,
        "The transactions that are neither committed nor aborted as a whole.",
        obj(open=array(_TRANSACTION)),
    ),
    *HISTORY_ROUTES,
    *APP_ROUTES,
    CLUSTER,
    OPENAPI,
)


async def answer(agent: Agent, call: Call) -> dict[str, Any]:
    """The answer to a request; raises ControlError and nothing else."""
    return await routing.answer(agent, ROUTES, call)
