"""What a broker takes from KAFKA_OPTS and zookeeper.* to reach ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater.kafka.config.checks import ConfigError
from highwater.kafka.config.sources import load
from highwater.kafka.security.jaas import DIGEST, PLAIN
from highwater.kafka.security.zookeeper_login import kafkas_access, link_to_zookeeper
from highwater.world.real.disk import RealDisk
from highwater.world.zookeeper_link import Access, ZooKeeperLink

JAAS = f'Client {{ {DIGEST} required username="kafka" password="hunter2"; }};'
OPTION = "-Djava.security.auth.login.config"


def link(options: str = "", properties: str = "") -> ZooKeeperLink:
    text = f"zookeeper.connect=localhost:2181\nbroker.id=1\n{properties}"
    config = load([("server.properties", text)], {}, ()).config
    return link_to_zookeeper(config, {"KAFKA_OPTS": options}, RealDisk())


@pytest.fixture
def jaas(tmp_path: Path) -> Path:
    file = tmp_path / "the brokers.jaas"
    file.write_text(JAAS)
    return file


def test_the_user_is_that_of_the_jaas_file(jaas: Path) -> None:
    found = link(f'-Xmx1g "{OPTION}={jaas}" -Da=b', "zookeeper.set.acl=true")
    assert (found.user, found.password, found.access) == ("kafka", "hunter2", kafkas_access)
    assert "hunter2" not in repr(found)
    for off in ("-Dzookeeper.sasl.client=false", "-Dzookeeper.sasl.clientconfig=Other"):
        assert link(f'"{OPTION}={jaas}" {off}') == ZooKeeperLink()
    assert link() == ZooKeeperLink()


@pytest.mark.parametrize(
    ("path", "access"),
    [
        ("/brokers/ids/1", Access.SHOWN),
        ("/config/topics/a", Access.SHOWN),
        ("/config/users/alice", Access.OWN),
        ("/config/brokers", Access.OWN),
        ("/delegation_token/tokens/a", Access.OWN),
        ("/consumers", Access.OPEN),
    ],
)
def test_who_may_use_a_znode(path: str, access: Access) -> None:
    assert kafkas_access(path) is access


@pytest.mark.parametrize(
    ("text", "options", "properties", "words"),
    [
        ("hunter2", "{option}={file}", "", "not a JAAS file; write NAME"),
        (JAAS.replace(DIGEST, PLAIN), "{option}={file}", "", "users log in by digest here; use"),
        (JAAS.replace("hunter2", ""), "{option}={file}", "", 'give username="…" and password'),
        ("", "{option}=/none", "", "/none: No such file or directory; name a file that can"),
        ("", "'{option}={file}", "", "KAFKA_OPTS: no closing quotation; check its quotes"),
        ("", "", "zookeeper.set.acl=true", "zookeeper.set.acl=true: nobody would own the znodes"),
        (
            "hunter2",
            "",
            "zookeeper.ssl.client.enable=true\nzookeeper.ssl.truststore.location={file}",
            "zookeeper.ssl.truststore.location={file}: neither PEM nor PKCS12",
        ),
        (
            "",
            "",
            "zookeeper.clientCnxnSocket=a.B",
            "zookeeper.clientCnxnSocket=a.B: a Java class, which cannot be loaded; use org.apache",
        ),
        (
            "",
            "",
            "zookeeper.ssl.protocol=SSLv3",
            "'SSLv3' is not a value of it; use TLSv1.2 or TLSv1.3",
        ),
    ],
)
def test_a_mistake_is_one_line_without_a_secret(
    tmp_path: Path, text: str, options: str, properties: str, words: str
) -> None:
    file = tmp_path / "jaas"
    file.write_text(text)
    given = {"option": OPTION, "file": file}
    with pytest.raises(ConfigError) as caught:
        link(options.format(**given), properties.format(**given))
    (line,) = caught.value.lines
    assert words.format(**given) in line
    assert "hunter2" not in line
