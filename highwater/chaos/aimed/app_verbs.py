"""The verbs that a schedule on an application can use: those of all runs, and those that aim at its
copies."""

from __future__ import annotations

from dataclasses import replace

from highwater.chaos.aimed import probes, refusals
from highwater.chaos.aimed.windows import AHEAD
from highwater.cluster.faults import verb_table, verbs
from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.faults.scene import ANY_COPY, Scene, Wrong
from highwater.cluster.faults.verb_row import Field, Target, Verb


def _check_ahead(scene: Scene, fault: Fault) -> None:
    """Refuses `ahead` for a broker: when a broker dies, the output is written all the same."""
    if fault.params.get("when") == AHEAD:
        _is_copy(scene, fault.target)


def _is_copy(scene: Scene, target: str) -> None:
    copies = (*scene.apps, ANY_COPY)
    if target not in copies and target[:1] != "$":
        raise Wrong(f"{target!r} is no copy; there are {', '.join(copies)}")


_WHEN = Field("when", "the moment of the application's at which to strike", choices=probes.WHEN)
_COPY = Target("a copy", _is_copy)
_PLAIN = verb_table.VERBS
VERBS: dict[str, Verb] = {
    **{name: row for name, row in _PLAIN.items() if name != "burst"},
    **{
        name: replace(
            _PLAIN[name], effect=probes.aimed(effect), fields=(_WHEN,), check=_check_ahead
        )
        for name, effect in (("kill", verbs.kill), ("pause", verbs.pause))
    },
    "refuse_output": Verb(
        "refuse_output", refusals.refuse_output, "what a copy writes to the output gets an error, "
        "once, that no client tries again", "whether it commits past it", target=_COPY,
    ),
    "reorder_output": Verb(
        "reorder_output", refusals.reorder_output, "what a copy writes to the output gets an "
        "error, once, that every client tries again, with other requests behind it",
        "how many were behind it", target=_COPY,
    ),
    "lose_unreplicated": replace(_PLAIN["lose_unreplicated"], effect=probes.lose_unreplicated),
    "wait": replace(_PLAIN["wait"], effect=probes.wait),
}  # fmt: skip
"""The verbs that a schedule on an application can use."""
