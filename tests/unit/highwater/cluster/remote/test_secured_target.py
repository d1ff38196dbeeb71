"""Files of --target-config: what the proxies cannot do is said in one line, before the run."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from click.testing import CliRunner

from highwater.child_processes import StartError
from highwater.cli.chaos import chaos
from highwater.cluster.remote.secured_target import network_of, ways_in
from highwater.kafka.wire.header import request_header
from highwater.world.real.network import RealNetwork

_APIVERSIONS = 18
JAAS = (
    "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="a" password="b";'
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("security.protocol=TLS", "security.protocol=TLS; use PLAINTEXT, SSL"),
        ("security.protocol=SASL_SSL", "cannot log in by sasl.mechanism=GSSAPI; use PLAIN"),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER",
            "cannot log in by sasl.mechanism=OAUTHBEARER; use PLAIN",
        ),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN", "sasl.jaas.config"),
        ("security.protocol=SSL\nssl.truststore.location=/nowhere.pem", "/nowhere.pem"),
        ("=5", "names no property"),
    ],
)
def test_what_the_proxies_cannot_do_is_one_line(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(StartError) as error:
        network_of(file)
    assert told in str(error.value)
    assert str(error.value).startswith(f"{file}: ")
    assert "\n" not in str(error.value)


def test_a_login_is_read_as_kafkas_tools_read_it(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{JAAS}\n")
    assert network_of(file)


def test_a_config_is_for_a_cluster_at_an_address(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=PLAINTEXT")
    done = CliRunner().invoke(chaos, [f"--target-config={file}"])
    assert done.exit_code == 2
    assert "--target-config is for --target HOST:PORT" in done.output


class Lagging:
    """A network whose brokers do not come to their handshakes."""

    def __init__(self) -> None:
        self.begun, self.given_up = trio.Event(), trio.Event()

    async def connect(self, host: str, port: int) -> Any:
        self.begun.set()
        try:
            await trio.sleep_forever()
        finally:
            self.given_up.set()


def _request(size: int = 0) -> bytes:
    body = request_header(_APIVERSIONS, 0, 7, "some") + bytes(size)
    return len(body).to_bytes(4, "big") + body


async def test_nobody_is_connected_who_has_gone_meanwhile() -> None:
    """Clients give up and come again sooner than a lagging broker shakes hands: else each of their
    attempts goes on for as long as the last one may take, and the broker never gets out of it."""
    network = Lagging()
    async with ways_in({1: ("127.0.0.1", 1)}, cast("Any", network)) as ways:
        client = await trio.open_tcp_stream(*ways[1])
        await client.send_all(_request())
        with trio.fail_after(2):
            await network.begun.wait()
            await client.aclose()
            await network.given_up.wait()


async def test_what_came_before_the_broker_was_reached_is_passed_on() -> None:
    class Late(RealNetwork):
        async def connect(self, host: str, port: int) -> Any:
            await trio.sleep(0.05)
            return await super().connect(host, port)

    got, whole = bytearray(), trio.Event()
    asked = _request(100_000) + _request()

    async def broker(stream: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            while data := await stream.receive_some():
                got.extend(data)
                if len(got) >= len(asked):
                    whole.set()

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, broker, [listener])
        address = "127.0.0.1", listener.socket.getsockname()[1]
        async with ways_in({1: address}, Late()) as ways:
            client = await trio.open_tcp_stream(*ways[1])
            await client.send_all(asked)
            with trio.fail_after(3):
                await whole.wait()
        nursery.cancel_scope.cancel()
    assert bytes(got) == asked
