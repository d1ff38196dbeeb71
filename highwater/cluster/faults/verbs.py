"""The verbs.  Each does one thing, waits for its visible effect, and returns that effect (None:
nothing was seen).

A verb with an end (`for`, or a later entry of the schedule) returns an `undo`, which reports its
own effect: only afterwards is it known whether a cut or a held message met any traffic.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import trio

from highwater.cluster.faults.done import Done, Effect
from highwater.cluster.faults.fault_model import Fault, ScheduleError
from highwater.cluster.faults.stage import Led, Stage, at_once
from highwater.cluster.faults.targets import APART
from highwater.cluster.interface import (
    PATIENCE_S,
    ZOOKEEPER,
    ClusterError,
    broker,
    broker_number,
    node,
    require_paused,
    require_running,
)
from highwater.cluster.links.link_rules import ANY, CLIENTS, Action, Links, Rule, Side
from highwater.kafka.types import TopicPartition

ARRIVAL_S = 5.0
"""The most time that a released message may take to go on."""
SIGNAL_S = 5.0
"""The most time that a process may take to stand still, or to go on."""


def parse_tp(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    if not topic or not number.isdigit():
        raise ScheduleError(f"{text!r} is no partition: write topic-number, such as safe-0")
    return TopicPartition(topic, int(number))


# --- processes


async def kill(stage: Stage, fault: Fault) -> Done:
    member = stage.target(fault)
    effect = await kill_member(stage, member)
    return _away(stage, member, effect)


def _away(stage: Stage, member: str, effect: Effect) -> Done:
    return Done(
        member,
        effect,
        "start",
        lambda: start_member(stage, member),
        holds=lambda: not stage.cluster.running(member),
    )


async def kill_member(stage: Stage, member: str, led: Led | None = None) -> Effect:
    """`led`: the partitions that a broker led before it was cut off and perhaps replaced."""
    require_running(stage.cluster, member)
    if led is None:
        led = stage.zookeeper.led_by(broker_number(member)) if _is_broker(member) else {}
    await stage.cluster.kill(member)
    stage.down.add(member)
    if stage.cluster.running(member):
        return None
    if _is_broker(member):
        stage.died(broker_number(member), led)
        return f"ended by SIGKILL, leading {', '.join(map(str, led)) or 'nothing'}"
    return "ended by SIGKILL"


def _is_broker(member: str) -> bool:
    return member.startswith("broker-")


async def stop(stage: Stage, fault: Fault) -> Done:
    member = stage.target(fault)
    began = trio.current_time()
    code = await stage.cluster.stop(member)
    stage.down.add(member)
    effect = f"ended with code {code} after {trio.current_time() - began:.1f} s"
    return _away(stage, member, effect)


async def start(stage: Stage, fault: Fault) -> Done:
    member = stage.target(fault)
    return Done(member, await start_member(stage, member))


async def start_member(stage: Stage, member: str) -> Effect:
    began = trio.current_time()
    await stage.cluster.start(member)
    stage.down.discard(member)
    return f"serves after {trio.current_time() - began:.1f} s"


async def restart(stage: Stage, fault: Fault) -> Done:
    done = await (kill if fault.params["how"] == "kill" else stop)(stage, fault)
    done.effect = f"{done.effect}; {await start_member(stage, done.target)}"
    done.undo = None
    return done


async def pause(stage: Stage, fault: Fault) -> Done:
    member = stage.target(fault)
    require_running(stage.cluster, member)
    if stage.cluster.paused(member):
        raise ClusterError(f"{member} is paused already")
    await stage.cluster.pause(member)
    stage.stopped_by_pause.add(member)

    async def resume_member() -> Effect:
        await stage.cluster.resume(member)
        stage.stopped_by_pause.discard(member)
        await trio.sleep(0.05)
        return "runs again" if not stage.cluster.paused(member) else None

    await trio.sleep(0.05)
    effect = "stands still" if stage.cluster.paused(member) else None
    return Done(member, effect, "resume", resume_member, holds=lambda: stage.cluster.paused(member))


async def resume(stage: Stage, fault: Fault) -> Done:
    member = stage.target(fault)
    require_paused(stage.cluster, member)
    await stage.cluster.resume(member)
    stage.stopped_by_pause.discard(member)
    await trio.sleep(0.05)
    return Done(member, "runs again" if not stage.cluster.paused(member) else None)


async def stand_still(stage: Stage, fault: Fault) -> Done:
    """Pauses the cluster and its clients at once, like a virtual machine that its host pauses."""
    cluster = stage.cluster
    members = [m for m in cluster.members() if cluster.running(m) and not cluster.paused(m)]
    clients = stage.clients()
    target = f"{len(members)} members and {len(clients)} clients"

    async def of_all(number: signal.Signals, verb: Callable[[str], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(verb, member)
            for client in clients:
                client.signal(number)

    async def go_on() -> Effect:
        await of_all(signal.SIGCONT, cluster.resume)
        stage.stopped_by_pause.difference_update(members)
        return "run again" if await all_are(stopped=False) else None

    async def all_are(stopped: bool) -> bool:
        with trio.move_on_after(SIGNAL_S):
            while any(client.stopped() != stopped and client.alive() for client in clients):
                await trio.sleep(0.005)
            return all(cluster.paused(member) is stopped for member in members)
        return False

    stage.stopped_by_pause.update(members)
    await of_all(signal.SIGSTOP, cluster.pause)
    effect = "stand still" if members and await all_are(stopped=True) else None

    def holds() -> bool:
        return any(map(cluster.paused, members))

    return Done(target, effect, "go_on", go_on, holds=holds)


async def kill_all(stage: Stage, fault: Fault) -> Done:
    """Kills every broker at the same moment."""
    members = [broker(n) for n in stage.cluster.brokers if stage.cluster.running(broker(n))]
    led = {m: stage.zookeeper.led_by(broker_number(m)) for m in members}
    await at_once(stage.cluster.kill, members)
    stage.down.update(members)
    for member in members:
        stage.died(broker_number(member), led[member])
    gone = [m for m in members if not stage.cluster.running(m)]

    async def undo() -> Effect:
        return await _start_all(stage)

    effect = f"{len(gone)} ended by SIGKILL" if gone == members else None
    return Done(
        ",".join(members),
        effect,
        "start_all",
        undo,
        holds=lambda: not all(map(stage.cluster.running, members)),
    )


async def start_all(stage: Stage, fault: Fault) -> Done:
    return Done(",".join(sorted(stage.down)), await _start_all(stage))


async def _start_all(stage: Stage) -> Effect:
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for member in sorted(stage.down):
            # the start was too slow for this fault, but may be complete by now
            up = stage.cluster.running(member)
            nursery.start_soon(_await_member if up else start_member, stage, member)
    return f"all serve after {trio.current_time() - began:.1f} s"


async def _await_member(stage: Stage, member: str) -> None:
    await stage.cluster.wait_ready(member)
    stage.down.discard(member)


# --- links


async def cut(stage: Stage, fault: Fault) -> Done:
    return cut_pairs(stage, stage.directions(fault))


async def isolate(stage: Stage, fault: Fault) -> Done:
    """Cuts one broker from all others, ZooKeeper, and controllers apart; clients still reach it."""
    member = stage.target(fault)
    others = [broker(n) for n in stage.cluster.brokers if broker(n) != member]
    others += [ZOOKEEPER] * bool(stage.cluster.zookeeper_connect)  # even if it is no member
    others += [m for m in stage.cluster.members() if APART.match(m)]
    return cut_pairs(stage, [p for o in others for p in ((member, o), (o, member))])


def cut_pairs(stage: Stage, pairs: list[tuple[str, str]]) -> Done:
    if not pairs:
        raise ClusterError("a cut needs two different members")
    links = stage.links
    text = ", ".join(f"{a}->{b}" for a, b in pairs)
    if set(pairs) <= set(links.cuts):
        raise ClusterError(f"{text} is cut already")
    before = {pair: links.stopped[pair] for pair in pairs}
    for pair in pairs:
        links.cut(*pair)

    def met() -> int:
        return sum(links.stopped[pair] - before[pair] for pair in pairs)

    async def undo() -> Effect:
        stopped = met()
        for pair in pairs:
            links.take_back(*pair)
        return f"stopped {stopped} streams and connection attempts" if stopped else None

    return Done(
        text,
        None,
        "heal",
        undo,
        effect_at_undo=True,
        felt=met,
        holds=lambda: not set(pairs).isdisjoint(links.cuts),
    )


async def heal(stage: Stage, fault: Fault) -> Done:
    cuts = stage.links.cuts
    if not cuts:
        raise ClusterError("no link is cut")
    stage.links.heal()
    return Done(", ".join(f"{a}->{b}" for a, b in cuts), "healed")


async def hold(stage: Stage, fault: Fault) -> Done:
    return await _rule(stage, fault, Action.HOLD)


async def drop(stage: Stage, fault: Fault) -> Done:
    return await _rule(stage, fault, Action.DROP)


async def _rule(stage: Stage, fault: Fault, action: Action) -> Done:
    """`from` and `to` are the message's own: an answer travels back to the requester."""
    params = fault.params
    source, sink = (stage.targets(params[k])[0] if k in params else ANY for k in ("from", "to"))
    rule = Rule(
        action,
        str(params["api"]),
        Side(params["side"]),
        source,
        sink,
        path=str(params.get("path", "")),
        limit=int(params["count"]),
    )
    links = stage.links
    refuse_encrypted(links, fault, rule)
    links.add(rule)
    if fault.label:
        stage.rules[fault.label] = rule

    async def undo() -> Effect:
        links.release(rule)
        word = "held" if action is Action.HOLD else "dropped"
        return f"{word} {rule.matched} messages" if rule.matched else None

    return Done(
        f"{rule.api} {rule.side.value} {source}->{sink}",
        None,
        "release",
        undo,
        effect_at_undo=True,
        felt=lambda: rule.matched,
        holds=lambda: not rule.released.is_set(),
    )


