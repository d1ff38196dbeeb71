"""Each kind of file, and what is wrong with one, in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater.doctor.settings_file import UnreadableSettings, read_settings

SPRING = """\
spring:
  kafka:
    bootstrap-servers: [one:9092, two:9092]
    producer: {acks: 1, properties: {enable.idempotence: false}}
    consumer: {group-id: g}
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.properties", "acks = 1\nenable.idempotence: true\n"),
        ("a.conf", "acks=1\nenable.idempotence=true\n"),
        ("a.json", '{"acks": 1, "enable.idempotence": true}'),
        ("a.toml", "acks = 1\nenable.idempotence = true\n"),
        ("a.yaml", "acks: 1\nenable: {idempotence: true}\n"),
    ],
)
def test_kinds(tmp_path: Path, name: str, text: str) -> None:
    read = read_settings(written(tmp_path, name, text))
    assert read == {"": {"acks": "1", "enable.idempotence": "true"}}


def test_roles_that_the_file_tells_apart(tmp_path: Path) -> None:
    text = "producer.acks=1\nconsumer.group.id=g\nbootstrap.servers=a:1\n"
    assert read_settings(written(tmp_path, "mm.properties", text)) == {
        "producer": {"bootstrap.servers": "a:1", "acks": "1"},
        "consumer": {"bootstrap.servers": "a:1", "group.id": "g"},
    }


def test_springs_names_and_springs_own_default(tmp_path: Path) -> None:
    assert read_settings(written(tmp_path, "application.yml", SPRING)) == {
        "producer": {
            "bootstrap.servers": "one:9092,two:9092", "acks": "1", "enable.idempotence": "false",
        },
        "consumer": {
            "bootstrap.servers": "one:9092,two:9092", "group.id": "g",
            "enable.auto.commit": "false",
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.properties", "=1\n", "names no property"),
        ("a.json", "{", "Expecting property name"),
        ("a.json", "[1]", "not a table of settings"),
        ("a.toml", "acks", "Expected '='"),
        ("a.yaml", "a: [", "expected the node content"),
    ],
)
def test_a_broken_file(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(UnreadableSettings, match=said) as error:
        read_settings(written(tmp_path, name, text))
    assert str(tmp_path / name) in str(error.value)
