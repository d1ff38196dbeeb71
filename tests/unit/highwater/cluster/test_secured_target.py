"""Files of --target-config: what the proxies cannot do is said in one line, before the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from highwater.child_processes import StartError
from highwater.cli.chaos import chaos
from highwater.cluster.secured_target import network_of

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
