"""The verb `answer`: a proxy gives clients an error that they would hardly ever see."""

from __future__ import annotations

from highwater.cluster.faults.done import Done, Effect
from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.faults.stage import Stage
from highwater.cluster.faults.verbs import refuse_encrypted
from highwater.cluster.interface import ClusterError
from highwater.cluster.links.link_rules import ANY, CLIENTS, Action, Rule, Side
from highwater.kafka.errors import ErrorCode


async def answer(stage: Stage, fault: Fault) -> Done:
    params = fault.params
    error, side = ErrorCode[params["error"]], Side(params["side"])
    ends = {"from" if side is Side.REQUEST else "to": CLIENTS}
    ends |= {end: stage.targets(params[end])[0] for end in ("from", "to") if end in params}
    rule = Rule(
        Action.ANSWER,
        str(params["api"]),
        side,
        ends.get("from", ANY),
        ends.get("to", ANY),
        topic=str(params.get("topic", "")),
        client=str(params.get("client", "")),
        limit=int(params["count"]),
        error=error,
        partition=params.get("partition"),
        throttle_ms=int(params.get("throttle_ms", 0)),
        every=int(params["every"]),
        probability=float(params["probability"]),
        rng=stage.rng,
    )
    links = stage.links
    refuse_encrypted(links, fault, rule)
    links.add(rule)

    async def undo() -> Effect:
        links.release(rule)
        if rule.unread and not rule.matched:
            raise ClusterError(f"it answered nothing: {rule.unread} messages could not be read")
        return told(rule)

    return Done(
        f"{rule.api} {side.value} {rule.source}->{rule.target}",
        None,
        "answer no more",
        undo,
        effect_at_undo=True,
        felt=lambda: rule.matched,
        holds=lambda: not rule.released.is_set(),
    )


def told(rule: Rule) -> Effect:
    """A sentence about the answers that a rule has given."""
    if not rule.matched:
        return None
    clients = ", ".join(f"{n} of {name or 'no name'}" for name, n in rule.answered.most_common())
    text = f"answered {rule.matched} messages with {ErrorCode(rule.error).name}: {clients}"
    if rule.closed:
        text += f"; {rule.closed} of them had acks=0, and cost their connections"
    if rule.unread:
        text += f"; {rule.unread} more could not be read"
    return text
