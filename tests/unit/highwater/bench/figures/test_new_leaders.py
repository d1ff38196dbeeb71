from __future__ import annotations

import time
from pathlib import Path

import pytest

from highwater.bench.figures.new_leaders import new_leader_s
from highwater.broker.__main__ import LOG_FORMAT

HERE = Path(__file__).parents[5]


def line(when: float, text: str) -> str:
    whole, millis = int(when), round(when % 1 * 1000)
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(whole))
    return f"[{stamp},{millis:03d}] INFO {text} (highwater.broker.replica.replica_manager)\n"


def test_the_first_broker_that_leads_after_the_kill(tmp_path: Path) -> None:
    began = 1_800_000_000.25
    text = "orders-0: leader in epoch 4 from offset 7, ISR [2]"
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text(line(began - 5, text) + line(began + 0.5, text) + "a line of its own\n")
    other.write_text(line(began + 0.125, text) + line(began + 0.1, text.replace("s-0", "s-10")))
    found = new_leader_s([one, other, tmp_path / "none"], "orders-0", began)
    assert found == pytest.approx(0.125)
    assert new_leader_s([one], "orders-1", began) is None


def test_brokers_write_such_lines() -> None:
    assert LOG_FORMAT.startswith("[%(asctime)s] %(levelname)s %(message)s")
    manager = (HERE / "broker/replica/replica_manager.py").read_text()
    assert '"%s: leader in epoch %d from offset' in manager
