"""Brokers that log in to ZooKeeper: whose the znodes are, what others may do, and over TLS."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

from highwater.cluster.processes.programs import ApacheKafka, Highwater
from tests.authority import PASSWORD, Authority
from tests.integration.oracle.rig import APACHE, program
from tests.integration.robustness.rig import (
    BrokerProcess,
    JavasZooKeeper,
    assert_one_line,
    fresh_port,
    leader_of,
)
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
USER, SECRET = "kafka", 'se;cr"et'
ALL, READ = 31, 1


class LoginZooKeeper(JavasZooKeeper):
    """It takes logins by digest, and TLS at `secure_port`."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.authority, self.secure_port = authority, fresh_port()
        super().__init__(folder)

    def prepared(self) -> list[str]:
        command = super().prepared()
        jaas = self.folder / "server.jaas"
        jaas.write_text(
            "Server {\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n"
            f'    user_{USER}="{quoted(SECRET)}";\n}};\n'
        )
        with (self.folder / "zoo.cfg").open("a") as file:
            key = self.authority.pem(self.authority.issue("localhost"), "zookeeper")
            file.write(
                f"secureClientPort={self.secure_port}\n"
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
                f"ssl.keyStore.location={key}\nssl.keyStore.type=PEM\n"
                f"ssl.trustStore.location={self.authority.trust}\nssl.trustStore.type=PEM\n"
                "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
            )
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        path = command.index("-cp")  # TLS needs Netty, which PySpark has
        command[path + 1] = f"{Path(spec.origin).parent}/jars/*"
        command.insert(1, told_of(jaas))
        return command


def quoted(password: str) -> str:
    return password.replace('"', '\\"')


def root_of(connect: str) -> str:
    return "/" + connect.partition("/")[2]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def zookeeper(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[LoginZooKeeper]:
    made = LoginZooKeeper(tmp_path_factory.mktemp("zookeeper"), authority)
    yield made
    made.end()


@dataclass(frozen=True, slots=True)
class LoggedIn(Highwater):
    """As a start script of Apache Kafka has it, whose KAFKA_OPTS name a JAAS file."""

    jaas: Path | None = None

    def environment(self) -> dict[str, str]:
        options = f"-Xmx1g {told_of(self.jaas)}"
        return {**Highwater.environment(self), "KAFKA_OPTS": options}


def told_of(jaas: Path | None) -> str:
    return f"-Djava.security.auth.login.config={jaas}"


def jaas_file(folder: Path, password: str = SECRET) -> Path:
    file = folder / "client.jaas"
    file.write_text(
        "// of all brokers\nClient {\n"
        "  org.apache.zookeeper.server.auth.DigestLoginModule required\n"
        f'  username="{USER}" password="{quoted(password)}"; /* not "here" */\n}};\n'
    )
    return file


Make = Callable[..., BrokerProcess]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Make]:
    """Brokers, made of zookeeper.connect, their password at ZooKeeper, and properties."""
    made: list[BrokerProcess] = []

    def make(connect: str, password: str | None = SECRET, **properties: str) -> BrokerProcess:
        number = len(made) + 1
        one = BrokerProcess(tmp_path / f"{number}", connect, number, **properties)
        if password is not None:
            one.program = LoggedIn(jaas=jaas_file(one.folder, password))
        made.append(one)
        return one

    yield make
    for one in made:
        one.end()


@pytest.fixture
def anybody(zookeeper: LoginZooKeeper) -> Iterator[KazooClient]:
    yield from client(zookeeper)


@pytest.fixture
def owner(zookeeper: LoginZooKeeper) -> Iterator[KazooClient]:
    login = {"mechanism": "DIGEST-MD5", "username": USER, "password": SECRET}
    yield from client(zookeeper, sasl_options=login)


def client(zookeeper: LoginZooKeeper, **options: object) -> Iterator[KazooClient]:
    made = KazooClient(f"127.0.0.1:{zookeeper.port}", **options)
    made.start(60)
    yield made
    made.stop()
    made.close()


Rights = set[tuple[str, str, int]]
"""Scheme, user, permissions."""


def rights(zk: KazooClient, root: str, path: str = "") -> dict[str, Rights]:
    """Of a znode and all below it, by path; without those that this client may not read."""
    try:
        found = {path: {(a.id.scheme, a.id.id, a.perms) for a in zk.get_acls(root + path)[0]}}
        names = zk.get_children(root + path)
    except NoAuthError:
        return {}
    for name in names:
        found |= rights(zk, root, f"{path}/{name}")
    return found


def leads(broker: BrokerProcess, number: int) -> Callable[[], bool]:
    return lambda: leader_of(broker.address, "orders", create=True) == number


def test_znodes_belong_to_the_brokers_user(
    zookeeper: LoginZooKeeper, owner: KazooClient, anybody: KazooClient, broker: Make
) -> None:
    connect = zookeeper.fresh_path()
    root = root_of(connect)
    one = broker(connect, zookeeper_set_acl="true").serving()
    eventually(leads(one, 1), "orders has a leader")
    seen = rights(owner, root)
    own, shown = ("sasl", USER, ALL), ("world", "anyone", READ)
    for path in ("/brokers/ids/1", "/controller", "/brokers/topics/orders/partitions/0/state"):
        assert seen[path] == {own, shown}
    assert seen["/config/users"] == seen["/config/brokers"] == {own}
    assert seen["/consumers"] == {("world", "anyone", ALL)}
    with pytest.raises(NoAuthError):
        anybody.set(f"{root}/brokers/topics/orders", b"{}")
    with pytest.raises(NoAuthError):
        anybody.get(f"{root}/config/users")
    assert SECRET not in one.output


