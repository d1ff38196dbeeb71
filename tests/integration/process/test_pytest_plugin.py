"""The fixtures on a real cluster, in pytest runs of their own, as a user's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
pytest_plugins = "pytester"
PAGE = Path(__file__).parents[3] / "docs" / "pytest.md"
Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """A pytest run that takes every warning for an error, on these files."""

    def run(*arguments: str, within_s: float = 280, **files: str) -> pytest.RunResult:
        pytester.makeini("[pytest]\n")  # or the project's own would be found above this folder
        pytester.makepyfile(**files)
        strict = ("--strict-markers", "-W", "error", "-p", "no:cacheprovider", "-p", "no:trio")
        return pytester.runpytest_subprocess(*strict, *arguments, timeout=within_s)

    return run


def page() -> str:
    """The tests of docs/pytest.md; test_installed runs them from the package."""
    blocks = re.findall(r"^```python test\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert len(blocks) == 13
    return "\n\n".join(blocks)


def test_groups_of_the_page_with_the_consumer_protocol(run: Run) -> None:
    """Those tests of the page that have a group."""
    chosen = ("-k", "first_group or rebalance or exactly_once or between_output")
    outcome = run("--kafka-group-protocol", "consumer", *chosen, test_page=page())
    outcome.assert_outcomes(passed=4, deselected=8)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.rare  # two minutes each: `scripts/long page-on-apache`
@pytest.mark.parametrize(
    "runtime",
    [
        pytest.param("apache", marks=pytest.mark.apache),
        pytest.param("compose", marks=pytest.mark.compose),
    ],
)
def test_the_page_elsewhere(run: Run, runtime: str) -> None:
    plain = ("-k", "not alice") if runtime == "compose" else ()
    outcome = run("--kafka-runtime", runtime, *plain, within_s=880, test_page=page())
    outcome.assert_outcomes(passed=12 - len(plain) // 2, deselected=len(plain) // 2)


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.apache
def test_a_release_by_its_version(run: Run) -> None:
    test = """
def test_it(kafka, topic, chaos):
    letters = topic()
    with chaos.kill(kafka.leader(letters)):
        kafka.wait.leader_changed(letters)
    assert kafka.runtime == "apache:4.2.0"
    assert "zookeeper" not in kafka.status()["members"]
"""
    run("--kafka-runtime", "apache:4.2.0", test_release=test).assert_outcomes(passed=1)


@pytest.mark.compose
def test_a_part_of_the_page_in_containers(run: Run) -> None:
    chosen = ("-k", "cut_from_zookeeper or min_isr")
    outcome = run("--kafka-runtime", "compose", *chosen, test_page=page())
    outcome.assert_outcomes(passed=2, deselected=10)


USE = r"""
import contextlib
import json
import re
import subprocess
import sys
import time

import pytest
from confluent_kafka.admin import AdminClient
from highwater.pytest_plugin import FixtureError, NotInTime

KEPT = {}


def topics(kafka):
    return set(AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=30).topics)


def test_a_topic_is_the_tests_own(kafka, topic):
    orders = topic("orders", partitions=3, config={"retention.ms": 60000})
    other = topic("orders")
    assert orders != other and orders.partitions == 3 and orders.startswith("orders")
    assert {orders, other} <= topics(kafka)
    assert len(kafka.replicas(orders, 2)) == 3
    with pytest.raises(FixtureError, match="has no partition 3; it has 3"):
        kafka.leader(orders, 3)
    KEPT.update(bootstrap=kafka.bootstrap, topics={orders, other}, folder=kafka.folder)


def test_a_topic_is_gone_after_its_test_and_the_cluster_is_the_same(kafka):
    assert kafka.bootstrap == KEPT["bootstrap"]
    assert not KEPT["topics"] & topics(kafka)