def refuse_encrypted(links: Links, fault: Fault, rule: Rule) -> None:
    if links.encrypted_clients and CLIENTS in (rule.source, rule.target):
        raise ClusterError(
            f"{fault.name}: clients come over TLS, where no message can be seen: "
            "cut, latency, bandwidth and reset_peer reach them"
        )


async def release(stage: Stage, fault: Fault) -> Done:
    """Releases the rule that an earlier fault named by `as`, or all that hold or drop.

    It reports messages that were lost with their connection.  With `arrive`, such a loss is no
    effect where nothing else was held, because the arranged message is then not there.
    """
    label = str(fault.params.get("rule", ""))
    if label and label not in stage.rules:
        raise ClusterError(f"no earlier hold or drop is called {label!r}")
    of_all = [rule for rule in stage.links.rules if rule.action is not Action.ANSWER]
    rules = [stage.rules[label]] if label else of_all
    matched = sum(rule.matched for rule in rules)
    for rule in rules:
        stage.links.release(rule)
    held = [rule for rule in rules if rule.action is Action.HOLD]
    with trio.move_on_after(ARRIVAL_S):
        while any(rule.arrived + rule.lost < rule.matched for rule in held):
            await trio.sleep(0.005)
    lost = sum(rule.matched - rule.arrived for rule in held)
    if not matched or (lost == matched and fault.params.get("arrive")):
        return Done(label)
    told = f", {lost} of them gone with their connections" if lost else ""
    return Done(label, f"released {matched} messages{told}")


