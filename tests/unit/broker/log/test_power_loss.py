"""Log directories on the simulated disk, which loses what was not synced when the power goes.

The promise: flushed bytes are there after the cut, unchanged; others may be missing from some point
on, and nothing else ever comes in their place.
"""

from __future__ import annotations

import pytest
import trio

from highwater.broker.log.log import Log
from highwater.broker.log.log_manager import LogManager
from highwater.broker.log.segment import NO_TIMESTAMP
from highwater.kafka.config import Config
from highwater.kafka.types import TopicPartition
from highwater.world.sim import Kernel, Simulation, run_simulation
from tests.unit.broker.log.conftest import START_MS, batch, bytes_of, headers_of, lead, sequence_of

TPS = [TopicPartition("a", 0), TopicPartition("b", 1)]
FOLDER = "/data"


class Machine:
    """One host that is switched off and on, and the bytes that its logs must still hold."""

    def __init__(self, kernel: Kernel) -> None:
        self.random = kernel.random("test")
        self.simulation = Simulation(kernel)
        self.host = self.simulation.add_host("h")
        self.config = Config(
            broker_id=1, log_dirs=(FOLDER,), log_segment_bytes=600, log_index_interval_bytes=100,
            log_segment_delete_delay_ms=100, log_flush_offset_checkpoint_interval_ms=200,
            producer_id_expiration_ms=2**60,
        )  # fmt: skip
        self.durable: dict[TopicPartition, bytes] = dict.fromkeys(TPS, b"")
        self.all: dict[TopicPartition, bytes] = dict.fromkeys(TPS, b"")
        self.epoch = self.sent = 0

    async def life(self) -> None:
        """From one start to the next end; the end is a kill, a power cut or a clean shutdown."""
        world = self.simulation.start(self.host)
        manager = LogManager(world.disk, world.clock, [FOLDER], self.config, lambda p, e: None)
        async with trio.open_nursery() as nursery:
            await manager.load("c", 1)
            self.check(manager)
            nursery.start_soon(manager.run)
            for _ in range(self.random.randint(0, 25)):
                await self.step(manager)
            end = self.random.choice(["kill", "power", "power", "clean"])
            if end == "clean":
                await manager.shutdown()
                self.durable = dict(self.all)
            nursery.cancel_scope.cancel()
        world.process.kill()
        if end != "kill":
            self.simulation.power_loss(self.host)
            self.simulation.power_on(self.host)

    def check(self, manager: LogManager) -> None:
        for tp in TPS:
            log = manager.get(tp)
            if log is None:
                assert not self.durable[tp]
                log = manager.get_or_create(tp, manager.default_config)
            data = bytes_of(log)
            assert data.startswith(self.durable[tp])
            assert self.all[tp].startswith(data)
            self.all[tp] = data
            headers = headers_of(log)
            assert log.log_end_offset == (headers[-1].last_offset + 1 if headers else 0)
            check_times(log)
            epochs: dict[int, int] = {}
            for header in headers:
                epochs.setdefault(header.partition_leader_epoch, header.base_offset)
            assert [e for e in log.epochs.entries if e[1] < log.log_end_offset] == [*epochs.items()]
            for who in (0, 1):
                mine = [h.last_sequence for h in headers if h.producer_id == who]
                assert [s for s, _ in sequence_of(log, who)][-1:] == mine[-1:]

    async def step(self, manager: LogManager) -> None:
        tp = self.random.choice(TPS)
        log = manager.logs[tp]
        match self.random.choice(["append"] * 6 + ["epoch", "flush", "truncate", "sleep"]):
            case "append":
                who = self.random.randint(0, 1)
                known = sequence_of(log, who)
                sequence = known[-1][0] + 1 if known else 0
                self.sent += 10
                at_ms, count = START_MS + self.sent, self.random.randint(1, 3)
                sent = batch(count, producer=(who, 0, sequence), timestamp=at_ms)
                lead(log, sent, self.epoch, START_MS)
                self.all[tp] += bytes(sent)
            case "epoch":
                self.epoch += 1
            case "flush":
                before = self.all[tp]
                await log.flush()
                self.durable[tp] = before
            case "truncate":
                offset = self.random.randint(0, log.log_end_offset)
                # the part that is cut was durable, and may come back until the next flush
                log.truncate_to(offset)
                data = bytes_of(log)
                check_times(log)
                await manager.settle()
                await log.flush()
                self.all[tp] = self.durable[tp] = data
            case _:
                await trio.sleep(self.random.uniform(0, 0.3))


def check_times(log: Log) -> None:
    for segment in log.segments:
        newest = max((h.max_timestamp for h in segment.walk(0)), default=NO_TIMESTAMP)
        assert segment.max_timestamp == newest


@pytest.mark.parametrize("seed", range(30))
def test_what_was_flushed_is_there(seed: int) -> None:
    async def main(kernel: Kernel) -> None:
        machine = Machine(kernel)
        for _ in range(6):
            await machine.life()

    run_simulation(seed, main)


@pytest.mark.parametrize("seed", range(12))
def test_what_was_cut_off_before_a_roll_stays_away(seed: int) -> None:
    """Found by seed 200001 of `--power-loss --stalls --flush`: the cut was not flushed with what
    was appended after it, which is in the next segment, and recovery dropped that one."""

    async def main(kernel: Kernel) -> None:
        machine = Machine(kernel)
        world = machine.simulation.start(machine.host)
        manager = LogManager(world.disk, world.clock, [FOLDER], machine.config, lambda p, e: None)
        await manager.load("c", 1)
        log = manager.get_or_create(TPS[0], manager.default_config)
        for _ in range(4):  # the last of them has no entry in an index
            lead(log, batch(1))
        await log.flush()
        log.truncate_to(3)
        log.roll()
        lead(log, batch(1), epoch=1)
        await log.flush()
        machine.durable[TPS[0]] = machine.all[TPS[0]] = bytes_of(log)
        world.process.kill()
        machine.simulation.power_loss(machine.host)
        machine.simulation.power_on(machine.host)
        world = machine.simulation.start(machine.host)
        manager = LogManager(world.disk, world.clock, [FOLDER], machine.config, lambda p, e: None)
        await manager.load("c", 1)
        assert bytes_of(manager.logs[TPS[0]]) == machine.durable[TPS[0]]

    run_simulation(seed, main)