@pytest.mark.kafka(brokers=1, config={"num.partitions": 7})
def test_other_settings_are_another_cluster(kafka, topic):
    assert kafka.brokers == [1]
    assert kafka.folder != KEPT["folder"]
    assert "num.partitions=7" in (kafka.folder / "broker-1" / "server.properties").read_text()
    assert kafka.replicas(topic()) == [1]


def test_a_group_is_gone_after_its_test(kafka, topic, group):
    from confluent_kafka import Consumer

    app = group("app")
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": app}
    member = Consumer({**settings, "session.timeout.ms": 3000})
    member.subscribe([topic()])
    member.poll(0.1)
    assert kafka.wait.group_stable(app, members=1) >= 0
    assert (kafka.group(app)["members"], kafka.lag(app)) == (1, 0)
    member.close()
    KEPT["group"] = app


def test_the_group_is_gone(kafka):
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    groups = admin.list_consumer_groups(request_timeout=30).result().valid
    assert KEPT["group"] not in {group.group_id for group in groups}


def test_a_fault_ends_with_its_block(kafka, topic, chaos):
    def state(number):
        return kafka.status()["members"][f"broker-{number}"]["state"]

    orders = topic()
    leader = kafka.leader(orders)
    with chaos.kill(leader) as fault:
        assert (state(leader), fault.target) == ("down", f"broker-{leader}")
        kafka.wait.leader_changed(orders)
        kafka.wait.leader_changed(orders, since=fault)
    assert state(leader) == "up"
    chaos.pause(f"follower of {orders}-0")
    KEPT["state"] = state
    with chaos.stop("any broker"):
        pass


def test_a_fault_ends_with_its_test(kafka):
    assert {m["state"] for m in kafka.status()["members"].values()} == {"up"}


def test_links_and_messages(kafka, topic, chaos):
    orders = topic()
    leader = kafka.leader(orders)
    follower = next(n for n in kafka.brokers if n != leader)
    with chaos.cut(follower, leader):
        assert kafka.status()["cuts"]
    with chaos.hold("Fetch", "request", source=follower, to=leader) as held:
        pass
    assert held.effect
    with chaos.latency(follower, leader, latency_ms=50, jitter_ms=20) as slow:
        pass
    assert slow.effect.startswith("delayed ")
    with chaos.bandwidth(follower, leader, kib_per_s=1000):
        pass
    assert chaos.reset_peer(leader).effect.startswith("reset ")
    with chaos.isolate(follower):
        kafka.wait.isr_is(2, orders)
    kafka.wait.isr_full(orders, 0)
    with pytest.raises(FixtureError, match="DescribeAcls|traffic|no effect"):
        with chaos.drop("DeleteAcls", source="clients", to=leader):
            pass


def test_leaders_and_controllers(kafka, topic, chaos):
    orders = topic()
    leader = kafka.leader(orders)
    chaos.swap_leader(orders)
    assert kafka.leader(orders) != leader
    with pytest.raises(FixtureError, match=f"the first replica of {orders}-0, leads already"):
        chaos.preferred_election(orders)
    moved = chaos.move_controller()  # the same broker may be elected again
    assert f"broker-{kafka.controller} is the controller, epoch" in moved.effect
    chaos.expire_session(kafka.brokers[0])
    chaos.restart(kafka.brokers[1])
    kafka.wait.healthy()


def test_what_cannot_be_is_said_at_once(kafka, topic, chaos):
    with pytest.raises(FixtureError, match="no member 'broker-7'|broker-7"):
        chaos.kill(7)
    with pytest.raises(FixtureError, match="zookeper"):
        chaos.cut(1, "zookeper")
    with chaos.kill(2), pytest.raises(FixtureError, match="broker-2 does not run"):
        chaos.kill(2)
    with pytest.raises(FixtureError, match="no such topic|no topic 'orders'"):
        kafka.leader("orders")
    orders = topic()
    with chaos.stop(f"follower of {orders}-0"):
        kafka.wait.isr_is(2, orders)
        with pytest.raises(NotInTime) as late:
            kafka.wait.isr_full(orders, within_s=0.1)
    told = str(late.value)
    assert f"isr of {orders} is full" in told
    assert "down" in told and "leader" in told


