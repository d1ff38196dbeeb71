"""The code's assumptions about a network, checked on sockets and on the simulated one."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable

import pytest
import trio

from highwater.world.api import Buffer, Connection, Listener
from tests.contract.conftest import Env, in_world


async def _pair(env: Env) -> tuple[Connection, Connection, Listener]:
    listener = await env.world.network.listen(env.host, 0)
    near = await env.world.network.connect(env.host, listener.address[1])
    return near, await listener.accept(), listener


async def _send(connection: Connection, data: bytes) -> None:
    view = memoryview(data)
    while view:
        n = connection.send([view])
        if n is None:
            await connection.wait_writable()
        else:
            view = view[n:]


async def _receive(connection: Connection, n: int) -> bytes:
    buffer, have = bytearray(n), 0
    while have < n:
        got = connection.recv_into(memoryview(buffer)[have:])
        if got is None:
            await connection.wait_readable()
        elif got == 0:
            break
        else:
            have += got
    return bytes(buffer[:have])


@in_world
async def test_bytes_arrive_in_order_both_ways(env: Env) -> None:
    near, far, _ = await _pair(env)
    data = bytes(range(256)) * 2000
    for source, sink in ((near, far), (far, near)):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send, source, data)
            assert await _receive(sink, len(data)) == data


@in_world
async def test_nothing_to_read_would_block(env: Env) -> None:
    near, far, _ = await _pair(env)
    assert near.recv_into(memoryview(bytearray(10))) is None
    assert far.peer == near.local
    assert near.peer == far.local


@in_world
async def test_several_views_are_sent_in_order(env: Env) -> None:
    near, far, _ = await _pair(env)
    views: list[Buffer] = [b"one", bytearray(b"two"), memoryview(b"three")]
    whole = b"onetwothree"
    n = near.send(views)
    assert n is not None
    await _send(near, whole[n:])
    assert await _receive(far, len(whole)) == whole


@pytest.mark.parametrize("then", ["more bytes", "the end", "nothing"])
@in_world
async def test_what_waits_for_more_arrives_in_any_case(env: Env, then: str) -> None:
    near, far, _ = await _pair(env)
    assert near.send([b"begun, "], more=True) == 7
    if then == "more bytes":
        assert near.send([b"ended"]) == 5
    elif then == "the end":
        near.close()
    with trio.fail_after(5):
        expected = b"begun, ended" if then == "more bytes" else b"begun, "
        assert await _receive(far, len(expected)) == expected


@in_world
async def test_the_end_is_seen_after_the_data(env: Env) -> None:
    near, far, _ = await _pair(env)
    await _send(near, b"last words")
    near.close()
    near.close()
    assert await _receive(far, 100) == b"last words"


@in_world
async def test_a_sender_waits_for_a_slow_reader(env: Env) -> None:
    near, far, _ = await _pair(env)
    sent = 0
    while sent < 64_000_000:
        n = near.send([bytes(100_000)])
        if n is None:
            break
        sent += n
    else:
        raise AssertionError("the sender was never told to wait")
    with trio.move_on_after(0.2) as scope:
        await near.wait_writable()
    if not scope.cancelled_caught:
        assert near.send([b"x"]) is not None  # the kernel took more of it meanwhile
        sent += 1
    assert set(await _receive(far, sent)) <= {0, ord("x")}
    with trio.fail_after(10):
        await near.wait_writable()
    assert near.send([b"more"])


@in_world
async def test_sending_to_a_closed_peer_fails(env: Env) -> None:
    near, far, _ = await _pair(env)
    far.close()

    async def send_until_it_fails() -> None:
        while True:
            await _send(near, b"x" * 1000)
            await trio.sleep(0.01)

    with trio.fail_after(10), pytest.raises((BrokenPipeError, ConnectionResetError)):
        await send_until_it_fails()


@in_world
async def test_closing_with_unread_data_resets(env: Env) -> None:
    near, far, _ = await _pair(env)
    await _send(near, b"never read")
    await far.wait_readable()
    far.close()
    with pytest.raises(ConnectionResetError):
        await _receive(near, 1)


@in_world
async def test_closing_wakes_whoever_waits(env: Env) -> None:
    near, _far, listener = await _pair(env)
    woken: list[str] = []

    async def wait(name: str, what: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(trio.ClosedResourceError):
            await what()
        woken.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "connection", near.wait_readable)
        nursery.start_soon(wait, "listener", listener.accept)
        await trio.sleep(0.05)
        near.close()
        listener.close()
    assert sorted(woken) == ["connection", "listener"]
    with pytest.raises(trio.ClosedResourceError):
        await near.wait_readable()
    with pytest.raises(OSError):
        near.send([b"x"])
    with pytest.raises(OSError):
        near.recv_into(memoryview(bytearray(1)))


@in_world
async def test_a_port_in_use_is_an_error(env: Env) -> None:
    listener = await env.world.network.listen(env.host, 0)
    with pytest.raises(OSError) as raised:
        await env.other_world.network.listen(env.host, listener.address[1])
    assert raised.value.errno == errno.EADDRINUSE
    listener.close()
    again = await env.other_world.network.listen(env.host, listener.address[1])
    assert again.address[1] == listener.address[1]


@in_world
async def test_nobody_listens(env: Env) -> None:
    listener = await env.world.network.listen(env.host, 0)
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        await env.world.network.connect(env.host, listener.address[1])


@in_world
async def test_a_connection_waits_in_the_backlog(env: Env) -> None:
    listener = await env.world.network.listen(env.host, 0)
    near = await env.world.network.connect(env.host, listener.address[1])
    await _send(near, b"early")
    assert await _receive(await listener.accept(), 5) == b"early"


@in_world
async def test_a_file_is_sent_from_its_position(env: Env) -> None:
    near, far, _ = await _pair(env)
    file = env.world.disk.open(f"{env.folder}/segment", create=True)
    file.append([b"0123456789"])
    position = 3
    while position < 9:
        n = near.send_file(file, position, 9 - position)
        assert n
        position += n
    assert await _receive(far, 6) == b"345678"
    file.truncate(2)
    assert near.send_file(file, 5, 4) == 0