# --- roles


async def swap_leader(stage: Stage, fault: Fault) -> Done:
    # imported late: it loads a client, and the command line needs the table of verbs without it
    from highwater.cluster.leader_moves import move_leader

    tp = parse_tp(fault.target)
    state = stage.zookeeper.partitions[tp]
    barred = stage.targets(fault.params["not"]) if "not" in fault.params else []
    followers = sorted(n for n in state.isr if n != state.leader and broker(n) not in barred)
    if not followers:
        raise ClusterError(f"{tp} has no follower in its ISR that could lead")
    wanted = int(fault.params.get("leader", 0)) or stage.rng.choice(followers)
    if wanted == state.leader:
        raise ClusterError(f"broker-{wanted} leads {tp} already")
    await move_leader(stage.cluster, tp, wanted, stage.cluster.brokers)
    moved = await stage.zookeeper.wait(
        lambda: stage.zookeeper.partitions[tp].leader == wanted, PATIENCE_S
    )
    effect = f"the leader moved from {state.leader} to {wanted}" if moved else None
    return Done(str(tp), effect)


async def preferred_election(stage: Stage, fault: Fault) -> Done:
    from highwater.cluster.leader_moves import elect_first

    tp = parse_tp(fault.target)
    state, first = stage.zookeeper.partitions[tp], stage.zookeeper.replicas[tp][0]
    if state.leader == first:
        raise ClusterError(f"broker-{first}, the first replica of {tp}, leads already")
    if first not in state.isr:
        raise ClusterError(f"broker-{first}, the first replica of {tp}, is not in its ISR")
    await elect_first(stage.cluster, tp)
    moved = await stage.zookeeper.wait(
        lambda: stage.zookeeper.partitions[tp].leader == first, PATIENCE_S
    )
    return Done(str(tp), f"the leader moved from {state.leader} to {first}" if moved else None)