def test_a_partition_without_its_leader_is_not_hidden_by_the_others(kafka, topic, chaos, history):
    orders = topic(partitions=3)

    def until(holds):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(FixtureError):  # nothing was acknowledged, yet
                if holds():
                    return
        pytest.fail(str(history.unavailable(orders)))

    with history.producing(orders, rate=100):
        until(lambda: all(history.unavailable(orders, n).acknowledged for n in range(3)))
        with chaos.cut("clients", kafka.leader(orders, 1)):
            until(lambda: history.unavailable(orders, 1).longest_s > 3)
            others = [history.unavailable(orders, n).longest_s for n in (0, 2)]
    worst = history.unavailable(orders)
    assert worst.partition == 1 and worst.longest_s > 3 > max(others)
    with pytest.raises(FixtureError, match="nothing was sent to .*-7 in this history"):
        history.unavailable(orders, 7)


def test_each_wait_says_no(kafka, topic, group, chaos):
    from confluent_kafka import Producer

    orders, app = topic("orders"), group("app")
    soon = {"within_s": 0.1}
    with pytest.raises(FixtureError, match="since when"):
        kafka.wait.leader_changed(orders)
    writer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": group("id")})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(orders, "open")
    writer.flush(30)
    with chaos.pause(f"follower of {orders}-0") as fault:
        for told, wait in {
            f"leader of {orders}-0 changed since {fault.id}": lambda: kafka.wait.leader_changed(
                orders, **soon
            ),
            f"isr of {orders}-0 is 1": lambda: kafka.wait.isr_is(1, orders, **soon),
            f"group {app} is stable": lambda: kafka.wait.group_stable(app, members=1, **soon),
            f"{app} is Dead with 0|not answer": lambda: kafka.wait.lag_below(app, 1, **soon),
            "is Ongoing|does not answer": lambda: kafka.wait.no_open_transaction(**soon),
            r"broker-\d is paused": lambda: kafka.wait.healthy(**soon),
        }.items():
            try:
                wait()
            except NotInTime as late:
                assert re.search(told, str(late)), (told, str(late))
            else:
                pytest.fail(f"it holds: {told}")
    writer.abort_transaction(30)
    kafka.wait.no_open_transaction()


def test_what_a_history_cannot_show_is_refused(kafka, topic, history, chaos):
    from confluent_kafka import Producer

    quiet, orders = topic("quiet"), topic("orders")
    with pytest.raises(FixtureError, match=f"nothing was acknowledged on {quiet}"):
        history.unavailable(quiet)
    with pytest.raises(FixtureError, match=f"nothing was acknowledged on {quiet}: a check proves"):
        history.check(quiet)
    with pytest.raises(FixtureError, match="no client 'sarama'\nthere are"):
        history.producing(quiet, client="sarama")
    with pytest.raises(FixtureError, match="acks 1: .* with the client confluent-kafka"):
        history.producing(quiet, client="kafka-python", acks=1)
    with pytest.raises(FixtureError, match="leder of"):
        chaos.kill(f"leder of {orders}-0")
    assert not hasattr(chaos, "burst") and not hasattr(chaos, "lose_unreplicated")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for n in range(3):
        producer.produce(orders, f"order-{n}")
    producer.flush(30)
    values = ["order-0", "order-2", "order-1"]
    assert history.check(orders, acknowledged=values, processed=values).acknowledged == 3
    with pytest.raises(AssertionError, match=r"\(order-1\) was processed .* after .*\(order-2\)"):
        history.check(orders, acknowledged=values, processed=values, exactly_once=True)