@pytest.mark.slow
def test_apache_kafka_gives_the_same_rights_and_shares_them(
    zookeeper: LoginZooKeeper, owner: KazooClient, broker: Make
) -> None:
    ours, theirs = zookeeper.fresh_path(), zookeeper.fresh_path()
    one = broker(ours, zookeeper_set_acl="true").serving()
    two = broker(theirs, zookeeper_set_acl="true")
    kafka = program(APACHE)
    assert isinstance(kafka, ApacheKafka)
    two.program = replace(kafka, jvm=(*kafka.jvm, told_of(jaas_file(two.folder))))
    two.program.prepare(two.folder, 1, "test")
    two.serving()
    eventually(leads(one, 1), "orders has a leader")
    eventually(leads(two, 2), "orders has a leader")
    mine, kafkas = rights(owner, root_of(ours)), rights(owner, root_of(theirs))
    both = mine.keys() & kafkas.keys()
    assert {"/config/users", "/brokers/topics/orders/partitions/0/state"} <= both
    assert {path: mine[path] for path in both} == {path: kafkas[path] for path in both}
    # our broker takes over from Apache's, whose znodes are the same user's
    three = broker(theirs, zookeeper_set_acl="true").serving()
    two.end()
    eventually(lambda: controller(owner, root_of(theirs)) == 3, "our broker is the controller")
    eventually(lambda: leader_of(three.address, "later", create=True) == 3, "it makes a topic")


def controller(zk: KazooClient, root: str) -> int:
    try:
        return int(json.loads(zk.get(f"{root}/controller")[0])["brokerid"])
    except NoNodeError:
        return -1


def test_a_wrong_password_stops_the_start(zookeeper: LoginZooKeeper, broker: Make) -> None:
    connect = zookeeper.fresh_path()
    one = broker(connect, password="mistaken").start()
    assert_one_line(one, 1, "refuses the login of 'kafka'", "JAAS file")
    assert "mistaken" not in one.output


def test_one_who_does_not_log_in_may_not_join(zookeeper: LoginZooKeeper, broker: Make) -> None:
    connect = zookeeper.fresh_path()
    broker(connect, zookeeper_set_acl="true").serving()
    assert_one_line(broker(connect, password=None).start(), 1, "does not let", "log in to it as")
    stranger = broker(connect, password=None, zookeeper_set_acl="true").start()
    assert_one_line(stranger, 2, "zookeeper.set.acl=true", "does not log in", "KAFKA_OPTS=-Djava")


def test_brokers_reach_zookeeper_over_tls(
    zookeeper: LoginZooKeeper, authority: Authority, anybody: KazooClient, broker: Make
) -> None:
    """A certificate is a user, too; a session goes on when ZooKeeper comes back."""
    root = root_of(zookeeper.fresh_path())
    key = authority.pkcs12(authority.issue("localhost", common_name="broker"), "to-zookeeper.p12")
    names = {
        "zookeeper_clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper_ssl_client_enable": "true",
        "zookeeper_ssl_enabled_protocols": "TLSv1.2,TLSv1.3",
        "zookeeper_ssl_keystore_location": str(key),
        "zookeeper_ssl_keystore_password": PASSWORD,
        "zookeeper_ssl_truststore_location": str(authority.trust),
        "zookeeper_set_acl": "true",
    }
    connect = f"localhost:{zookeeper.secure_port}{root}"
    one = broker(connect, password=None, **names).serving()
    eventually(leads(one, 1), "orders has a leader")
    (mine,) = rights(anybody, root)["/brokers/topics/orders"] - {("world", "anyone", READ)}
    assert mine[0] == "x509"
    assert mine[1].startswith("CN=broker,")
    zookeeper.end()
    zookeeper.start()
    eventually(lambda: leader_of(one.address, "later", create=True) == 1, "it makes a topic again")


@pytest.mark.parametrize(
    ("versions", "why"),
    [
        ("TLSv1.3", "the peer's certificate is not accepted: unable to get local issuer"),
        ("TLSv1.2", "takes no version of TLS that is enabled here"),
    ],
)
def test_no_tls_with_zookeeper_is_one_line(
    zookeeper: LoginZooKeeper, broker: Make, versions: str, why: str
) -> None:
    connect = f"localhost:{zookeeper.secure_port}{root_of(zookeeper.fresh_path())}"
    one = broker(
        connect,
        password=None,
        zookeeper_ssl_client_enable="true",
        zookeeper_ssl_enabled_protocols=versions,
        zookeeper_connection_timeout_ms="2000",
    ).start()
    assert_one_line(one, 1, "cannot be reached over TLS", why, "correct zookeeper.ssl.*")
    assert len(one.lines("no TLS with ZooKeeper")) == 1, one.output
