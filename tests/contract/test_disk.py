"""The code's assumptions about a disk, checked on files and on the simulated one."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
import trio

from highwater.world.api import Disk, Pace
from tests.contract.conftest import Env, in_world


def copies(disk: Disk, paths: tuple[str, ...], pace: Pace) -> Iterator[int]:
    """Work for `apart`: a step for each file.  It has to be a module's own function."""
    for path in paths:
        data = disk.read_all(path)
        pace(len(data))
        file = disk.open(path + ".copy", create=True)
        file.append([data])
        file.close()
        yield len(data)


@in_world
async def test_append_and_read(env: Env) -> None:
    path = f"{env.folder}/a"
    file = env.world.disk.open(path, create=True)
    file.append([b"one", bytearray(b"two"), memoryview(b"three")])
    assert file.size == 11
    assert file.read(0, 100) == b"onetwothree"
    assert file.read(3, 3) == b"two"
    assert file.read(11, 5) == b""
    assert (env.world.disk.size(path), env.world.disk.read_all(path)) == (11, b"onetwothree")
    file.close()
    again = env.world.disk.open(path)
    assert again.size == 11
    again.append([b"!"])
    assert again.read(10, 5) == b"e!"


@in_world
async def test_overwrite_and_truncate(env: Env) -> None:
    file = env.world.disk.open(f"{env.folder}/a", create=True)
    file.append([b"0123456789"])
    file.write_at(2, b"XY")
    assert file.read(0, 10) == b"01XY456789"
    assert file.size == 10
    file.truncate(4)
    assert (file.size, file.read(0, 10)) == (4, b"01XY")
    file.append([b"z"])
    assert file.read(0, 10) == b"01XYz"
    await file.flush()


@in_world
async def test_missing_files_and_folders(env: Env) -> None:
    disk, missing = env.world.disk, f"{env.folder}/missing"
    assert not disk.exists(missing)
    assert not disk.is_dir(missing)
    with pytest.raises(FileNotFoundError):
        disk.open(missing)
    with pytest.raises(FileNotFoundError):
        disk.open(f"{missing}/file", create=True)
    for operation in (disk.read_all, disk.remove, disk.list, disk.size, disk.remove_tree):
        with pytest.raises(FileNotFoundError):
            operation(missing)
    with pytest.raises(FileNotFoundError):
        disk.rename(missing, missing + "2")


@in_world
async def test_folders(env: Env) -> None:
    disk, root = env.world.disk, f"{env.folder}/logs"
    disk.make_dirs(f"{root}/t-0")
    disk.make_dirs(f"{root}/t-0")
    for name in ("b", "c", "a"):
        disk.open(f"{root}/t-0/{name}", create=True).close()
    assert disk.list(f"{root}/t-0") == ["a", "b", "c"]
    assert disk.is_dir(f"{root}/t-0")
    assert not disk.is_dir(f"{root}/t-0/a")
    disk.rename(f"{root}/t-0", f"{root}/t-0.x-delete")
    assert disk.list(root) == ["t-0.x-delete"]
    assert disk.list(f"{root}/t-0.x-delete") == ["a", "b", "c"]
    disk.remove(f"{root}/t-0.x-delete/a")
    assert not disk.exists(f"{root}/t-0.x-delete/a")
    disk.remove_tree(f"{root}/t-0.x-delete")
    assert disk.list(root) == []
    await disk.sync_dir(root)


@in_world
async def test_the_volume_has_a_size(env: Env) -> None:
    total, usable = env.world.disk.space(env.folder)
    assert total > 0
    assert 0 <= usable <= total
    with pytest.raises(FileNotFoundError):
        env.world.disk.space(f"{env.folder}/nowhere")


@in_world
async def test_rename_replaces(env: Env) -> None:
    disk = env.world.disk
    disk.replace(f"{env.folder}/a", b"A")
    disk.replace(f"{env.folder}/b", b"B")
    disk.rename(f"{env.folder}/a", f"{env.folder}/b")
    assert disk.read_all(f"{env.folder}/b") == b"A"
    assert not disk.exists(f"{env.folder}/a")


@in_world
async def test_replace_leaves_nothing_beside_it(env: Env) -> None:
    disk, path = env.world.disk, f"{env.folder}/checkpoint"
    disk.replace(path, b"first version")
    disk.replace(path, b"second")
    assert disk.read_all(path) == b"second"
    await disk.replace_durably(path, b"third")
    assert disk.read_all(path) == b"third"
    assert disk.list(env.folder) == ["checkpoint"]


@in_world
async def test_an_open_file_outlives_its_name(env: Env) -> None:
    disk = env.world.disk
    file = disk.open(f"{env.folder}/a", create=True)
    file.append([b"data"])
    disk.rename(f"{env.folder}/a", f"{env.folder}/a.deleted")
    assert file.read(0, 4) == b"data"
    disk.remove(f"{env.folder}/a.deleted")
    assert file.read(0, 4) == b"data"


@in_world
async def test_a_closed_file_refuses(env: Env) -> None:
    file = env.world.disk.open(f"{env.folder}/a", create=True)
    file.close()
    file.close()
    with pytest.raises((OSError, ValueError)):
        file.append([b"x"])


@in_world
async def test_locks_exclude_another_process(env: Env) -> None:
    path = f"{env.folder}/.lock"
    held = env.world.disk.lock(path)
    with pytest.raises(BlockingIOError):
        env.other_world.disk.lock(path)
    held.release()
    env.other_world.disk.lock(path).release()


@in_world
async def test_work_is_run_and_its_errors_arrive(env: Env) -> None:
    assert await env.world.disk.run(lambda: 6 * 7) == 42

    def fails() -> None:
        raise OSError(errno.EIO, "no")

    with pytest.raises(OSError):
        await env.world.disk.run(fails)


@pytest.mark.parametrize("small", [False, True])
@in_world
async def test_work_apart_goes_step_by_step(env: Env, small: bool) -> None:
    disk = env.world.disk
    paths = tuple(f"{env.folder}/{name}" for name in "abc")
    for n, path in enumerate(paths[:2]):
        disk.open(path, create=True).append([b"x" * (n + 1)])
    async with disk.apart(copies, paths, bytes_per_second=1e9, small=small) as steps:
        assert await steps.next() == 1
        assert not disk.exists(f"{paths[1]}.copy"), "it waits to be asked"
        assert await steps.next() == 2
        assert disk.read_all(f"{paths[1]}.copy") == b"xx"
        with pytest.raises(FileNotFoundError):
            await steps.next()
        assert await steps.next() is None


@in_world
async def test_work_apart_takes_its_time(env: Env) -> None:
    path = f"{env.folder}/a"
    env.world.disk.open(path, create=True).append([b"x" * 100])
    started = trio.current_time()
    async with env.world.disk.apart(copies, (path,), bytes_per_second=200, small=True) as steps:
        assert await steps.next() == 100
    assert trio.current_time() - started >= 0.49


@in_world
async def test_reserved_room_does_not_show(env: Env) -> None:
    disk = env.world.disk
    file = disk.open(f"{env.folder}/a", create=True)
    file.reserve(1 << 20)
    assert (file.size, disk.size(f"{env.folder}/a")) == (0, 0)
    file.append([b"hello"])
    assert (file.size, disk.read_all(f"{env.folder}/a")) == (5, b"hello")
    file.release()
    file.append([b"!"])
    file.close()
    assert disk.read_all(f"{env.folder}/a") == b"hello!"
