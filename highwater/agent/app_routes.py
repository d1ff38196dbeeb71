"""The control API's calls for a user's application: the caller starts it, and has it killed or
paused at the moment when that would lose or repeat records."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import trio

from highwater.agent import topic_calls
from highwater.agent.api_schemas import INTEGER, NOTHING, NUMBER, TEXT, array, obj
from highwater.agent.errors import ControlError
from highwater.agent.routing import Asked, Route, number

if TYPE_CHECKING:
    from highwater.agent.supervisor import Agent
    from highwater.chaos.adopted_app import AdoptedApp

MOST: Final = 20
"""The most applications at a time, and the most copies of one."""
LONGEST_S: Final = 120.0
"""The longest time for which a copy may be paused."""
_ONE = "/v1/apps/{id}"
_NEW = obj(
    ["input", "output", "match"],
    input={**TEXT, "description": "the topic that it reads"},
    output={**TEXT, "description": "the topic that it writes"},
    match={**TEXT, "description": "where a JSON value of both has the id, such as $.order_id"},
    copies={**INTEGER, "minimum": 1},
)
_KNOWN = obj(
    ["app", "bootstrap"],
    app=INTEGER,
    bootstrap={**array(TEXT), "description": "the bootstrap servers of each copy, its own"},
)
_STRIKE = obj(
    ["name", "pid", "when"],
    name={**TEXT, "enum": ["kill", "pause"]},
    pid={**INTEGER, "minimum": 1},
    when={**TEXT, "enum": ["ahead", "behind", "ending"]},
    copy={**INTEGER, "minimum": 1},
    **{"for": {**NUMBER, "minimum": 0, "description": "seconds that it stands still"}},
)
_STRUCK = obj(
    ["outcome", "told", "inputs"],
    outcome={**TEXT, "enum": ["hit", "closed", "not run"]},
    told={**TEXT, "description": "what was hit, or why nothing was"},
    inputs={**array(TEXT), "description": "the ids that were in the window"},
)


async def _create(agent: Agent, asked: Asked) -> dict[str, Any]:
    body = asked.body
    copies = body.get("copies", 1)
    if copies > MOST or len(agent.apps) >= MOST:
        raise ControlError("refused", f"at most {MOST} applications, and {MOST} copies of one")
    if agent.settings.security != "plaintext":
        told = f"the cluster speaks {agent.settings.security}"
        raise ControlError("refused", f"{told}: what an application sends cannot be seen")
    await agent.stage.zookeeper.catch_up()
    for topic in (body["input"], body["output"]):
        topic_calls.topic(agent.stage, topic)  # raises ControlError where there is no such topic
    name = "highwater.chaos.adopted_app"  # loaded late, because it imports librdkafka
    module = await trio.to_thread.run_sync(importlib.import_module, name)
    ends = (body["input"], body["output"])
    try:
        app = module.AdoptedApp(agent.cluster, agent.stage, ends, body["match"], copies)
    except ValueError as error:
        raise ControlError("bad_request", str(error)) from None
    await agent.nursery.start(app.serve)
    agent.last_app += 1
    agent.apps[agent.last_app] = app
    return {"app": agent.last_app, "bootstrap": app.bootstrap}


async def _strike(agent: Agent, asked: Asked) -> dict[str, Any]:
    app, body = _known(agent, asked), asked.body
    lasts_s = body.get("for", 0)
    if lasts_s > LONGEST_S:
        raise ControlError("bad_request", f"'for': at most {LONGEST_S:g} s")
    probe = await app.strike(body.get("copy", 1), body["pid"], body["name"], body["when"], lasts_s)
    agent.events.add(
        f"{body['name']} {probe.target}, {body['when']}: {probe.outcome}: {probe.told}"
    )
    return {"outcome": probe.outcome, "told": probe.told, "inputs": sorted(probe.inputs)}


async def _forget(agent: Agent, asked: Asked) -> dict[str, Any]:
    _known(agent, asked).close()
    del agent.apps[number(asked.path["id"], "application")]
    return {}


def _known(agent: Agent, asked: Asked) -> AdoptedApp:
    which = number(asked.path["id"], "application")
    if which not in agent.apps:
        known = ", ".join(map(str, agent.apps)) or "none"
        raise ControlError("not_found", f"no application {which}; known now: {known}")
    return agent.apps[which]


APP_ROUTES = (
    Route(
        "POST",
        "/v1/apps",
        _create,
        "Gives an application's copies bootstrap servers of their own, so that strikes can aim.",
        _KNOWN,
        _NEW,
    ),
    Route(
        "POST",
        f"{_ONE}/strikes",
        _strike,
        "Kill or pause a copy's process at a moment of its own (docs/app.md): ahead, behind or"
        " ending; answered when it was struck, or when the moment did not come.",
        _STRUCK,
        _STRIKE,
    ),
    Route("DELETE", _ONE, _forget, "Forgets an application: its doors close.", NOTHING),
)
