"""The mirror reads only changed bytes, and must show the same as one that reads everything."""

from __future__ import annotations

from struct import Struct

import pytest

from highwater.simulation.rules.mirror import ReplicaMirror, parse
from highwater.world.chance import Random
from highwater.world.sim.disk import SimDisk
from highwater.world.sim.kernel import Kernel
from highwater.world.sim.process import Host, Process
from highwater.world.sim.process_disk import ProcessDisk

FOLDER = "/data/t-0"
_HEAD = Struct(">qiibIhi")


def batch(base: int, count: int, epoch: int, crc: int) -> bytes:
    body = bytes(61 - _HEAD.size) + b"records"
    return _HEAD.pack(base, _HEAD.size + len(body) - 12, epoch, 2, crc, 0, count - 1) + body


class Writer:
    """A log that is appended to, rolled, cut, deleted from and rebuilt, as `random` says."""

    def __init__(self, disk: ProcessDisk, random: Random) -> None:
        self.disk = disk
        self.random = random
        self.next = 0
        disk.make_dirs(FOLDER)

    def logs(self) -> list[str]:
        if not self.disk.exists(FOLDER):
            return []
        return [f"{FOLDER}/{n}" for n in self.disk.list(FOLDER) if n.endswith(".log")]

    def append(self) -> None:
        if not self.logs():
            self.roll()
            return
        count = self.random.randint(1, 4)
        data = batch(self.next, count, self.random.randint(0, 3), self.random.getrandbits(32))
        half = self.random.randint(0, len(data))
        file = self.disk.open(self.logs()[-1])
        file.append([data[:half]])
        file.append([data[half:]])
        self.next += count
        self.disk.open(f"{FOLDER}/some.index", create=True).append([b"x"])

    def roll(self) -> None:
        self.disk.make_dirs(FOLDER)
        self.disk.open(f"{FOLDER}/{self.next:020d}.log", create=True)

    def cut(self) -> None:
        if self.logs():
            self.recover(self.logs()[-1], self.random.random())

    def recover(self, path: str, share: float = 1.0) -> None:
        """Cuts a log to whole batches."""
        file = self.disk.open(path)
        data = self.disk.read_all(path)
        file.truncate(parse(data[: int(file.size * share)])[1])

    def lose_power(self) -> None:
        self.disk._disk.power_loss()
        for path in self.logs():
            self.recover(path)

    def drop_last(self) -> None:
        if self.logs():
            self.disk.remove(self.logs()[-1])

    def drop_first(self) -> None:
        if self.logs():
            self.disk.rename(self.logs()[0], self.logs()[0] + ".deleted")

    def anew(self) -> None:
        if self.disk.exists(FOLDER):
            self.disk.rename(FOLDER, f"/data/gone-{self.random.getrandbits(40)}")
        self.roll()


@pytest.mark.parametrize("seed", range(40))
def test_what_it_shows_is_what_a_new_mirror_shows(seed: int) -> None:
    kernel = Kernel(seed)
    host = Host(kernel, "broker-1")
    disk = host.disk = SimDisk(kernel, "broker-1")
    random = kernel.random("test")
    writer = Writer(ProcessDisk(disk, Process(host, "broker-1")), random)
    mirror = ReplicaMirror(disk, FOLDER)
    steps = [*[writer.append] * 12, *[writer.roll] * 3, writer.cut, writer.drop_last]
    steps += [writer.drop_first, writer.anew, writer.lose_power]
    held: list[tuple[int, int, int, int]] = []
    for _ in range(400):
        for _ in range(random.randint(1, 3)):
            random.choice(steps)()
        touched, disk.touched = disk.touched, {}
        if "" in touched:
            gone = mirror.refresh()
        else:
            gone = mirror.refresh(touched[FOLDER]) if FOLDER in touched else []
        fresh = ReplicaMirror(disk, FOLDER)
        fresh.refresh()
        assert mirror.batches == fresh.batches
        assert (mirror.start, mirror.end, mirror.exists) == (fresh.start, fresh.end, fresh.exists)
        for offset in (fresh.start, fresh.end, (fresh.start + fresh.end) // 2):
            assert mirror.batch_at(offset) == fresh.batch_at(offset)
        now = [b[:4] for b in mirror.batches]
        lost = [b for b in held if b[0] >= (now[0][0] if now else mirror.start) and b not in now]
        assert bool(lost) <= bool(gone), lost
        held = now


def test_an_append_costs_what_it_appends() -> None:
    kernel = Kernel(1)
    host = Host(kernel, "broker-1")
    disk = host.disk = SimDisk(kernel, "broker-1")
    writer = Writer(ProcessDisk(disk, Process(host, "broker-1")), kernel.random("test"))
    writer.append()
    mirror = ReplicaMirror(disk, FOLDER)
    mirror.refresh()
    first = mirror.batches
    for _ in range(100):
        disk.touched = {}
        writer.roll()
        writer.append()
        assert mirror.refresh(disk.touched[FOLDER]) == []
    # a mirror that had looked through its folder again would have made another list
    assert mirror.batches is first
    assert len(mirror.batches) > 50


def test_a_copy_that_begins_lower_has_lost_nothing() -> None:
    """A replica moves to another directory, and its copy has segments below the log start."""
    kernel = Kernel(1)
    host = Host(kernel, "broker-1")
    disk = host.disk = SimDisk(kernel, "broker-1")
    process, other = ProcessDisk(disk, Process(host, "broker-1")), "/spare/t-0"
    batches = [batch(base, 1, 0, base) for base in range(4)]

    def write(folder: str, first: int, until: int = 4) -> None:
        process.make_dirs(folder)
        for n in range(first, until):
            process.open(f"{folder}/{n:020d}.log", create=True).append([batches[n]])

    def moved(until: int) -> list[int]:
        write(FOLDER, 2)
        mirror = ReplicaMirror(disk, FOLDER, other)
        mirror.refresh()
        write(other, 0, until)
        process.remove_tree(FOLDER)
        gone = mirror.refresh()
        process.remove_tree(other)
        return [one.base for one in gone]

    assert moved(4) == []
    assert moved(3) == [3]
