"""One partition on one broker: its role, its high watermark, its followers and its ISR.

Everything here is synchronous, so under trio each step is atomic: append and HW move together, and
no lock is needed.  Changes for ZooKeeper are returned as an `IsrChange`, which the replica manager
writes.

The invariants that the simulation checks after each step (R1, R3, R7, R9 of the harness):

* The HW is the least LEO among the maximal ISR, and among replicas outside it that are about to
  join; it never falls while this broker leads, and does not move while the ISR is below
  min.insync.replicas.
* A follower joins the ISR only with LEO >= max(HW, start offset of this leader's epoch): below that
  start offset its log may still differ from the leader's.
* A leader writes its epoch and start offset into the epoch cache before its first append.

Source: kafka.cluster.Partition; KIP-101, KIP-279, KIP-320, KIP-497.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from highwater.broker.log.parts import part_of
from highwater.broker.log.validation import checked
from highwater.broker.replica.follower import Follower
from highwater.broker.replica.isr import Isr
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import (
    NO_LEADER,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicPartition,
    ZkVersion,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from highwater.broker.log.log import Log
    from highwater.broker.log.log_config import LogConfig
    from highwater.broker.log.parts import AppendInfo, Origin
    from highwater.broker.log.verification import Verification
    from highwater.kafka.wire.records import BatchHeader


class Role(Enum):
    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """One partition's state, as the controller's LeaderAndIsr carries it."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    controller_epoch: ControllerEpoch
    isr: tuple[int, ...]
    zk_version: ZkVersion
    replicas: tuple[int, ...]
    is_new: bool = False
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class IsrChange:
    """A proposal to write: the znode's data, under the version that it must have."""

    tp: TopicPartition
    leader: BrokerId
    leader_epoch: LeaderEpoch
    controller_epoch: ControllerEpoch
    isr: tuple[int, ...]
    zk_version: ZkVersion
    shrink: bool