def test_the_applications_own_records_are_judged(kafka, topic, history):
    from confluent_kafka import Producer

    orders = topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for n in range(50):
        producer.produce(orders, f"mine {n}", key=f"k{n % 3}")
    producer.flush(30)
    with history.producing(orders, rate=200), history.consuming(orders, client="highwater"):
        kafka.wait.isr_full(orders)
    checked = history.check(orders, acknowledged=[f"mine {n}" for n in range(50)])
    assert checked.acknowledged >= 50 and checked.checks > 8
    with pytest.raises(AssertionError, match="was acknowledged to the application"):
        history.check(orders, acknowledged=["never sent"])
    with pytest.raises(AssertionError, match="the application did not process record"):
        history.check(orders, acknowledged=["mine 0"], processed=["mine 1"])
"""


def test_the_fixtures(run: Run, pytester: pytest.Pytester) -> None:
    told = run(test_use=USE)
    told.assert_outcomes(passed=14)
    folders = list(pytester.path.glob("**/agent.log"))
    assert not folders, "the folder of a cluster without a failure stays"


WRONG = """
import pytest
from confluent_kafka import Consumer, Producer


def test_it_commits_before_it_processes(kafka, topic, group, history):
    orders, app = topic("orders"), group("app")
    processed = []
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": app}
    settings |= {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    with history.producing(orders, rate=200):
        for enough in 3, 10:
            consumer = Consumer(settings)
            consumer.subscribe([orders])
            for _ in range(600):
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    consumer.commit(message, asynchronous=False)
                    if len(processed) == enough:
                        break  # it dies between the commit and the work
                    processed.append(message.value())
            consumer.close()
    history.check(orders, processed=processed)


def an_app(kafka, topic, group, history, processed):
    # with a producer and a group of its own; it commits all that it reads
    orders, acknowledged = topic("orders"), []

    def delivered(error, message):
        if error is None:
            acknowledged.append(message.value())

    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for n in range(10):
        producer.produce(orders, f"order-{n}", on_delivery=delivered)
    producer.flush(30)
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": group("app")}
    settings |= {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.subscribe([orders])
    read = []
    for _ in range(600):
        message = consumer.poll(0.1)
        read += [] if message is None or message.error() else [message.value()]
        if len(read) == 10:
            break
    consumer.commit(asynchronous=False)
    consumer.close()
    numbers = [f"order-{n}" for n in processed]
    history.check(orders, acknowledged=acknowledged, processed=numbers, exactly_once=True)


def test_its_app_leaves_a_value_out(kafka, topic, group, history):
    an_app(kafka, topic, group, history, [0, 1, 2, 3, 4, 6, 7, 8, 9])


def test_its_app_processes_a_value_twice(kafka, topic, group, history, chaos):
    with chaos.kill("any broker"):
        pass
    an_app(kafka, topic, group, history, [0, 1, 2, 3, 4, 5, 6, 4, 7, 8, 9])


def test_it_writes_with_acks_1(kafka, topic, chaos, history):
    orders = topic("orders", config={"min.insync.replicas": 1})
    leader = kafka.leader(orders)
    followers = [n for n in kafka.isr(orders) if n != leader]
    acknowledged = []

    def delivered(error, message):
        if error is None:
            acknowledged.append(message.value())

    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": 1})
    cuts = [chaos.cut(n, leader) for n in followers]
    for n in range(10):
        producer.produce(orders, f"order {n}", on_delivery=delivered)
    producer.flush(10)
    with chaos.kill(leader):
        kafka.wait.leader_changed(orders)
        try:
            assert len(acknowledged) == 10
            history.check(orders, acknowledged=acknowledged)
        finally:  # not before: what a cut held up goes on when it is healed, and nothing is lost
            for cut in cuts:
                cut.end()  # or the broker could not come back


def test_of_another_cause(kafka, topic, chaos, history):
    orders = topic("orders")
    with history.producing(orders, rate=100), chaos.pause(kafka.leader(orders)):
        assert False, "the test's own"


@pytest.mark.kafka(brokers=1, config={"num.partitons": 7})
def test_a_misspelled_property(kafka): ...


@pytest.fixture
def broken(kafka):
    raise RuntimeError("a fixture of the user's")


def test_a_fixture_of_the_users_fails(broken): ...
"""


def test_a_failure_tells_why_on_one_screen(run: Run, pytester: pytest.Pytester) -> None:
    told = run("--tb=short", "--kafka-seed", "7", test_wrong=WRONG)
    told.assert_outcomes(failed=5, errors=2)
    text = told.stdout.str()
    reports = re.split(r"^_{3,} (?:ERROR at setup of )?(\w+) _{3,}$", text, flags=re.M)
    by_name = dict(zip(reports[1::2], reports[2::2], strict=True))
    commits = by_name["test_it_commits_before_it_processes"]
    assert re.search(r"the application did not process record 3 of orders-t\d+-0, which", commits)
    assert re.search(
        r"group app-g\d+ has committed orders-t\d+-0 up to offset \d+, past this record", commits
    )
    missed = by_name["test_its_app_leaves_a_value_out"]
    assert re.search(
        r"the application did not process record 5 of orders-t\d+-0 \(order-5\), which was", missed
    )
    assert re.search(r"group app-g\d+ has committed orders-t\d+-0 up to offset 10, past", missed)
    twice = by_name["test_its_app_processes_a_value_twice"]
    assert re.search(r"record 4 of orders-t\d+-0 \(order-4\) was processed twice by", twice)
    assert "as number 5 and as number 8 of 11, with order-5 and order-6 in between" in twice
    assert re.search(r"in this test: [\d:.]+ kill broker-\d: ended by SIGKILL", twice)
    assert "led orders" not in twice, "a leader's death repeats nothing"
    acks = by_name["test_it_writes_with_acks_1"]
    assert "to the application and is not in the topic (10 of 10 acknowledged records)" in acks
    assert re.search(
        r"broker-\d died while it led orders-t\d+-0\. What a producer with acks=1", acks
    )
    assert re.search(r"^  [\d:.]+ kill broker-\d", acks, re.M)
    other = by_name["test_of_another_cause"]
    assert re.search(r"history of orders-t\d+: no anomaly, \d+ records acknowledged", other)
    assert re.search(r"^  [\d:.]+ pause broker-\d", other, re.M)
    assert "num.partitions" in by_name.pop("test_a_misspelled_property")
    for report in by_name.values():
        assert len(report.splitlines()) < 45, report
        (folder,) = set(re.findall(r"the cluster's folder is kept: (\S+)", report))
        assert (Path(folder) / "broker-1" / "output.log").is_file()
        assert "--kafka-seed 7" in report


def test_xdist_gives_each_worker_a_cluster(run: Run, pytester: pytest.Pytester) -> None:
    told = run(
        "-n",
        "2",
        "--kafka-brokers",
        "1",
        "--kafka-keep",
        test_each="""
        import pytest

        @pytest.mark.parametrize("n", range(4))
        def test_it(kafka, topic, chaos, n):
            orders = topic()
            assert kafka.brokers == [1]
            with chaos.kill(1): ...
            kafka.wait.healthy()
        """,
    )
    told.assert_outcomes(passed=4)


def test_a_cluster_that_cannot_start_is_told_once_in_a_line(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    monkeypatch.setenv("PATH", "/nonexistent")
    java = "--kafka-zookeeper=java"
    told = run(java, test_two="def test_one(kafka): ...\n\n\ndef test_two(kafka): ...")
    told.assert_outcomes(errors=2)
    told.stdout.fnmatch_lines(["*the cluster could not be started: *ava*"])
    text = told.stdout.str()
    assert "Traceback" not in text
    assert "During handling" not in text
    assert len(re.findall(r"^the cluster could not be started: ", text, re.M)) == 2, text
