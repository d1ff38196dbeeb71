"""The output of the clients' own test runners is read correctly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from highwater.cluster.processes.programs import ApacheKafka
from tests.suites.__main__ import on_apache, page
from tests.suites.c_suites import broker_tests, from_summary
from tests.suites.java_steps_of_4 import steps
from tests.suites.result import FAILED, PASSED, SKIPPED, NoResults, Result, from_go, from_junit
from tests.suites.suites import SUITES


def go(action: str, test: str = "", **more: object) -> str:
    return json.dumps(
        {"Action": action, "Package": "p", **({"Test": test} if test else {}), **more}
    )


def test_go_counts_tests_and_not_their_parts() -> None:
    lines = [
        go("run", "TestA"), go("pass", "TestA/part", Elapsed=1), go("pass", "TestA", Elapsed=2.5),
        go("output", "TestB/part", Output="what went wrong\n"), go("fail", "TestB/part"),
        go("fail", "TestB"), go("skip", "TestC"), go("fail"),
    ]  # fmt: skip
    found = from_go(lines)
    assert [(r.test, r.outcome) for r in found] == [
        ("TestA", PASSED),
        ("TestB", FAILED),
        ("TestC", SKIPPED),
    ]
    assert found[0].seconds == 2.5
    assert found[1].said == "what went wrong\n"


def test_a_go_test_that_never_ended_has_failed() -> None:
    (found,) = from_go([go("output", "TestA", Output="panic: time out\n"), go("fail")])
    assert (found.test, found.outcome) == ("TestA", FAILED)


def test_a_go_run_without_tests_is_no_success() -> None:
    with pytest.raises(NoResults, match="does not compile"):
        from_go(["p.go:1: does not compile", go("fail")])


def test_junit(tmp_path: Path) -> None:
    file = tmp_path / "r.xml"
    file.write_text(
        '<testsuites><testsuite><testcase classname="a.B" name="one" time="1.5"/>'
        '<testcase classname="a.B" name="two"><failure>no</failure></testcase>'
        '<testcase classname="a.B" name="three"><error message="setup"/></testcase>'
        '<testcase classname="a.B" name="four"><skipped/></testcase></testsuite></testsuites>'
    )
    found = [(r.test, r.outcome, r.said) for r in from_junit(file)]
    assert found == [
        ("B::one", PASSED, ""),
        ("B::two", FAILED, "no"),
        ("B::three", FAILED, "setup"),
        ("B::four", SKIPPED, ""),
    ]
    file.write_text("<testsuites/>")
    with pytest.raises(NoResults):
        from_junit(file)


def test_the_failed_parts_of_a_go_test_are_told_and_not_the_end_of_the_others() -> None:
    lines = [
        go("output", "TestA/bad", Output="why\n"), go("fail", "TestA/bad"),
        *(go("output", "TestA/good", Output=f"line {n}\n") for n in range(40)),
        go("pass", "TestA/good"), go("fail", "TestA"),
    ]  # fmt: skip
    (found,) = from_go(lines)
    assert found.said == "why\n"


def test_librdkafkas_table_names_the_tests_that_need_a_broker() -> None:
    table = """
    _TEST(0001_multiobj, 0),
    _TEST(0004_conf, TEST_F_LOCAL),
    _TEST(0011_produce_batch,
          0,
          /* Produces a lot of messages */
          _THRES(.ucpu = 40.0, .scpu = 8.0)),
    _TEST(0045_subscribe_update_topic_remove,
          0,
          TEST_BRKVER(0, 9, 0, 0),
          .scenario = "noautocreate"),
    _TEST(0103_transactions, 0, .scenario = "default,ak23"),

    /* Manual tests */
    _TEST(8000_idle, TEST_F_MANUAL),

    {NULL}};
"""
    assert [(test.name, test.scenario) for test in broker_tests(table)] == [
        ("0001_multiobj", "default"),
        ("0011_produce_batch", "default"),
        ("0045_subscribe_update_topic_remove", "noautocreate"),
        ("0103_transactions", "default"),
    ]


def test_librdkafkas_summary() -> None:
    lines = [
        "|\x1b[32m <MAIN>          |     PASSED |   0.1s \x1b[0m|",
        "|\x1b[32m 0001_multiobj   |     PASSED |   2.5s \x1b[0m|",
        "|\x1b[31m 0002_unkpart    |     FAILED |   1.0s \x1b[0m| it broke",
        "|\x1b[36m 0003_ssl        |    SKIPPED |   0.0s \x1b[0m| no TLS",
    ]
    found = from_summary(lines, {"0001_multiobj", "0002_unkpart", "0003_ssl", "0005_order"})
    assert {r.test: r.outcome for r in found} == {
        "0001_multiobj": PASSED, "0002_unkpart": FAILED, "0003_ssl": SKIPPED, "0005_order": FAILED,
    }  # fmt: skip
    assert found[0].seconds == 2.5
    assert found[1].said.startswith("it broke")


def test_the_page_keeps_the_rows_of_suites_that_were_not_run() -> None:
    first = page({"sarama": [Result("a", PASSED, 60)], "aiokafka": [Result("b", FAILED, 1)]}, "")
    second = page({"franz-go": [Result("c", FAILED, 1)]}, first)
    assert [line.split("]")[0] for line in second.splitlines() if line.startswith("| [")] == [
        "| [franz-go", "| [sarama", "| [aiokafka",
    ]  # fmt: skip
    assert "- aiokafka: `b`" in second
    assert "- franz-go: `c`" in second
    third = page({"aiokafka": [Result("b", PASSED, 1)]}, second)
    assert "- aiokafka" not in third


def test_what_ran_on_apache_kafka_42_is_in_a_table_of_its_own() -> None:
    first = page({"sarama": [Result("a", PASSED, 60), Result("b", PASSED, 60)]}, "")
    assert "Beside" not in first
    ran = {"sarama": [Result("a", PASSED, 1), Result("b", FAILED, 1)]}
    second = page(ran, first, "apache:4.2.0")
    assert "| sarama | 2, 0 | 1, 1 |" in second
    assert "- sarama" not in second
    third = page({"sarama": [Result("a", FAILED, 1)]}, second)
    assert "| sarama | 0, 1 | 1, 1 |" in third
    assert page(ran, first, "apache") == first


def test_apache_kafka_42_gets_its_own_authorizer_and_keeps_its_features(tmp_path: Path) -> None:
    kraft = ApacheKafka(tmp_path, version="4.2.0", kraft=True)
    (suite,) = (suite for suite in SUITES if suite.name == "kafka-go")
    properties = on_apache(suite, kraft).properties
    assert properties["authorizer.class.name"].endswith(".StandardAuthorizer")
    assert "inter.broker.protocol.version" not in properties


def test_the_steps_of_the_tools_have_names_of_their_own() -> None:
    names = [step.name for step in steps()]
    assert len(set(names)) == len(names)
