"""Listener properties: Kafka's rules, each with the message for its breach."""

from __future__ import annotations

from typing import Any

import pytest

from highwater.kafka.config import Config
from highwater.kafka.config.listeners import ListenerError, parse_listeners
from highwater.kafka.types import Endpoint

THREE: dict[str, Any] = {
    "listeners": "INTERNAL://:19092,EXTERNAL://0.0.0.0:9092,CONTROL://:9090",
    "advertised_listeners": "INTERNAL://b1:19092,EXTERNAL://localhost:29092,CONTROL://b1:9090",
    "listener_security_protocol_map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROL:PLAINTEXT",
    "inter_broker_listener_name": "INTERNAL",
    "control_plane_listener_name": "CONTROL",
}


def test_default_listener() -> None:
    parsed = parse_listeners(Config())
    assert parsed.bound == (Endpoint("PLAINTEXT", "PLAINTEXT", "", 9092),)
    assert parsed.advertised == parsed.bound
    assert parsed.inter_broker == "PLAINTEXT"
    assert parsed.control_plane is None
    assert parsed.controller_channel == "PLAINTEXT"
    assert parsed.control_plane_endpoint is None


def test_three_listeners() -> None:
    parsed = parse_listeners(Config(**THREE))
    assert parsed.inter_broker == "INTERNAL"
    assert parsed.controller_channel == "CONTROL"
    assert [e.listener for e in parsed.data_plane] == ["INTERNAL", "EXTERNAL"]
    assert parsed.control_plane_endpoint == Endpoint("CONTROL", "PLAINTEXT", "", 9090)
    assert parsed.advertised[1] == Endpoint("EXTERNAL", "PLAINTEXT", "localhost", 29092)


def test_names_are_upper_cased_and_ipv6_loses_its_brackets() -> None:
    parsed = parse_listeners(Config(listeners="plaintext://[::1]:9092"))
    assert parsed.bound == (Endpoint("PLAINTEXT", "PLAINTEXT", "::1", 9092),)


def test_registered_endpoints_fill_in_host_and_port() -> None:
    parsed = parse_listeners(Config(listeners="PLAINTEXT://:0"))
    registered = parsed.registered({"PLAINTEXT": ("0.0.0.0", 4711)}, "myhost")
    assert registered == (Endpoint("PLAINTEXT", "PLAINTEXT", "myhost", 4711),)


def test_ipv4_and_ipv6_may_share_name_and_port() -> None:
    both = "PLAINTEXT://127.0.0.1:9092,PLAINTEXT://[::1]:9092"
    assert len(parse_listeners(Config(listeners=both)).bound) == 2


def test_advertised_ports_may_be_equal() -> None:
    given = dict(THREE, advertised_listeners="INTERNAL://b1:9,EXTERNAL://b2:9,CONTROL://b3:9")
    assert len(parse_listeners(Config(**given)).advertised) == 3


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"listeners": "localhost:9092"}, "listeners=localhost:9092: 'localhost:9092' is not a"),
        ({"listeners": ""}, "listeners=: no listener is named"),
        ({"listeners": "PLAINTEXT://h:99999"}, "port 99999 is out of range"),
        ({"listeners": "NEW://h:1"}, "listener NEW has no security protocol; add NEW:PLAINTEXT"),
        (
            {"listeners": "PLAINTEXT://h:1,PLAINTEXT://i:2"},
            "listener name PLAINTEXT is used 2 times",
        ),
        (
            {
                "listeners": "PLAINTEXT://h:1,B://h:1",
                "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
            },
            "port 1 is used by PLAINTEXT and B",
        ),
        ({"listener_security_protocol_map": "A"}, "'A' has no colon"),
        ({"listener_security_protocol_map": "A:TLS"}, "'TLS' is not a security protocol"),
        (
            {"advertised_listeners": "PLAINTEXT://0.0.0.0:1"},
            "advertised.listeners=PLAINTEXT://0.0.0.0:1: 0.0.0.0 cannot be reached",
        ),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "0.0.0.0 cannot be reached by clients"),
        ({"advertised_listeners": "SASL_SSL://h:1"}, "SASL_SSL is not among listeners"),
        ({"inter_broker_listener_name": "NOPE"}, "listener NOPE has no security protocol"),
        ({"inter_broker_listener_name": "SSL"}, "no listener SSL is advertised"),
        ({"security_inter_broker_protocol": "SSL"}, "no listener SSL is advertised"),
        ({"control_plane_listener_name": "PLAINTEXT"}, "it is the inter-broker listener, too"),
        ({"control_plane_listener_name": "SSL"}, "no listener SSL is advertised"),
    ],
)
def test_complaints(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(ListenerError) as caught:
        parse_listeners(Config(**changes))
    assert line in str(caught.value)
    assert "; " in str(caught.value)


def test_advertised_must_be_bound() -> None:
    given = dict(THREE, listeners="INTERNAL://:19092,CONTROL://:9090")
    with pytest.raises(ListenerError, match="EXTERNAL is not among listeners"):
        parse_listeners(Config(**given))


def test_only_one_way_to_name_the_inter_broker_listener() -> None:
    given = {"security.inter.broker.protocol": "PLAINTEXT"}
    with pytest.raises(ListenerError, match="set only one of the two"):
        parse_listeners(Config(**THREE, originals=given))
