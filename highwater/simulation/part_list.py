"""The parts that a run can have, and their order.

The flags of `highwater sim` and of spark/simulate.py, and the fields of Options for them, are made
from PARTS.  A new workload is a file in `workloads/`, and a row here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from highwater.simulation.cluster import SPARE
from highwater.simulation.workloads.administrators import Administrators
from highwater.simulation.workloads.changing_settings import ChangingSettings
from highwater.simulation.workloads.consumers.consumer_workload import Consumers
from highwater.simulation.workloads.epoch_reader import EpochReader
from highwater.simulation.workloads.exact_keys import Compacted
from highwater.simulation.workloads.filing import Filing
from highwater.simulation.workloads.group_workload import Groups
from highwater.simulation.workloads.part import Part, Shared
from highwater.simulation.workloads.plain_topics import LOSSY, PlainTopics
from highwater.simulation.workloads.retained import RetainedTopics
from highwater.simulation.workloads.sharing.share_workload import ShareGroups
from highwater.simulation.workloads.static_members import Shift
from highwater.simulation.workloads.transactional.keyed_transactions import KeyedTransactions
from highwater.simulation.workloads.transactional.mixed_commits import MixedCommits
from highwater.simulation.workloads.transactional.transaction_workload import Transactions
from highwater.simulation.workloads.transactional.trimmed_transactions import TrimmedTransactions
from highwater.simulation.workloads.trimmed import TrimmedTopic

if TYPE_CHECKING:
    from highwater.world.sim import Kernel


def _switch(name: str, what: str, **fields: object) -> type[Part]:
    """A part that is only a flag: it sets fields of the cluster's Shape, or changes the schedule of
    faults (`faults/variations.py`)."""
    own = {"flag": name, "help": what, "shape": classmethod(lambda *_: fields)}
    return type(name, (Part,), own)


class Unclean(Part):
    flag, help = "unclean", "Unclean elections of the topic that may lose."

    @classmethod
    def of(cls, shared: Shared) -> Self:
        shared.cluster.rules.unclean |= {LOSSY}
        return super().of(shared)


class ColdReads(Part):
    flag, help = "cold_reads", "Readers have to wait for the disk, too."

    @classmethod
    def shape(cls, kernel: Kernel) -> dict[str, Any]:
        return {"small_bytes": 0}  # only sendfile waits for the disk

    @classmethod
    def of(cls, shared: Shared) -> Self:
        for host in shared.hosts.values():
            host.disk.cold = 1 / 3
        return super().of(shared)

    def counted(self, shared: Shared) -> dict[str, int]:
        return {"cold reads": sum(host.disk.loads for host in shared.hosts.values())}


PARTS: tuple[type[Part], ...] = (
    _switch("power_loss", "Power losses of one broker at a time, too."),
    Compacted,
    TrimmedTopic,
    RetainedTopics,
    Administrators,
    Transactions,
    Groups,
    Shift,
    Filing,
    KeyedTransactions,
    MixedCommits,
    TrimmedTransactions,
    EpochReader,
    ChangingSettings,
    Consumers,
    ShareGroups,
    _switch(
        "epoch_bumps",
        "Transactional producers get a new epoch with each end (transaction.version 2).",
        epoch_bumps=True,
    ),
    Unclean,
    ColdReads,
    _switch("stalls", "All processes stand still at once, now and then."),
    _switch("joints", "Events staged to meet, every few seconds."),
    _switch("disk_errors", "Calls of a disk that fail once; full disks."),
    _switch("log_dirs", "Two log directories: replicas move, one fails.", more_log_dirs=(SPARE,)),
    _switch("flush", "log.flush.interval.messages=1, and power losses.", flush_every_batch=True),
    PlainTopics,
)
"""The parts in the order of `highwater sim --help`.  The last one has no flag and is in every run;
it makes its topics with the properties that the others need."""

SWITCHES = tuple(part.flag for part in PARTS if part.flag)
"""The fields of Options that can be switched on."""

# The order of events decides what a seed finds, so it must not change: the parts named here come
# first, then all others in the order of PARTS.
MAKING = (
    PlainTopics, Transactions, Groups, TrimmedTopic, Compacted, RetainedTopics, Administrators,
    KeyedTransactions,
)  # fmt: skip
"""Their topics are made in this order."""
STARTING = (PlainTopics, Transactions, Groups, Compacted, TrimmedTopic, EpochReader)
LOOKING = (Transactions, Groups, PlainTopics, EpochReader)


def in_order(parts: Iterable[Part], first: Sequence[type[Part]]) -> list[Part]:
    """The parts of these types first, and the others as they come."""
    place = {kind: n for n, kind in enumerate(first)}
    return sorted(parts, key=lambda part: place.get(type(part), len(first)))
