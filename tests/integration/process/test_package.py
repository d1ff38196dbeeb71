"""The published package: two files of one content, with all that it needs at run time."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.integration.process.building import ROOT, build, run

pytestmark = pytest.mark.integration
LARGEST = 2_500_000
"""Bytes of a pure wheel."""


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", tmp_path_factory.mktemp("sdist"))


def contents(wheel: Path) -> dict[str, bytes]:
    """Files by name, without the list of them, whose order is the file system's."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/RECORD")]
        return {name: archive.read(name) for name in names}


def test_twine_finds_both_fit_to_be_published(wheel: Path, sdist: Path) -> None:
    told = run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist, cwd=wheel.parent)
    assert told.count("PASSED") == 2


def test_the_source_distribution_builds_the_same_wheel(
    wheel: Path, sdist: Path, tmp_path: Path
) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert contents(build("wheel", tmp_path / "built", source)) == contents(wheel)


def test_the_wheel_carries_its_types_and_kafka_python_with_its_licence_and_no_jars(
    wheel: Path,
) -> None:
    names = set(contents(wheel))
    assert "highwater/py.typed" in names
    licence = "_vendor/python/kafka_python-3.0.12.dist-info/licenses/LICENSE"
    assert f"highwater/{licence}" in names
    assert [name for name in names if name.endswith((".jar", ".class"))] == []
    assert wheel.stat().st_size < LARGEST


def test_a_client_library_is_no_dependency(wheel: Path) -> None:
    (metadata,) = [v for k, v in contents(wheel).items() if k.endswith(".dist-info/METADATA")]
    needed = [line for line in metadata.decode().splitlines() if line.startswith("Requires-Dist")]
    assert len(needed) > 5
    assert [line for line in needed if "kafka" in line and "extra ==" not in line] == []
    assert [line for line in needed if "kafka-python" in line] == []


def test_an_editable_installation_depends_on_the_same_kafka_python(tmp_path: Path) -> None:
    code = f"from hatchling.build import build_editable; build_editable({str(tmp_path)!r})"
    run(sys.executable, "-c", code, cwd=ROOT)
    files = contents(next(tmp_path.glob("*.whl")))
    (metadata,) = [v for k, v in files.items() if k.endswith(".dist-info/METADATA")]
    assert "Requires-Dist: kafka-python==3.0.12\n" in metadata.decode()
    assert [name for name in files if "_vendor" in name] == []


def test_compose_is_laid_out_as_in_a_clone(wheel: Path, tmp_path: Path) -> None:
    from highwater.cluster.compose.compose_files import laid_out

    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    folder = laid_out(tmp_path / "site" / "highwater", tmp_path / "cache")
    assert laid_out(tmp_path / "site" / "highwater", tmp_path / "cache") == folder
    assert list((tmp_path / "cache").iterdir()) == [folder]
    listed = run("git", "ls-files", cwd=ROOT).splitlines()
    rooms = ("broker/", "controller/", "spark/", "highwater/", "docker/")
    files = [n for n in listed if n.startswith(rooms)] + ["compose.yaml", "Dockerfile"]
    from_a_clone = "docker/cluster/"  # that image's Dockerfile is in the pages, and in no command
    assert not (folder / from_a_clone).exists()
    files = [n for n in files if not n.startswith(from_a_clone)]
    assert [n for n in files if not (folder / n).exists()] == []
    different = [
        n
        for n in files
        if not (ROOT / n).is_dir() and (folder / n).read_bytes() != (ROOT / n).read_bytes()
    ]
    assert different == []
    for link in ("broker", "controller", "spark"):
        assert (folder / "highwater" / link).readlink() == (ROOT / "highwater" / link).readlink()
