"""A schedule from a seed: first the required acts, in an order that the seed chooses; then random
ones.

Between two acts the cluster gets time to become whole.  So each fault meets a cluster that it can
break, and at most one broker is away at a time: nothing acknowledged by acks=all may be lost,
whatever happens.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.interface import PATIENCE_S

Act = Callable[[random.Random, str], list[Fault]]


def healthy(after_s: float, optional: bool) -> Fault:
    params = {"until": "healthy", "within": PATIENCE_S}
    return Fault("wait", after=after_s, params=params, optional=optional)


def swap_leader(rng: random.Random, tp: str) -> list[Fault]:
    return [Fault("swap_leader", tp)]


def pause_follower(rng: random.Random, tp: str) -> list[Fault]:
    """Pauses longer than replica.lag.time.max.ms and the session: the ISR shrinks, then expands."""
    return [Fault("pause", f"follower of {tp}", lasts=rng.uniform(4.0, 4.8))]


def lose_unreplicated(rng: random.Random, tp: str) -> list[Fault]:
    return [Fault("lose_unreplicated", params={"seconds": 0.8})]


def move_controller(rng: random.Random, tp: str) -> list[Fault]:
    return [Fault("move_controller", params={"how": rng.choice(["delete", "delete", "kill"])})]


def kill_controller(rng: random.Random, tp: str) -> list[Fault]:
    return [Fault("move_controller", params={"how": "kill"})]


def kill_leader(rng: random.Random, tp: str) -> list[Fault]:
    return [Fault("kill", f"leader of {tp}", lasts=rng.uniform(1.0, 2.5))]


def cut_brokers(rng: random.Random, tp: str) -> list[Fault]:
    """Cuts a follower from its leader, in both directions or in one."""
    ends = {"from": f"follower of {tp}", "to": f"leader of {tp}"}
    one_way = rng.random() < 0.5
    return [Fault("cut", lasts=rng.uniform(2.5, 4.0), params={**ends, "one_way": one_way})]


def cut_zookeeper(rng: random.Random, tp: str) -> list[Fault]:
    """Cuts for longer than the session: the broker lives on without its znode."""
    ends = {"from": f"leader of {tp}", "to": "zookeeper"}
    return [Fault("cut", lasts=rng.uniform(3.5, 5.0), params=ends)]


def stop_broker(rng: random.Random, tp: str) -> list[Fault]:
    return [Fault("stop", f"leader of {tp}", lasts=rng.uniform(0.5, 2.0))]


def hold_answer(rng: random.Random, tp: str) -> list[Fault]:
    """Delays one answer of a leader to a follower's fetch."""
    ends = {"from": f"leader of {tp}", "to": f"follower of {tp}"}
    more = {"api": "Fetch", "side": "response"}
    return [Fault("hold", lasts=rng.uniform(1.0, 2.5), params={**ends, **more})]


def stand_still(rng: random.Random, tp: str) -> list[Fault]:
    """Stops brokers, ZooKeeper and clients, mostly for less than a session."""
    return [Fault("stand_still", lasts=rng.uniform(0.3, rng.choice([1.2, 1.2, 4.5])))]


def cut_clients(rng: random.Random, tp: str) -> list[Fault]:
    ends = {"from": f"leader of {tp}", "to": "clients"}
    one_way = rng.random() < 0.5
    return [Fault("cut", lasts=rng.uniform(1.0, 3.0), params={**ends, "one_way": one_way})]


def hold_answer_to_client(rng: random.Random, tp: str) -> list[Fault]:
    """Delays an answer to a producer, which then does not know whether its records were taken."""
    ends = {"from": f"leader of {tp}", "to": "clients"}
    more = {"api": "Produce", "side": "response"}
    return [Fault("hold", lasts=rng.uniform(1.0, 2.5), params={**ends, **more})]


def reset_clients(rng: random.Random, tp: str) -> list[Fault]:
    return [Fault("reset_peer", params={"from": f"leader of {tp}", "to": "clients"})]


def fill_disk(rng: random.Random, tp: str) -> list[Fault]:
    return [Fault("disk_full", f"leader of {tp}", lasts=rng.uniform(0.5, 2.0))]


def slow_disk(rng: random.Random, tp: str) -> list[Fault]:
    params = {"latency": rng.choice([20, 100, 400])}
    return [Fault("slow_disk", f"leader of {tp}", lasts=rng.uniform(2.0, 4.0), params=params)]


def jump_clock(rng: random.Random, tp: str) -> list[Fault]:
    """Moves a clock forward or back, by a minute or a day: by less than the retention time."""
    params = {"by": rng.choice([-1, 1]) * rng.choice([60, 3600, 86400])}
    return [Fault("clock_jump", f"leader of {tp}", lasts=rng.uniform(2.0, 5.0), params=params)]


REQUIRED: tuple[Act, ...] = (swap_leader, pause_follower, lose_unreplicated, move_controller)
CHANCE: tuple[Act, ...] = (
    kill_leader, kill_leader, cut_brokers, cut_zookeeper, stop_broker, hold_answer, stand_still,
    fill_disk, slow_disk, jump_clock,
    *REQUIRED,
)  # fmt: skip
AT_THE_CLIENTS: tuple[Act, ...] = (cut_clients, hold_answer_to_client, reset_clients)
"""The acts that replace those between brokers, where links between brokers cannot be cut."""
SHORTEST_ACT_S = 1.0


Possible = Callable[[Fault], bool]


def acts_of(acts: Sequence[Act], partition: str, possible: Possible) -> list[Act]:
    """The acts that are possible here; a controller that cannot be deposed is killed instead."""
    found = []
    for act in acts:
        for kind in (act, kill_controller) if act is move_controller else (act,):
            # an act is random (as how a controller moves): several drawn forms must be possible
            drawn = [fault for n in range(8) for fault in kind(random.Random(n), partition)]
            if all(map(possible, drawn)):
                found.append(kind)
                break
    return found


def generate(
    seed: int, duration_s: float, partitions: list[str], possible: Possible = lambda fault: True
) -> list[Fault]:
    """The required acts, whatever the duration; then random acts, as many as could be needed.

    Acts that need an impossible fault are left out, even if they are required.
    """
    rng = random.Random(seed)
    required = acts_of(REQUIRED, partitions[0], possible)
    by_chance = acts_of(CHANCE, partitions[0], possible)
    if cut_brokers not in by_chance:
        by_chance += AT_THE_CLIENTS
    acts = list(required)
    rng.shuffle(acts)
    acts += [rng.choice(by_chance) for _ in range(int(duration_s / SHORTEST_ACT_S))]
    faults = [healthy(1.5, optional=False)]
    for number, act in enumerate(acts):
        optional = number >= len(required)
        faults += [replace(f, optional=optional) for f in act(rng, rng.choice(partitions))]
        faults.append(healthy(rng.uniform(0.3, 2.0), optional))
    return faults