class Partition:
    """See the module's docstring.  `log` is None until the first LeaderAndIsr, and after its
    directory failed.
    """

    def __init__(
        self,
        tp: TopicPartition,
        local_id: BrokerId,
        max_lag_ms: int,
        is_alive: Callable[[int], bool],
    ) -> None:
        self.tp = tp
        self.local_id = local_id
        self.max_lag_ms = max_lag_ms
        """A follower that was last caught up longer ago than this leaves the ISR."""
        self.is_alive = is_alive
        """Whether a broker is alive: only then may it join the ISR."""
        self.log: Log | None = None
        """None before `host` and while OFFLINE, never otherwise; a copy in another directory
        replaces it only when both end at the same offset."""
        self.role = Role.NONE
        """NONE before the first LeaderAndIsr and once deleted; OFFLINE is for good."""
        self.leader: BrokerId = NO_LEADER
        """The broker that LeaderAndIsr named for `leader_epoch`; `stop` does not change it."""
        self.leader_epoch = LeaderEpoch(-1)
        """The newest epoch that LeaderAndIsr has named; it never falls, and is -1 at first."""
        self.controller_epoch = ControllerEpoch(0)
        """The epoch in the LeaderAndIsr that named `leader_epoch`; every IsrChange carries it."""
        self.replicas: tuple[int, ...] = ()
        """The replicas assigned when `leader_epoch` began; this broker is one of them."""
        self.adding: tuple[int, ...] = ()
        """The members of `replicas` that a reassignment adds; empty without one."""
        self.removing: tuple[int, ...] = ()
        """The members of `replicas` that a reassignment takes away; empty without one."""
        self.in_isr = False  # whether this broker was in the ISR when `leader_epoch` began
        self.isr = Isr()
        """On a leader: ZooKeeper's latest ISR, and at most one pending change; else unused."""
        self.followers: dict[int, Follower] = {}
        """On a leader: all other replicas and members of the ISR; else unused."""
        self._high_watermark = 0
        """At most the log's end; on a leader it never falls, and is never above the LEO of a member
        of the maximal ISR.  Invariant 2."""
        self.epoch_start_offset = 0
        """On a leader: the log's end when `leader_epoch` began, so never above its end now.
        Invariant 7."""
        self.min_insync_replicas = 1
        """The topic's setting; it may exceed the number of replicas (`effective_min_isr` may
        not)."""
        self.generation = 0
        """A counter that rises whenever this broker ceases to lead, and never falls: so an append
        of an ended term is not acknowledged, even if the broker leads again.  Invariant 4."""

    # ---------------------------------------------------------------- the log

    def host(self, log: Log, checkpoint: int, min_isr: int) -> None:
        """Starts to use this log.  The HW becomes `checkpoint`, the HW in the checkpoint file,
        within the bounds of the log that recovery has found.
        """
        self.log = log
        self.min_insync_replicas = min_isr
        self._set_high_watermark(max(log.log_start_offset, min(checkpoint, log.log_end_offset)))

    def log_moved(self, log: Log) -> None:
        """Replaces the log by a copy in another directory, equal to the log up to its end."""
        self.require_log()
        self.stir()
        self.log = log

    def configure(self, config: LogConfig, min_isr: int, now_ms: int) -> bool:
        """Applies a changed configuration of the topic; True if the HW moved."""
        self.require_log().config = config
        self.min_insync_replicas = min_isr
        return self.is_leader and self.advance_high_watermark(now_ms)

    # ---------------------------------------------------------------- roles

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    def _set_high_watermark(self, offset: int) -> None:
        assert self.log is None or 0 <= offset <= self.log.log_end_offset, "the HW is in the log"
        self.stir(ends_wait=False)
        self._high_watermark = offset
        if self.log is not None:
            self.log.update_high_watermark(offset)

    def require_log(self) -> Log:
        """Raises ApiError(KAFKA_STORAGE_ERROR) if the log's directory is offline."""
        if self.log is None or self.role is Role.OFFLINE:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        return self.log

    def leader_log(self) -> Log:
        """Raises ApiError(NOT_LEADER_OR_FOLLOWER) unless this broker leads."""
        if self.role is Role.LEADER and self.log is not None:
            return self.log
        self.require_log()
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def check_leader_epoch(self, client_epoch: int) -> None:
        """KIP-320's fence; -1 means that the client does not know the epoch."""
        if client_epoch in (-1, self.leader_epoch):
            return
        if client_epoch < self.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def _adopt(self, state: LeaderAndIsr) -> None:
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.controller_epoch = state.controller_epoch
        self.replicas, self.adding, self.removing = state.replicas, state.adding, state.removing
        self.in_isr = self.local_id in state.isr

    def make_leader(self, state: LeaderAndIsr, now_ms: int) -> bool:
        """Takes over (or goes on) as leader in a newer epoch; True if the HW moved.

        The epoch's start offset is this log's end: whatever a follower holds at or above it in an
        older epoch is not part of this leader's history.
        """
        log = self.require_log()
        was_leader = self.is_leader
        self.stir()
        self._adopt(state)
        self.isr.reset(state.isr, state.zk_version)
        self.role, log.doubtful_from = Role.LEADER, None
        self.epoch_start_offset = log.log_end_offset
        log.epochs.lead(state.leader_epoch, log.log_end_offset)
        # a replica that a reassignment takes away stays, and counts, in the ISR for a moment
        others = [b for b in dict.fromkeys((*state.replicas, *state.isr)) if b != self.local_id]
        self.followers = {b: self.followers.get(b) or Follower(b) for b in others}
        for broker_id, follower in self.followers.items():
            follower.new_term(not was_leader, broker_id in state.isr, log.log_end_offset, now_ms)
        return self.advance_high_watermark(now_ms)

    def make_follower(self, state: LeaderAndIsr) -> None:
        """Follows `state.leader`; the fetcher brings the log in line before it appends."""
        self.stir()
        self.require_log()
        self._adopt(state)
        self.isr.reset((), state.zk_version)
        self.followers = {}
        self.role = Role.FOLLOWER
        self.generation += 1

    def stop(self, delete: bool) -> None:
        """Handles StopReplica: with `delete` this broker gives the partition up; without, it only
        ceases to lead, and waits for the next LeaderAndIsr.
        """
        self.stir()
        if delete:
            self.role = Role.NONE
        elif self.is_leader:
            self.role = Role.FOLLOWER
        else:
            return
        self.generation += 1

    def go_offline(self) -> None:
        """Handles the failure of the log's directory: nothing more is served or written."""
        self.stir()
        self.role = Role.OFFLINE
        self.log = None
        self.generation += 1

    # ---------------------------------------------------------------- leader

    def stir(self, *, ends_wait: bool = True) -> None:
        """Notifies the followers' feeds (`replica/feed.py`) before anything changes that they
        read; `Feed.stir` explains `ends_wait`."""
        for follower in self.followers.values():
            if (fed := follower.fed) is not None:
                fed.feed.stir(fed, ends_wait=ends_wait)

    @property
    def effective_min_isr(self) -> int:
        return min(self.min_insync_replicas, len(self.replicas) or 1)

    @property
    def under_min_isr(self) -> bool:
        members = len(self.isr.members)
        # a topic cannot require more replicas than it has
        return members < self.min_insync_replicas and (
            self.role is Role.LEADER and members < self.effective_min_isr
        )

    def verify_transaction(
        self, producer_id: int, epoch: int, sequence: int, wall_ms: int, *, always: bool = False
    ) -> Verification | None:
        """Begins the verification that `append` needs for a batch that begins a transaction: the
        transaction coordinator must agree first (KIP-890).  None if it need not be asked, because
        a transaction of this epoch is open, or this broker does not verify (unless `always`).
        """
        log = self.leader_log()
        if not (always or log.config.verify_transactions):
            return None
        known = log.producers.get(producer_id)
        if known is not None and known.txn_first_offset >= 0 and known.epoch == epoch:
            return None
        return log.producers.verifications.begin(producer_id, epoch, sequence, wall_ms)

    def writable_log(self, acks: int) -> Log:
        """The log of a leader that may take a write; raises ApiError (NOT_LEADER_OR_FOLLOWER,
        NOT_ENOUGH_REPLICAS).
        """
        log = self.leader_log()
        if acks == -1 and self.under_min_isr:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"the ISR of {self.tp} has {len(self.isr.members)} members, "
                f"min.insync.replicas is {self.min_insync_replicas}",
            )
        return log

    def append(
        self,
        records: memoryview,
        acks: int,
        now_ms: int,
        wall_ms: int,
        origin: Origin,
        *,
        examined: BatchHeader | None = None,
        verification: Verification | None = None,
    ) -> tuple[AppendInfo, bool]:
        """Checks batches as their origin requires, and appends them as leader; the second value is
        True if the HW moved.

        `examined` is the header of a client's batch that `validation.examine` has accepted;
        `Log.append_as_leader` explains `verification`.
        Raises ApiError (NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, then errors of the batch or
        its producer), or OSError from the disk, with nothing changed.
        """
        log = self.writable_log(acks)
        assert log.epochs.latest >= self.leader_epoch, "invariant 6: its epoch's start is written"
        if examined is None:
            records, headers = checked(records, log.config, origin, wall_ms)
        else:
            headers = [examined]
        self.stir()
        info = log.append_as_leader(
            records, headers, self.leader_epoch, wall_ms, origin=origin, verification=verification
        )
        if not info.duplicate:
            self._feed(records, headers, info.base_offset)
        # with followers in the ISR the HW cannot move before they fetch
        moved = len(self.isr.maximal) == 1 and self.advance_high_watermark(now_ms)
        return info, moved

    def _feed(self, records: memoryview, headers: list[BatchHeader], base: int) -> None:
        """Gives what was just written to the feeds that wait at exactly this offset, so that they
        need not read it back."""
        for follower in self.followers.values():
            fed = follower.fed
            if fed is not None and fed.feed.waits and fed.asked.fetch_offset == base:
                fed.fresh = part_of(records, headers)

    def follower_fetched(
        self, follower_id: int, offset: int, log_start: int, now_ms: int
    ) -> tuple[bool, IsrChange | None]:
        """Records a follower's fetch that was read without an error: it has all below `offset`."""
        log = self.leader_log()
        follower = self.followers.get(follower_id)
        if follower is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if (fed := follower.fed) is not None and fed.rests:
            fed.feed.stir(fed)  # this fetch came in another session
        before = follower.log_end_offset
        follower.fetched(offset, log_start, log.log_end_offset, now_ms)
        change = self._maybe_expand(follower)
        moved = False
        if follower.log_end_offset != before or change is not None:
            moved = self.advance_high_watermark(now_ms)
        return moved, change

    def _maybe_expand(self, follower: Follower) -> IsrChange | None:
        if follower.broker_id in self.isr.members or not self.isr.may_change:
            return None
        if follower.broker_id not in self.replicas:
            return None
        if follower.log_end_offset < max(self.high_watermark, self.epoch_start_offset):
            return None
        if not self.is_alive(follower.broker_id):
            return None
        return self._propose((*self.isr.members, follower.broker_id), shrink=False)

    def maybe_shrink(self, now_ms: int) -> IsrChange | None:
        """Proposes an ISR without the followers behind for more than replica.lag.time.max.ms."""
        if not self.is_leader or not self.isr.may_change or self.log is None:
            return None
        end = self.log.log_end_offset
        lagging = [
            b
            for b in self.isr.members
            if b != self.local_id
            and (
                b not in self.followers
                or not self.followers[b].caught_up(end, now_ms, self.max_lag_ms)
            )
        ]
        if not lagging:
            return None
        return self._propose(tuple(b for b in self.isr.members if b not in lagging), shrink=True)

    def _propose(self, members: tuple[int, ...], shrink: bool) -> IsrChange:
        assert all(self._may_join(b) for b in members if b not in self.isr.members), "invariant 7"
        self.isr.propose(members)
        return IsrChange(
            self.tp,
            self.local_id,
            self.leader_epoch,
            self.controller_epoch,
            members,
            self.isr.zk_version,
            shrink,
        )

    def _may_join(self, broker_id: int) -> bool:
        joined_at = self.followers[broker_id].log_end_offset
        return joined_at >= self.high_watermark and joined_at >= self.epoch_start_offset

    def isr_settled(self, change: IsrChange, zk_version: ZkVersion | None, now_ms: int) -> bool:
        """Takes the outcome of a write: the znode's new version, or None if ZooKeeper refused it.
        True if the HW moved.

        An outcome that arrives after a newer LeaderAndIsr is ignored: its state is gone.
        """
        if not self.is_leader or change.leader_epoch != self.leader_epoch:
            return False
        if self.isr.pending != change.isr or self.isr.zk_version != change.zk_version:
            return False
        if zk_version is None:
            self.isr.refuse()
            return False
        self.stir()
        self.isr.settle(zk_version)
        return self.advance_high_watermark(now_ms)

    def advance_high_watermark(self, now_ms: int) -> bool:
        """Moves the HW to the least LEO of the counted replicas; True if it moved."""
        log = self.log
        if log is None or self.under_min_isr:
            return False
        end = log.log_end_offset
        # with flush.messages=1 the leader's own copy counts once it would survive a power loss
        lowest = log.recovery_point if log.config.flush_messages == 1 else end
        maximal = self.isr.maximal
        for broker_id, follower in self.followers.items():
            if follower.log_end_offset < lowest and (
                broker_id in maximal
                or (follower.caught_up(end, now_ms, self.max_lag_ms) and self.is_alive(broker_id))
            ):
                lowest = follower.log_end_offset
        if lowest <= self._high_watermark:
            return False
        assert self._all_have(lowest), "invariant 2: the maximal ISR holds what is below the HW"
        self._set_high_watermark(lowest)
        return True

    def _all_have(self, offset: int) -> bool:
        """Whether the ISR is large enough, and every member of the maximal ISR holds everything
        below the offset."""
        if self.under_min_isr or offset < self._high_watermark:
            return False
        for broker_id in (*self.isr.members, *(self.isr.pending or ())):
            if broker_id != self.local_id and self.followers[broker_id].log_end_offset < offset:
                return False
        return True

    def committed(self, required_offset: int, generation: int) -> ErrorCode | None:
        """Whether an acks=all append that ended at `required_offset` may be acknowledged.

        None: not yet.  NONE: yes.  Otherwise the error that ends the wait.
        """
        if self.role is Role.OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.role is not Role.LEADER or generation != self.generation:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self._high_watermark < required_offset:
            return None
        if self.under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def holds_committed(self, required_offset: int, generation: int) -> bool:
        """Invariant 4: the HW has passed the append, and this broker has led without a break."""
        led = self.is_leader and generation == self.generation
        return led and self._high_watermark >= required_offset

    @property
    def last_stable_offset(self) -> int:
        """The end for read_committed: the HW, or the first offset of an open transaction."""
        high_watermark = self._high_watermark
        unstable = None if self.log is None else self.log.first_unstable_offset
        return high_watermark if unstable is None else min(unstable, high_watermark)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """The answer to OffsetsForLeaderEpoch: the largest known epoch at or below `epoch`, and
        the offset where it ends.
        """
        log = self.leader_log()
        if epoch == self.leader_epoch:
            return epoch, log.log_end_offset
        return log.epochs.end_offset_for(epoch, log.log_end_offset)

    def latest_offset(self, isolation_level: int) -> int:
        """The answer to a client's ListOffsets(latest).  OFFSET_NOT_AVAILABLE until the HW reaches
        this epoch (KIP-207): it may still lie below what the previous leader showed."""
        self.leader_log()
        if self.high_watermark < self.epoch_start_offset:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return self.last_stable_offset if isolation_level else self.high_watermark

    # ---------------------------------------------------------------- follower

    def append_fetched(
        self, records: memoryview, headers: list[BatchHeader], leader_hw: int, leader_start: int
    ) -> None:
        """Appends the leader's batches, then follows its HW and log start offset."""
        log = self.require_log()
        if headers:
            log.append_as_follower(records, headers)
        hw = min(leader_hw, log.log_end_offset)
        if hw > self._high_watermark:
            self._set_high_watermark(hw)
        if leader_start > log.log_start_offset:
            log.advance_log_start(leader_start)

    def truncate_to(self, offset: int) -> None:
        """Cuts the log as the leader's epochs demand.

        The HW can lie above the new end in three cases: it came from a checkpoint, and the log has
        lost its tail since; an election was unclean; or compaction, while this replica was away,
        has left the leader no batch of this log's last epoch.
        """
        log = self.require_log()
        log.truncate_to(offset)
        self._set_high_watermark(min(self.high_watermark, log.log_end_offset))

    def restart_at(self, offset: int) -> None:
        """Drops everything: the leader's log begins at or above this log's end."""
        self.require_log().truncate_fully_and_start_at(offset)
        self._set_high_watermark(offset)
