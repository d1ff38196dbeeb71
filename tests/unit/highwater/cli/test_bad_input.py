"""A command's answer to bad input: one line that names the thing and the remedy."""

from __future__ import annotations

import importlib.util
import json
import os
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from highwater.base import install_hint
from highwater.child_processes import Pid
from highwater.cli import trace as trace_command
from highwater.cli.main import cli
from highwater.cli.up import check_properties


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with files of many kinds, and no cluster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Path("file").write_text("text")
    Path("folder").mkdir()
    Path("unknown.yaml").write_text("- name: kill\n  target: broker-1\n  bogus: 1\n")
    Path("binary.yaml").write_bytes(b"\xff\xfe\x00")
    Path("broken.yaml").write_text("name: [\n")
    Path("empty.properties").write_text("")


def called(words: str) -> Result:
    return CliRunner().invoke(cli, words.split(), prog_name="highwater")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("up --port 0", "0 is not in the range 1<=x<=65535"),
        ("up --port 65534", "--port 65534: 3 brokers need one of 65533 or less"),
        ("up --dir file/x", "is no folder: name another one"),
        ("status --json nowhere/x.json", "for nowhere/x.json: make it first"),
        ("status --json folder", "File 'folder' is a directory"),
        ("chaos --out file/x", "is no folder: name another one"),
        ("chaos --json nowhere/x.json", "for nowhere/x.json: make it first"),
        ("chaos --rate 0", "0.0 is not in the range 1<=x<=100000"),
        ("chaos --faults unknown.yaml", "unknown field 'bogus'; there are after, api,"),
        ("chaos --faults binary.yaml", "binary.yaml is not JSON or YAML in UTF-8"),
        ("verify folder --json nowhere/x.json", "for nowhere/x.json: make it first"),
        ("report folder --out nowhere/x.html", "for nowhere/x.html: make it first"),
        ("sim --log nowhere/x", "for nowhere/x: make it first"),
        ("sim --coverage nowhere/x", "for nowhere/x: make it first"),
        ("sim --seconds 0", "0.0 is not in the range 0.1<=x<=86400"),
        ("sim --jobs -1", "-1 is not in the range x>=0"),
        ("bench produce --dir file/x", "is no folder: name another one"),
        ("bench produce --json nowhere/x", "for nowhere/x: make it first"),
        ("trace --seconds -1", "-1.0 is not in the range x>=0"),
        ("trace --api Produuce", "--api: no API 'Produuce'; did you mean Produce?"),
        ("trace --api kcat", "Produce, Fetch and JoinGroup are some"),
        ("fault mend all", "mend is of the whole cluster: leave out what follows it"),
        ("fault list --api Fetch", "list is of the whole cluster: leave out what follows it"),
        ("fault wait healthy --one-way", "wait takes no --one-way"),
        ("fault wait healthy --within -1", "-1.0 is not in the range x>=0"),
        ("doctor broken.yaml", "broken.yaml: while parsing a flow node expected"),
        ("doctor empty.properties", "empty.properties holds no setting: write some, as acks=all"),
    ],
)
def test_one_line_names_the_thing_and_the_remedy(words: str, said: str) -> None:
    result = called(words)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (2, 3)
    *usage, line = result.stderr.strip().splitlines()
    assert said in line
    assert line.startswith("highwater: ")
    assert all(above.startswith(("Usage: ", "Try 'highwater ")) or not above for above in usage)


@pytest.mark.parametrize("command", ["demo", "chaos"])
def test_spark_that_is_not_there_is_told_before_the_run(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyspark" else found(name)
    )
    words = [command, "--engine", "spark", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 3
    assert done.stderr.startswith("highwater: PySpark is not installed: ")
    assert not (tmp_path / "run").exists()


def test_a_hint_names_the_place_that_it_was_installed_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Installed:
        def __init__(self, noted: str | None) -> None:
            self.noted = noted

        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return self.noted

    for noted, path in (
        ('{"url": "file:///home/ada/high%20water", "dir_info": {}}', "/home/ada/high water"),
        ('{"url": "https://example.org/it.whl"}', "path/to/highwater"),
        (None, "path/to/highwater"),
    ):
        found = Installed(noted)
        monkeypatch.setattr(metadata, "distribution", lambda _, found=found: found)
        assert install_hint.install_hint("spark") == f"pip install '{path}[spark]'"


def test_a_cluster_of_apache_kafka_has_no_traces(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rather than that no cluster runs, and the trace of another one."""
    own = Pid.of(os.getpid())
    supervisor = {"pid": own.pid, "started": own.started}
    state = {"ready": True, "supervisor": supervisor, "program": "apache:4.2.0"}
    (tmp_path / "state.json").write_text(json.dumps(state | {"control": "http://127.0.0.1:9"}))
    monkeypatch.setattr(trace_command, "default_folder", lambda: tmp_path)
    done = called("trace")
    assert done.exit_code == 1
    assert f"the cluster in {tmp_path} is apache:4.2.0, which has no traces" in done.stderr


def test_a_match_that_is_no_path_is_told_as_it_would_be_right() -> None:
    done = called("chaos --app true --input a --output b --match order_id")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == (
        "highwater: --match, --input, --output: topics.a.id: 'order_id' is no path:"
        " write '$.order_id'"
    )


def test_brokers_that_could_not_ask_each_other_are_not_started() -> None:
    authorizer = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"
    done = called(f"up --set {authorizer} --set super.users=User:alice")
    assert done.exit_code == 1
    assert done.stderr.startswith("highwater: with an authorizer the brokers need a right")
    assert "add User:ANONYMOUS" in done.stderr


def test_writes_that_cannot_succeed_are_told_at_the_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for least, told in (("3", "no write with acks=all will succeed"), ("2", "")):
        check_properties(2, "plaintext", {"min.insync.replicas": least})
        assert told in capsys.readouterr().err
        assert bool(told) == (least == "3")


def test_the_doctor_gives_no_all_clear_for_what_it_did_not_read() -> None:
    Path("client.py").write_text('conf = {"acks": 1}\nproducer = KafkaProducer(**conf)\n')
    Path("few.properties").write_text("client.id=ada\n")
    for words, code, told in (
        ("doctor client.py", 2, "client.py: no setting of a Kafka client was recognised"),
        ("doctor --set colour=red", 2, "--set: no setting of a Kafka client was recognised"),
        ("doctor nowhere.properties", 3, "nowhere.properties cannot be read"),
        ("doctor folder", 3, "folder cannot be read"),
        ("doctor few.properties", 0, ""),
    ):
        done = called(words)
        assert done.exit_code == code, (words, done.output)
        assert told in done.stderr
        assert ("nothing was found" in done.stdout) == (code == 0)
