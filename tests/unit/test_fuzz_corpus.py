"""What fuzzing has found, again (`tests/fuzzing/corpus`)."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from highwater.agent.http_server import Call
from highwater.kafka.wire.codec import BadMessage, decode_request
from tests.fuzzing import listeners, sasl
from tests.fuzzing.files import check_damaged, template
from tests.fuzzing.znodes import Planted, play

CORPUS = Path(__file__).parents[1] / "fuzzing" / "corpus"


def _kept(folder: str) -> pytest.MarkDecorator:
    files = sorted((CORPUS / folder).iterdir())
    assert files
    return pytest.mark.parametrize("kept", files, ids=[file.stem for file in files])


@_kept("planted")
def test_a_damaged_znode_harms_no_broker_and_no_record(kept: Path) -> None:
    found = json.loads(kept.read_text())
    play(kept.stem, 0, [Planted(found["path"], found["data"].encode("latin-1"))])


@_kept("logins")
def test_a_login_is_refused_in_a_line(kept: Path) -> None:
    found = json.loads(kept.read_text())
    tokens = [token.encode("latin-1") for token in found["tokens"]]
    assert not sasl.check_kept(found["mechanism"], tokens).known


@_kept("calls")
def test_a_call_is_refused(kept: Path) -> None:
    found = json.loads(kept.read_text())
    call = Call(found["method"], found["target"], found["body"].encode("latin-1"))
    assert listeners.check_call(call) == "bad_request"


@_kept("requests")
def test_a_request_is_one_or_is_refused(kept: Path) -> None:
    key, version, _ = kept.name.split("-", 2)
    with pytest.raises(BadMessage):
        decode_request(int(key), int(version), memoryview(kept.read_bytes()))


@_kept("logs")
def test_a_damaged_log_opens_and_goes_on(kept: Path, tmp_path: Path) -> None:
    whole_folder = tmp_path / "kept"
    whole_folder.mkdir()
    whole = template(whole_folder)
    check_damaged(Random(kept.read_text().strip()), whole_folder, whole, tmp_path / "log")
