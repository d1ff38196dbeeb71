"""The project's wheel and source distribution, as their users get them."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    """The command's output; it gets none of this process's variables for Python."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=clean | more, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def build(kind: str, folder: Path, source: Path = ROOT, **more: str) -> Path:
    """The file of the `wheel` or `sdist` that is built into the folder; `more`: variables.

    The wheel is pure unless `more` says otherwise, which saves half a minute.
    """
    more.setdefault("HIGHWATER_COMPILE", "0")
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder, cwd=source, **more)
    (built,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def install(wheel: Path, folder: Path) -> Path:
    """Makes folder/venv with the wheel and, by a path alone, the packages that it depends on; gives
    the folder of its packages."""
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    where = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
    packages = Path(where.strip())
    with zipfile.ZipFile(wheel) as archive:  # pip does the same
        archive.extractall(packages)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return packages
