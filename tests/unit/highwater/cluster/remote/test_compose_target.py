"""Where a broker in a container is reached from, by what the engine tells of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from highwater.child_processes import StartError
from highwater.cluster.remote.compose_target import LOCAL, container_of, find, place_of


def told(number: int, **published: str) -> dict[str, Any]:
    """The output of `docker inspect` for kafka-1, kafka-2, ..."""
    ports: dict[str, Any] = {"9092/tcp": None, "9093/tcp": None, "9999/udp": None}
    ports |= {
        f"{inside[1:]}/tcp": [{"HostIp": "127.0.0.1", "HostPort": outside}]
        for inside, outside in published.items()
    }
    return {
        "Id": f"{number}" * 64,
        "Name": f"/shop-kafka-{number}-1",
        "Config": {
            "Hostname": f"{number}" * 12,
            "ExposedPorts": {"9092/tcp": {}},
            "Labels": {"com.docker.compose.service": f"kafka-{number}"},
        },
        "NetworkSettings": {
            "Ports": ports,
            "Networks": {
                "shop_default": {
                    "IPAddress": f"172.20.0.{number}",
                    "Aliases": [f"kafka-{number}", "localhost"],
                }
            },
        },
    }


ONE, TWO = (container_of(told(n, _9092=f"1909{n}"), LOCAL) for n in (1, 2))
INSIDE = container_of(told(3), LOCAL)


def test_a_container_is_known_by_its_ports_addresses_and_names() -> None:
    assert (ONE.id, ONE.service) == ("1" * 12, "kafka-1")
    assert ONE.published == {19091: 9092}
    assert ONE.names == {"kafka-1", "shop-kafka-1-1", "1" * 12}
    assert list(ONE.ways_in()) == [
        ("127.0.0.1", 19091),
        ("172.20.0.1", 9092),
        ("172.20.0.1", 9093),
    ]


@pytest.mark.parametrize(
    ("advertised", "reached"),
    [
        (("localhost", 19092), (("127.0.0.1", 19092), TWO)),
        (("host.docker.internal", 19091), (("127.0.0.1", 19091), ONE)),
        (("kafka-3", 9092), (("172.20.0.3", 9092), INSIDE)),
        (("172.20.0.2", 9093), (("172.20.0.2", 9093), TWO)),
        (("localhost", 9092), None),
        (("kafka-9", 9092), None),
    ],
)
def test_an_advertised_address_leads_to_a_container_or_to_none(
    advertised: tuple[str, int], reached: object
) -> None:
    assert place_of(advertised, [ONE, TWO, INSIDE], LOCAL) == reached


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="there is no such file"):
        find(str(tmp_path / "compose.yaml"))
