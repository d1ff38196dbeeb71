"""The verbs of bad links, by Toxiproxy's names: `latency`, `bandwidth`, `reset_peer`."""

from __future__ import annotations

from highwater.cluster.faults.done import Done, Effect
from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.faults.stage import Stage
from highwater.cluster.interface import ClusterError
from highwater.cluster.links.slowness import Slowness


async def latency(stage: Stage, fault: Fault) -> Done:
    delay_s, jitter_s = (float(fault.params[n]) / 1000 for n in ("latency", "jitter"))
    return _slow(stage, fault, Slowness(delay_s, jitter_s, rng=stage.rng), "delayed")


async def bandwidth(stage: Stage, fault: Fault) -> Done:
    limit = Slowness(bytes_per_s=float(fault.params["rate"]) * 1024)
    return _slow(stage, fault, limit, "slowed down")


def _slow(stage: Stage, fault: Fault, slowness: Slowness, word: str) -> Done:
    pairs = stage.directions(fault)
    links = stage.links
    links.slow(slowness, *pairs)

    async def undo() -> Effect:
        links.quicken(slowness)
        return f"{word} {slowness.slowed} pieces" if slowness.slowed else None

    return Done(
        ", ".join(f"{a}->{b}" for a, b in pairs),
        None,
        "quicken",
        undo,
        effect_at_undo=True,
        felt=lambda: slowness.slowed,
        holds=lambda: links.is_slowed_by(slowness),
    )


async def reset_peer(stage: Stage, fault: Fault) -> Done:
    """Resets each connection between the members, whichever of them opened it."""
    pairs = stage.directions(fault)
    count = stage.links.reset(*pairs)
    if not count:
        raise ClusterError(f"no connection goes {', '.join(f'{a}->{b}' for a, b in pairs)} now")
    return Done(", ".join(f"{a}->{b}" for a, b in pairs), f"reset {count} connections")