async def move_controller(stage: Stage, fault: Fault) -> Done:
    witness = stage.zookeeper
    member, epoch = stage.target(fault, "controller"), witness.controller_epoch
    done = Done(member)
    if fault.params["how"] == "kill":
        await kill_member(stage, member)
        done = _away(stage, member, None)
    else:
        await trio.to_thread.run_sync(witness.delete_controller)
    moved = await witness.wait(
        lambda: witness.controller_epoch > epoch and witness.controller is not None, PATIENCE_S
    )
    if moved and witness.controller is not None:
        now = node(stage.cluster, witness.controller)
        done.effect = f"{now} is the controller, epoch {epoch + 1} or later"
    return done


async def expire_session(stage: Stage, fault: Fault) -> Done:
    """Cuts a broker from ZooKeeper until its znode is gone."""
    member = stage.target(fault)
    number = broker_number(member)
    if number not in stage.zookeeper.brokers:
        raise ClusterError(f"{member} has no session")
    done = cut_pairs(stage, [(member, ZOOKEEPER), (ZOOKEEPER, member)])
    gone = await stage.zookeeper.wait(lambda: number not in stage.zookeeper.brokers, PATIENCE_S)
    assert done.undo is not None
    await done.undo()
    return Done(member, "its znode went" if gone else None)


# --- waits and names


async def bind(stage: Stage, fault: Fault) -> Done:
    """Only names the present holder of a role (`as`)."""
    members = stage.targets(fault.target)
    return Done(",".join(members), "bound")


async def wait(stage: Stage, fault: Fault) -> Done:
    """Waits `until`: "healthy", "isr of TP is N" (its size), "leader of TP is not $L"."""
    until = str(fault.params.get("until", ""))
    within = float(fault.params["within"])
    if not until:
        await trio.sleep(float(fault.params["seconds"]))
        return Done("", "waited")
    if until == "healthy":
        problems = await stage.wait_healthy(within)
        return Done("", "the cluster is whole" if not problems else None)
    words = until.split()
    if len(words) == 5 and words[:2] == ["isr", "of"] and words[3] == "is" and words[4].isdigit():
        tp, size = parse_tp(words[2]), int(words[4])
        came = await stage.zookeeper.wait(
            lambda: len(stage.zookeeper.partitions[tp].isr) == size, within
        )
        return Done(str(tp), f"its ISR has {size} members" if came else None)
    if len(words) >= 5 and words[:2] == ["leader", "of"] and words[3] == "is":
        return await _wait_leader(stage, words, within)
    raise ScheduleError(
        f"wait: {until!r} is not understood; write healthy, isr of safe-0 is 2,"
        " leader of safe-0 is $F"
    )


async def _wait_leader(stage: Stage, words: list[str], within: float) -> Done:
    tp, negated = parse_tp(words[2]), words[4] == "not"
    (member,) = stage.targets(" ".join(words[5 if negated else 4 :]))
    number = broker_number(member)

    def holds() -> bool:
        leader = stage.zookeeper.partitions[tp].leader
        return leader >= 0 and (leader == number) is not negated

    came = await stage.zookeeper.wait(holds, within)
    leader = stage.zookeeper.partitions[tp].leader
    return Done(str(tp), f"broker-{leader} leads" if came else None)
