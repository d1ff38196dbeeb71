"""The verdict on a user's application: each demand of docs/app.md by topics that break it, read by
the run's own reader from a stand-in for librdkafka's consumer."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from confluent_kafka import KafkaError, KafkaException
from rich.console import Console

from highwater.chaos import app_verdict
from highwater.chaos.app_options import AppOptions
from highwater.chaos.app_processes import AppCluster, Copy, End
from highwater.chaos.app_run import AppRun
from highwater.chaos.app_traffic import Feeder, Watcher
from highwater.chaos.progress import Progress
from highwater.cluster.faults.fault_model import Fault
from highwater.verdict.contracts import reader
from highwater.verdict.contracts.judge import Judgement

EOF = KafkaError(KafkaError._PARTITION_EOF)
pytestmark = pytest.mark.thorough


@dataclass
class Message:
    of: str
    at: int
    id_: str | None
    t_ms: int = 1000
    of_key: str = "k"

    def topic(self) -> str:
        return self.of

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return EOF if self.id_ is None else None

    def timestamp(self) -> tuple[int, int]:
        return 1, self.t_ms

    def key(self) -> bytes:
        return self.of_key.encode()

    def value(self) -> bytes:
        return json.dumps({"id": self.id_}).encode()

    def headers(self) -> None:
        return None


@dataclass
class Topics:
    """What stands in both topics; `put` appends."""

    log: dict[str, list[Message]] = field(default_factory=lambda: defaultdict(list))

    def put(self, topic: str, *ids: str, t_ms: int = 1000, marker: bool = False) -> None:
        for id_ in ids:
            end = self.log[topic][-1].at + 1 if self.log[topic] else 0
            self.log[topic].append(Message(topic, end + marker, id_, t_ms))

    def consumer(self, settings: Any) -> Any:
        def gone(*_: Any) -> Any:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

        def bounds(place: Any, timeout: float) -> tuple[int, int]:
            log = self.log[place.topic]
            return 0, log[-1].at + 1 if log else 0

        everything = [message for log in self.log.values() for message in log]
        names = {name: SimpleNamespace(partitions=[0]) for name in ("orders", "invoices")}
        return SimpleNamespace(
            list_topics=lambda topic, timeout: SimpleNamespace(topics=names),
            get_watermark_offsets=bounds,
            assign=lambda places: None,
            pause=lambda places: None,
            consume=lambda count, timeout: everything,
            close=lambda: None,
            list_consumer_group_offsets=gone,
        )


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Topics:
    made = Topics()
    monkeypatch.setattr(reader, "Consumer", made.consumer)
    monkeypatch.setattr(app_verdict, "AdminClient", made.consumer)
    made.put("orders", "a", "b", "c")
    return made


def a_run(folder: Path, **options: Any) -> AppRun:
    given = {"input": "orders", "output": "invoices", "match": "$.id", "schedule": []} | options
    made = AppRun(
        AppOptions(folder / "run", 1, "python app.py", **given),
        Progress(Console(file=io.StringIO())),
    )
    made.folder.create()
    made._write_about("embedded")
    for log in (made.folder.faults, made.folder.witness):
        log.write_text("")
    made.read = True
    return made


def copies(ends: int = 0) -> AppCluster:
    copy = Copy("app", "python app.py", {}, Path("app.log"))
    copy.ends = [End(2, ("Traceback", "no such file"))] * ends
    made = AppCluster(cast("Any", None), [copy], lambda line: None)
    if ends == 6:
        made.gave_up.set()
    return made


def judged(
    run: AppRun, acknowledged: str = "abc", apps: AppCluster | None = None, planned: int = 0
) -> Judgement:
    feeder = Feeder("", "orders", "r", ["id"], acknowledged=set(acknowledged), sent=3)
    apps = apps or copies()
    run._notice(cast("Any", SimpleNamespace(planned=planned)), apps, feeder)
    return run.verdict.check("127.0.0.1:1", feeder, apps, [])


def broken(found: Judgement) -> set[str]:
    return {id_ for id_, check in found.checks.items() if check.status == "violated"}


@pytest.mark.parametrize(
    "options", [{}, {"exactly_once": True}, {"ordered": False}], ids=["once", "exactly", "any"]
)
def test_what_holds(topics: Topics, tmp_path: Path, options: dict[str, Any]) -> None:
    topics.put("invoices", "a", "b", "c")
    found = judged(a_run(tmp_path, **options))
    assert (found.verdict, found.exit_code) == ("valid", 0), found.notes
    assert found.headline.startswith("3 inputs acknowledged, 0 faults, and each input is in")


@pytest.mark.parametrize(
    ("ids", "options", "rules"),
    [
        ("ac", {}, {"K7"}),
        ("abcb", {"exactly_once": True}, {"K8"}),
        ("abcb", {}, set()),
        ("abcx", {"exactly_once": True}, {"K9"}),
        ("bac", {}, {"K11"}),
        ("bac", {"ordered": False}, set()),
    ],
)
def test_each_demand(
    topics: Topics, tmp_path: Path, ids: str, options: dict[str, Any], rules: set[str]
) -> None:
    topics.put("invoices", *ids)
    found = judged(a_run(tmp_path, **options))
    assert broken(found) == rules, found.headline
    assert found.verdict == ("invalid" if rules else "valid")


def test_a_repeat_of_an_earlier_owner_that_comes_late_does_not_change_the_order(
    topics: Topics, tmp_path: Path
) -> None:
    """Its timestamp is older than that of the first output."""
    topics.put("invoices", "a", "b", "c")
    topics.put("invoices", "a", "b", t_ms=900)
    assert broken(judged(a_run(tmp_path))) == set()


def test_an_output_that_comes_too_late(topics: Topics, tmp_path: Path) -> None:
    topics.put("invoices", "a", "b")
    topics.put("invoices", "c", t_ms=12_000)
    assert judged(a_run(tmp_path / "enough", within_s=60.0)).verdict == "valid"
    assert broken(judged(a_run(tmp_path / "less", within_s=10.0))) == {"K10"}


@pytest.mark.parametrize(("marker", "told"), [(False, True), (True, False)])
def test_a_repeat_without_transactions_says_so(
    topics: Topics, tmp_path: Path, marker: bool, told: bool
) -> None:
    topics.put("invoices", "a", "b", "c")
    topics.put("invoices", "b", marker=marker)
    found = judged(a_run(tmp_path, exactly_once=True))
    assert ("invoices holds no transaction" in found.headline) is told


def test_a_client_that_did_not_return_is_a_note(topics: Topics, tmp_path: Path) -> None:
    topics.put("invoices", "a", "b", "c")
    told = "watching invoices: Consumer.close has not returned within 30 s"
    feeder = Feeder("", "orders", "r", ["id"], acknowledged=set("abc"), sent=3)
    found = a_run(tmp_path).verdict.check("127.0.0.1:1", feeder, copies(), [told])
    assert told in found.notes
    assert found.verdict == "valid"


def test_a_cluster_that_lost_an_input_is_named(topics: Topics, tmp_path: Path) -> None:
    topics.put("invoices", "a", "b", "c")
    found = judged(a_run(tmp_path), acknowledged="abcd")
    assert found.verdict == "invalid"
    assert found.headline == (
        "the cluster lost 1 acknowledged records of orders, the first with id d"
    )


def test_an_application_that_never_read(topics: Topics, tmp_path: Path) -> None:
    topics.put("invoices", "a", "b", "c")
    run = a_run(tmp_path)
    run.read = False
    found = judged(run)
    assert (found.verdict, found.headline) == (
        "invalid",
        "no copy of the application ever read orders",
    )


def test_an_application_that_ended_six_times(topics: Topics, tmp_path: Path) -> None:
    topics.put("invoices", "a", "b", "c")
    found = judged(a_run(tmp_path), apps=copies(ends=6))
    assert found.verdict == "invalid"
    assert found.headline == "the application ended six times with code 2: no such file"
    told = "app ended by itself with code 2: Traceback / no such file (6 times)"
    assert found.notes[:2] == [found.headline, "3 inputs sent, 3 acknowledged"]
    assert found.notes.count(told) == 1


def test_the_copy_that_ended_too_often_is_named(tmp_path: Path) -> None:
    two = [Copy(name, "", {}, Path("app.log")) for name in ("app", "app-2")]
    two[1].ends = [End(1), *[End(-9)] * 5]
    assert AppCluster(cast("Any", None), two, lambda line: None).why_given_up() == (
        "app-2 ended six times, the last time with code -9: it printed nothing"
    )


def test_one_that_never_began_is_told_by_that_alone(topics: Topics, tmp_path: Path) -> None:
    topics.log.clear()
    run = a_run(tmp_path)
    run.read = False
    found = judged(run, acknowledged="", apps=copies(ends=6), planned=2)
    assert found.verdict == "invalid"
    assert found.headline == "the application ended six times with code 2: no such file"
    told = [note for note in found.notes if not note.endswith("holds no record")]
    assert not [note for note in told if "void" in note or "ever read" in note], found.notes


def test_a_run_that_shows_nothing_is_void(topics: Topics, tmp_path: Path) -> None:
    topics.put("invoices", "a", "b", "c")
    nothing = judged(a_run(tmp_path / "nothing"), acknowledged="")
    assert (nothing.verdict, nothing.exit_code) == ("void", 2)
    assert nothing.headline.endswith("no record of orders was acknowledged")
    fewer = judged(a_run(tmp_path / "fewer"), planned=2)
    assert fewer.headline.endswith("2 faults were planned, 0 fired")
    run = a_run(tmp_path / "unseen")
    line = {"name": "pause", "target": "app", "effect": None, "t_ns": 1, "t": 0.0}
    run.folder.faults.write_text(json.dumps(line) + "\n")
    unseen = judged(run, planned=1)
    assert unseen.headline.endswith("fault pause on app had no visible effect")


def test_topics_without_a_record_are_void(topics: Topics, tmp_path: Path) -> None:
    topics.log.clear()
    found = judged(a_run(tmp_path))
    assert found.verdict == "invalid", "what was acknowledged is gone"
    assert judged(a_run(tmp_path / "none"), acknowledged="").verdict == "void"


async def test_faults_that_hit_an_application_that_did_not_work_yet(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    run = a_run(tmp_path, schedule=[Fault("kill", "app")])
    watcher = Watcher("", "invoices", 3, cast("Any", {}))
    await run._first_output(copies(), watcher)
    assert run.verdict.missing == [
        "nothing had come out in invoices 60 s after the start, when the faults began"
    ]
    watcher.ids.add("a")
    run.verdict.missing.clear()
    await run._first_output(copies(), watcher)
    assert run.verdict.missing == []
