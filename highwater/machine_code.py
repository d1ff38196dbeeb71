"""Compiles the modules that read and write records (mypyc), for a wheel or for an image.

They are pure functions upon bytes, and what holds their results: no task, no class that others
extend.  Their files stay beside them as they are; a clone runs the files, since edited source must
never run stale.  HIGHWATER_COMPILE=0 leaves it, and with 1 it must not fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

COMPILE = "HIGHWATER_COMPILE"
ROOMS = ("broker", "controller", "spark")
"""In a clone these lie beside the package, and a source distribution has no symbolic links."""
COMPILED = (
    "kafka/wire/record_codec",
    "kafka/wire/record_walk",
    "kafka/wire/varint",
    "kafka/wire/records",
    "kafka/wire/header",
    "kafka/wire/fetch",
    "kafka/wire/produce",
    "broker/log/cleaner/compacted_records",
    "broker/log/cleaner/offset_map",
    "broker/log/cleaner/record_filter",
)
_COMPILER = """\
from mypyc.build import mypycify
from setuptools import setup
import sys
setup(
    packages=[],
    ext_modules=mypycify(sys.argv[2:], opt_level="3", debug_level="0", group_name=sys.argv[1]),
    script_args=["-q", "build_ext", "--inplace"],
)
"""


def compiles() -> bool:
    """Whether compiled modules are wanted; raises ValueError for a setting unknown."""
    setting = os.environ.get(COMPILE, "")
    if setting not in ("", "0", "1"):
        raise ValueError(f"{COMPILE}={setting}: set it to 1 for compiled modules, or to 0")
    return setting != "0"


def insists() -> bool:
    """Whether a build that cannot compile must fail."""
    return os.environ.get(COMPILE) == "1"


def finds_compiler() -> bool:
    """Whether a C compiler and Python's headers are there."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return shutil.which(command.split()[0]) is not None and headers.exists()


def compiled(root: Path, work: Path) -> list[Path]:
    """Compiles COMPILED in a copy of the package at `work`; gives the extension modules there.

    Needs mypy, setuptools and a C compiler; raises RuntimeError with what the compiler said.
    """
    leave = shutil.ignore_patterns("__pycache__", "_vendor", "*.so")
    # an image's stage has not all rooms that the package's links name
    shutil.copytree(
        root / "highwater", work / "highwater", ignore=leave, ignore_dangling_symlinks=True
    )
    for room in ROOMS:
        if not (work / "highwater" / room).exists() and (root / room).exists():
            shutil.copytree(root / room, work / "highwater" / room, ignore=leave)
    # what mypy checks is checked in the project; here it only has to find the package
    (work / "mypy.ini").write_text("[mypy]\nignore_missing_imports = true\n")
    script = work / "compile.py"
    script.write_text(_COMPILER)
    files = [f"highwater/{name}.py" for name in COMPILED]
    ran = subprocess.run(
        [sys.executable, str(script), "highwater.compiled", *files],
        cwd=work, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = sorted((work / "highwater").rglob("*.so"))
    if ran.returncode or len(found) != len(COMPILED) + 1:
        told = (ran.stdout + ran.stderr)[-2000:]
        raise RuntimeError(
            "the modules were not compiled: install a C compiler and Python's headers, or set"
            f" {COMPILE}=0\n{told}"
        )
    return found


def main(root: Path, target: Path) -> None:
    """Compiles a clone's modules into `target`, which is laid out as the clone is."""
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        for file in compiled(root, Path(name)):
            path = file.relative_to(name)
            top = path.parts[1]
            place = target / (path.relative_to("highwater") if top in ROOMS else path)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, place)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
