"""The pool never hands out a buffer that is still in use."""

from __future__ import annotations

from highwater.base.buffers import BufferPool


def test_a_buffer_nobody_looks_into_comes_again() -> None:
    pool = BufferPool()
    buffer = pool.take(100_000)
    first = id(buffer)
    del buffer
    assert id(pool.take(70_000)) == first


def test_a_view_keeps_its_buffer() -> None:
    pool = BufferPool()
    view = memoryview(pool.take(100_000))[5:10]
    view[:] = b"mine!"
    other = memoryview(pool.take(100_000))
    other[:] = bytes(len(other))
    assert bytes(view) == b"mine!"


def test_no_more_than_keep_stay() -> None:
    pool = BufferPool(keep=2)
    views = [memoryview(pool.take(65_536)) for _ in range(5)]
    for number, view in enumerate(views):
        view[:1] = bytes([number])
    assert [view[0] for view in views] == [0, 1, 2, 3, 4]
    kept = {id(views[3].obj), id(views[4].obj), id(views[2].obj)}
    del view, views
    assert len({id(pool.take(65_536)), id(pool.take(65_536))} & kept) <= 2


def test_a_larger_one_is_not_kept() -> None:
    pool = BufferPool(largest=65_536)
    assert len(pool.take(65_537)) == 65_537
    assert not pool._kept
