"""A test of a run's own checker: it is shown a lie, and must object.

A rule that always says yes would pass every seed.  So at the end of each seed, one committed batch
is replaced by another with a different checksum, and a replica that holds the true batch is
compared again.  The change does not stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from highwater.simulation.last_events import Trace

if TYPE_CHECKING:
    from highwater.simulation.rules.cluster_rules import Rules


def blind_spot(rules: Rules) -> str | None:
    """The lie that the checker failed to see, or None."""
    for truth in rules.partitions.values():
        for replica in truth.replicas.values():
            if (
                truth.compacted
                or not truth.committed
                or replica.lossy
                or replica.matched < truth.end
            ):
                continue
            true, matched = truth.committed[-1], replica.matched
            truth.committed[-1] = true._replace(crc=true.crc ^ 1)
            replica.matched = true.base
            ends, rules.on_violation = rules.on_violation, lambda: None
            # a rule's objection to the lie must not appear as an event of the run
            trace, rules.trace = rules.trace, Trace(rules.now)
            rules.hold(truth, replica, true.last + 1, "R5", "is shown a lie")
            seen, rules.violation = rules.violation, None
            rules.on_violation, rules.trace = ends, trace
            truth.committed[-1], replica.matched = true, matched
            return None if seen else f"the checker took {true} for another batch, and said nothing"
    return None
