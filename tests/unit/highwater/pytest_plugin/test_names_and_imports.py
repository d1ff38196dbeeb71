"""The plugin in users' projects: the names that it takes, and its cost where no test needs it."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from highwater import pytest_plugin

pytest_plugins = "pytester"

OWN = """
    import pytest

    @pytest.fixture
    def kafka(): return "my kafka"

    @pytest.fixture
    def topic(kafka): return "my topic"

    @pytest.fixture
    def group(): return "my group"

    @pytest.fixture
    def chaos(): return "my chaos"

    @pytest.fixture
    def history(): return "my history"
"""
ALL = "kafka", "topic", "group", "chaos", "history"


def python(program: str) -> str:
    """The output of a fresh interpreter that runs the program."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported_by(modules: str) -> set[str]:
    """The modules that these import, apart from pytest's."""
    program = f"import sys, pytest; before = set(sys.modules); import {modules}; "
    found: list[str] = ast.literal_eval(
        python(program + "print(sorted(set(sys.modules) - before))")
    )
    return set(found)


@pytest.mark.thorough
def test_a_run_without_our_fixtures_pays_for_no_import() -> None:
    choices = "highwater.pytest_plugin.choices"  # constants alone
    assert imported_by("highwater.pytest_plugin") == {
        "highwater", "highwater.pytest_plugin", choices,
    }  # fmt: skip


@pytest.mark.thorough
def test_a_users_process_imports_pytest_and_the_standard_library_alone() -> None:
    found = imported_by("highwater.pytest_plugin.one_test, highwater.pytest_plugin.names")
    assert "http.client" in found
    assert {name.partition(".")[0] for name in found} - sys.stdlib_module_names == {"highwater"}
    rooms = {".".join(name.split(".")[:2]) for name in found if name.startswith("highwater.")}
    assert rooms == {"highwater.agent", "highwater.cluster", "highwater.pytest_plugin"}


@pytest.mark.thorough
def test_public_types_are_where_they_are_said_to_be() -> None:
    program = (
        "import highwater.pytest_plugin as p; print([getattr(p, n).__name__ for n in p.__all__])"
    )
    names: list[str] = ast.literal_eval(python(program))
    assert {"Chaos", "Groups", "History", "Kafka", "Topics"} <= set(names)


def test_our_fixtures_request_no_name_that_users_define() -> None:
    functions = [getattr(pytest_plugin, name) for name in ("_highwater", *ALL)]
    requested = {name for function in functions for name in inspect.signature(function).parameters}
    assert requested == {"_highwater", "request", "tmp_path_factory"}


@pytest.mark.thorough
def test_a_conftests_own_fixtures_are_taken(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(OWN)
    pytester.makepyfile(
        f"""
        def test_mine({", ".join(ALL)}):
            assert [{", ".join(ALL)}] == ["my " + n for n in {ALL}]
        """
    )
    told = pytester.runpytest_subprocess("--strict-markers", "-W", "error", "-p", "no:trio")
    told.assert_outcomes(passed=1)


def test_a_prefix_on_the_command_line_renames_the_marker(pytester: pytest.Pytester) -> None:
    told = pytester.runpytest_inprocess("--markers", "--highwater-prefix", "hw_").stdout.str()
    assert "@pytest.mark.hw_kafka(" in told
    assert "@pytest.mark.kafka(" not in told


def test_a_prefix_in_the_configuration_renames_the_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nhighwater_prefix = hw_\n")
    told = pytester.runpytest_inprocess("--fixtures").stdout.str()
    ours = [line.split(" ")[0] for line in told.splitlines() if "highwater/pytest_plugin" in line]
    assert sorted(ours) == sorted(f"hw_{name}" for name in ALL)


def test_a_prefix_that_begins_no_name_is_refused(pytester: pytest.Pytester) -> None:
    told = pytester.runpytest_inprocess("--highwater-prefix", "h-")
    told.stderr.fnmatch_lines("*highwater_prefix is 'h-': names begin so, as with hw_")


def test_a_property_without_a_value_is_refused(pytester: pytest.Pytester) -> None:
    told = pytester.runpytest_inprocess("--kafka-config", "num.partitions")
    told.stderr.fnmatch_lines("*'num.partitions' is not NAME=VALUE, as num.partitions=4")


TYPES = Path(__file__).parents[4] / ".mypy_cache/users"
WRONG = {
    "brokrs=1": "no setting 'brokrs'; there are brokers, config, profile, *",
    "1": "it takes names, as brokers=3, and not 1 alone",
    "brokers='three'": "brokers='three' is of the wrong type",
    "brokers=0": "brokers=0: there may be 1 to 9",
    "profile='fast'": "no profile 'fast'; there are test, kafka",
    "security='tls'": "no security 'tls'; there are plaintext, ssl, sasl_plaintext, sasl_ssl",
    "runtime='kraft'": "no runtime 'kraft'; there are process, compose, apache, apache:VERSION",
    "runtime='apache:4'": "no runtime 'apache:4'; there are process, compose, apache, *",
}


def test_a_marker_that_makes_no_sense_fails_its_test_at_once(pytester: pytest.Pytester) -> None:
    tests = (
        f"@pytest.mark.kafka({marker})\ndef test_{number}(kafka): ...\n"
        for number, marker in enumerate(WRONG)
    )
    pytester.makepyfile("import pytest\n" + "\n".join(tests))
    told = pytester.runpytest_inprocess("--strict-markers", "-p", "no:trio")
    told.assert_outcomes(errors=len(WRONG))
    told.stdout.fnmatch_lines([f"*@pytest.mark.kafka: {said}" for said in WRONG.values()])


USERS_TEST = """
import pytest

from highwater.pytest_plugin import Chaos, Groups, History, Kafka, NotInTime, Topics


@pytest.mark.kafka(brokers=3, config={"min.insync.replicas": 2})
def test_leader_loss(
    kafka: Kafka, topic: Topics, group: Groups, chaos: Chaos, history: History
) -> None:
    orders = topic("orders", partitions=3, config={"retention.ms": 1000})
    assert orders.partitions == 3
    app: str = group("app")
    with history.producing(orders, rate=500), history.consuming(orders):
        with chaos.kill(kafka.leader(orders, 0)) as fault:
            waited: float = kafka.wait.leader_changed(orders, 0, since=fault, within_s=5)
            assert fault.effect and waited < 5
        with pytest.raises(NotInTime):
            kafka.wait.lag_below(app, 1)
    assert history.check(orders).acknowledged > 0
    assert history.unavailable(orders).longest_s < 2
"""


@pytest.mark.thorough
def test_types_are_public(tmp_path: Path) -> None:
    """`mypy --strict` on a user's file; a copy with a mistake shows that it looks at our types."""
    (tmp_path / "test_users.py").write_text(USERS_TEST)
    (tmp_path / "test_wrong.py").write_text(USERS_TEST.replace("rate=500", "rate='fast'"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", TYPES, "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1, done.stdout
    assert errors[0].startswith("test_wrong.py:")
    assert '"rate" to "producing" of "History" has incompatible type' in errors[0]
