"""Short writes, descriptors and threads, which only the real disk has.  The rest is in the
contract."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from highwater.world.api import ColdRead
from highwater.world.real import disk as disk_module
from highwater.world.real.disk import RealDisk, RealFile
from highwater.world.real.page_cache import in_memory
from highwater.world.real.slow_calls import SLOW_NS, SlowCalls

ColdFile = Callable[[RealDisk, Path], RealFile]


def test_what_cannot_be_looked_at_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")  # any error but ENOENT and ENOTDIR
    (tmp_path / "file").touch()
    disk = RealDisk()
    for asks in (disk.exists, disk.is_dir):
        with pytest.raises(OSError):
            asks(str(tmp_path / "loop" / "00.index"))
        assert not asks(str(tmp_path / "missing"))
        assert not asks(str(tmp_path / "file" / "below"))
    assert disk.exists(str(tmp_path / "file"))
    assert not disk.is_dir(str(tmp_path / "file"))


@pytest.mark.parametrize("views", [[b"x" * 100], [b"x" * 60, b"y" * 40]])
def test_a_short_write_says_how_far_it_got(tmp_path: Path, views: list[bytes]) -> None:
    file = RealDisk().open(str(tmp_path / "file"), create=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (70, hard))
    try:
        with pytest.raises(OSError):
            file.append(views)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.size == 70
    assert file.read(0, 100) == b"".join(views)[:70]
    file.truncate(0)
    file.append(views)
    assert file.read(0, 200) == b"".join(views)


def test_more_views_than_one_call_takes(tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "file"), create=True)
    views = [bytes([n % 251]) for n in range(2500)]
    file.append(views)
    assert file.read(0, 3000) == b"".join(views)


async def test_a_file_closed_during_a_flush_keeps_its_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from highwater.world.real import disk as module

    file = RealDisk().open(str(tmp_path / "file"), create=True)
    descriptor = file.fileno()
    seen: list[bool] = []

    def sync(fd: int) -> None:
        file.close()
        os.fstat(fd)
        seen.append(True)

    monkeypatch.setattr(module, "_sync", sync)
    await file.flush()
    assert seen == [True]
    with pytest.raises(OSError):
        os.fstat(descriptor)
    with pytest.raises(OSError):
        await file.flush()


async def test_an_interrupted_replacement_is_not_seen(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "file")
    disk.replace(path, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2, hard))
    try:
        with pytest.raises(OSError):
            disk.replace(path, b"new content")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert disk.read_all(path) == b"old"
    assert disk.list(str(tmp_path)) == ["file"]
    await disk.replace_durably(path, b"new")
    assert disk.read_all(path) == b"new"
    assert disk.list(str(tmp_path)) == ["file"]


async def test_two_replacements_at_once_do_not_mix(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "file")
    work = disk.run

    async def run_later(call: object) -> object:
        disk.replace(path, b"second")
        return await work(call)  # type: ignore[arg-type]

    disk.run = run_later  # type: ignore[method-assign,assignment]
    await disk.replace_durably(path, b"first" * 1000)
    assert disk.read_all(path) in (b"second", b"first" * 1000)


def test_slow_calls_of_the_thread_are_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0

    def slowly(fd: int, data: bytes, position: int) -> int:
        nonlocal now
        now += len(data) * SLOW_NS // 10
        return len(data)

    monkeypatch.setattr("highwater.world.real.slow_calls.clock", lambda: now)
    monkeypatch.setattr("highwater.world.real.disk.clock", lambda: now)
    monkeypatch.setattr(os, "pwrite", slowly)
    slow = SlowCalls()
    file = RealDisk(slow).open(str(tmp_path / "file"), create=True)
    file.append([b"x" * 10])
    assert slow.ns == 0, "a millisecond is not slow"
    file.append([b"x" * 25])
    assert slow.ns == SLOW_NS * 25 // 10
    thread = threading.Thread(target=file.append, args=([b"x" * 50],))
    thread.start()
    thread.join()
    assert slow.ns == SLOW_NS * 25 // 10, "another thread's are not the loop's"


def pages_in_memory(fd: int) -> list[bool]:
    """The pages of the whole file in memory, by mincore(2), which does not make the kernel fetch
    any."""
    with mmap.mmap(fd, 0, mmap.MAP_PRIVATE) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        pages = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        libc = ctypes.CDLL(None, use_errno=True)
        where, size = ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(len(mapped))
        failed = libc.mincore(where, size, pages)
        del first  # or the map cannot be closed
        assert not failed, os.strerror(ctypes.get_errno())
        return [bool(page & 1) for page in pages]


def by_mincore(fd: int, position: int, n: int, scratch: memoryview) -> int:
    """Stands for `in_memory`, which for small sizes makes the kernel fetch a missing page: a disk
    may be so fast that the page is there before the answer."""
    pages = pages_in_memory(fd)
    end, n = position, min(n, os.fstat(fd).st_size - position)
    while end < position + n and pages[end // mmap.PAGESIZE]:
        end = (end // mmap.PAGESIZE + 1) * mmap.PAGESIZE
    return min(end, position + n) - position


@pytest.fixture
def cold_file(monkeypatch: pytest.MonkeyPatch) -> ColdFile:
    """Makes a file, just opened, of 300 KiB that are only on the disk."""

    def make(disk: RealDisk, path: Path) -> RealFile:
        with mmap.mmap(-1, 300 << 10) as whole_pages:
            whole_pages.write(bytes(range(256)) * 1200)
            try:
                written = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
            except OSError:
                pytest.skip("this file system writes through memory alone")
            assert os.write(written, whole_pages) == len(whole_pages)
            os.close(written)
        file = disk.open(str(path))
        # nothing comes along with the bytes that are read
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        assert not any(pages_in_memory(file.fileno()))
        return file

    monkeypatch.setattr(disk_module, "in_memory", by_mincore)
    return make


def test_what_is_said_to_be_in_memory_is(tmp_path: Path, cold_file: ColdFile) -> None:
    file = cold_file(RealDisk(), tmp_path / "file")
    scratch = memoryview(bytearray(300 << 10))
    for n in (300 << 10, 8 << 10):
        told = in_memory(file.fileno(), 0, n, scratch)
        assert sum(pages_in_memory(file.fileno())) * mmap.PAGESIZE >= told
    file.read(0, 300 << 10)
    for position, n in ((0, 300 << 10), (200 << 10, 100 << 10), (5, 299 << 10), (7, 100)):
        assert in_memory(file.fileno(), position, n, scratch) == n


def test_a_large_question_makes_the_kernel_fetch_nothing(
    tmp_path: Path, cold_file: ColdFile
) -> None:
    file = cold_file(RealDisk(), tmp_path / "file")
    scratch = memoryview(bytearray(300 << 10))
    assert in_memory(file.fileno(), 0, 300 << 10, scratch) == 0
    assert not any(pages_in_memory(file.fileno()))
    file.read(8192, 4096)
    assert in_memory(file.fileno(), 8192 + 100, 100 << 10, scratch) == 4096 - 100
    assert in_memory(file.fileno(), 8192 + 4096, 100 << 10, scratch) == 0


def test_a_question_that_cannot_be_asked_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        in_memory(-1, 0, 1 << 20, memoryview(b""))


async def test_what_is_on_the_disk_alone_is_loaded_first(
    tmp_path: Path, cold_file: ColdFile
) -> None:
    file = cold_file(RealDisk(), tmp_path / "file")
    await file.load(0, 300 << 10)
    assert file.cached(0, 300 << 10) == 300 << 10
    assert file.cached(256 << 10, 44 << 10) == 44 << 10
    assert file.cached(300 << 10, 10) == 10, "after its end there is nothing to wait for"


async def test_a_page_that_is_there_by_chance_does_not_count(
    tmp_path: Path, cold_file: ColdFile
) -> None:
    file = cold_file(RealDisk(), tmp_path / "file")
    assert len(file.read(0, 4096)) == 4096
    assert file.cached(0, 4096) == 4096
    assert file.cached(0, 200 << 10) == 0


async def test_a_hurried_read_does_not_wait_for_the_disk(
    tmp_path: Path, cold_file: ColdFile
) -> None:
    disk = RealDisk()
    file = cold_file(disk, tmp_path / "file")
    with pytest.raises(ColdRead) as cold, disk.not_waiting():
        file.read(10_000, 100_000)
    await cold.value.load()
    with disk.not_waiting():
        assert len(file.read(10_000, 100_000)) == 100_000
    other = cold_file(disk, tmp_path / "other")
    read: list[bytes] = []
    with disk.not_waiting():
        thread = threading.Thread(target=lambda: read.append(other.read(0, 3)))
        thread.start()
        thread.join()
    assert read == [b"\0\1\2"], "a worker thread may wait"
    again = cold_file(disk, tmp_path / "again")
    assert again.read(0, 3) == b"\0\1\2", "outside, everybody may"


async def test_a_whole_file_is_loaded_first_too(tmp_path: Path, cold_file: ColdFile) -> None:
    disk, path = RealDisk(), str(tmp_path / "file")
    cold_file(disk, tmp_path / "file")
    with pytest.raises(ColdRead) as cold, disk.not_waiting():
        disk.read_all(path)
    await cold.value.load()
    with disk.not_waiting():
        assert len(disk.read_all(path)) == 300 << 10
    (tmp_path / "empty").touch()
    with disk.not_waiting():
        assert disk.read_all(str(tmp_path / "empty")) == b""
    (tmp_path / "file").unlink()
    await cold.value.load()


def test_what_was_just_appended_is_not_asked_for(tmp_path: Path, cold_file: ColdFile) -> None:
    disk = RealDisk()
    file = cold_file(disk, tmp_path / "file")
    end = file.size
    file.append([b"x" * 1000])
    assert file.cached(end, 1000) == 1000
    assert file.cached(0, 100_000) == 0
    file.truncate(500)
    file.append([b"y" * 1000])
    assert file.cached(600, 900) == 900


async def test_a_file_that_is_closed_or_gone_is_not_loaded(
    tmp_path: Path, cold_file: ColdFile
) -> None:
    disk = RealDisk()
    file = cold_file(disk, tmp_path / "file")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.load, 0, 1000)
        await trio.testing.wait_all_tasks_blocked()
        file.close()
    with pytest.raises(OSError):
        os.fstat(file.fileno())
    await file.load(0, 1000)
