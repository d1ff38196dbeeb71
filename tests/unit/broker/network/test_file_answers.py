"""Answers that are parts of files, from a disk that may be slow."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
import trio

from highwater.broker.context import Context
from highwater.broker.request.response import FileSlice, Response
from highwater.world.api import File
from highwater.world.real.disk import RealDisk, RealFile

from .conftest import Net, entry, serving


async def test_file_slices_between_buffers(network: Net, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(bytes(range(256)) * 8192)
    file = RealDisk().open(str(tmp_path / "log"))

    def fetch(ctx: Context, body: memoryview) -> Response:
        first, nothing, second = (
            FileSlice(file, 256, 1_000_000),
            FileSlice(file, 0, 0),
            FileSlice(file, 3, 2),
        )
        return Response(parts=[b"head", first, b"", b"mid", nothing, second, b"tail"])

    async with serving(network, entry(fetch)) as s:
        client = await s.connect()
        content = (tmp_path / "log").read_bytes()
        expected = b"head" + content[256:1_000_256] + b"mid" + content[3:5] + b"tail"
        for _ in range(3):
            assert await client.call(b"") == expected


class ColdFile:
    """A file whose bytes come into memory when the test says so, and stay for one sending."""

    def __init__(self, file: RealFile) -> None:
        self.path, self.size = file.path, file.size
        self.fileno = file.fileno
        self.loaded: list[tuple[int, int]] = []
        self.disk_answers = trio.Event()

    def cached(self, position: int, n: int) -> int:
        return 0

    async def load(self, position: int, n: int) -> None:
        await self.disk_answers.wait()
        self.loaded.append((position, n))


async def test_whoever_reads_from_a_slow_disk_holds_up_nobody(network: Net, tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    (tmp_path / "log").write_bytes(content)
    file = ColdFile(RealDisk().open(str(tmp_path / "log")))

    def handle(ctx: Context, body: memoryview) -> Response:
        if bytes(body) != b"cold":
            return Response(parts=[b"warm"])
        piece = FileSlice(cast(File, file), 5, 2_400_000)
        return Response(parts=[b"head", piece, b"tail"])

    async with serving(network, entry(handle), num_network_threads=1, num_io_threads=1) as s:
        slow, leaving, quick = await s.connect(), await s.connect(), await s.connect()
        await slow.send(b"cold")
        await slow.send(b"cold")
        await leaving.send(b"cold")
        for _ in range(20):
            assert await quick.call(b"") == b"warm"
        await leaving.stream.aclose()
        assert await quick.call(b"") == b"warm"
        assert not file.loaded
        file.disk_answers.set()
        for _ in range(2):
            assert (await slow.receive())[1] == b"head" + content[5:2_400_005] + b"tail"
    mib = 1 << 20
    whole = [(5, mib), (5 + mib, mib), (5 + 2 * mib, 2_400_000 - 2 * mib)]
    assert sorted(file.loaded)[-1] == whole[-1]
    assert [span for span in file.loaded if span in whole[1:]] == whole[1:] * 2


async def test_a_segment_that_became_shorter_closes_the_connection(
    network: Net, tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(b"x" * 10)
    file = RealDisk().open(str(tmp_path / "log"))
    handle = lambda ctx, body: Response(parts=[FileSlice(file, 4, 10)])  # noqa: E731
    async with serving(network, entry(handle)) as s:
        client = await s.connect()
        await client.send(b"")
        with pytest.raises(EOFError):
            await client.receive()
