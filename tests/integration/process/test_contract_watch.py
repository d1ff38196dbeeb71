"""A contract on topics that are being written: offenders as they come, and a restart."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.background import BackgroundCluster
from tests.integration.process.test_contract import example, numbered, send
from tests.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(600),
]


class Watch:
    """`highwater verify --contract FILE --watch`, beside the test."""

    def __init__(self, file: Path, bootstrap: str, *options: str) -> None:
        self.log = file.parent / "said.log"
        command = [sys.executable, "-m", "highwater.cli.main", "verify", "--contract", str(file)]
        command += ["--bootstrap", bootstrap, "--watch", "--state", str(file.parent / "state")]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, *options], stdout=output, stderr=subprocess.STDOUT
            )

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def said(self) -> str:
        return self.log.read_text()

    @property
    def offenders(self) -> list[str]:
        """Without the seconds."""
        return re.findall(r"^(K\d+ .*) \(\S+ s after its record\)$", self.said, re.MULTILINE)

    def until(self, words: str) -> None:
        def told() -> bool:
            assert self.process.poll() is None or words in self.said, self.said
            return words in self.said

        eventually(told, words, lambda: self.said, within_s=240)

    def code(self) -> int:
        return self.process.wait(240)


def test_offenders_are_named_as_they_come_and_once(
    background: BackgroundCluster, tmp_path: Path
) -> None:
    bootstrap = background.bootstrap_servers
    background.create_topic("orders", partitions=1)
    send(bootstrap, "orders", *numbered(1, 2))
    file = example(0, tmp_path)
    with Watch(file, bootstrap, "--go-on", "--unseen", "1") as watch:
        watch.until("contract: watches orders")
        assert not watch.offenders, watch.said
        send(bootstrap, "orders", *numbered(4, 4))
        watch.until("K3 orders-0 offset 3")
        watch.until("K2 orders-0 offset 1")
        watch.process.kill()  # the job dies with it
        watch.process.wait()
    send(bootstrap, "orders", *numbered(6, 5, 7))
    with Watch(file, bootstrap) as again:
        assert again.code() == 1, again.said
        assert again.offenders == [
            "K4 orders-0 offset 5: has number 5 of key ada, and comes after 6 (offset 4)"
        ], again.said


def test_a_topic_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    file = example(0, tmp_path)
    with Watch(file, "127.0.0.1:1") as watch:
        assert watch.code() == 3, watch.said
    assert "contract: the topics cannot be read: " in watch.said
