"""Copies what a program needs of the machine that it is on: the files of an image without a base.

usage: python3 needed.py TARGET FOLDER COMMAND...

TARGET becomes a root with this Python, the libraries that it, the modules in FOLDER and the
commands load, and the base system's settings.  FOLDER itself is not copied.  Programs that look for
known vulnerabilities read the names of the packages in /var/lib/dpkg/status: it keeps those whose
files are there.

It runs while an image is built, on Debian, with the standard library alone.  Python may be
Debian's, or one in /usr/local.
"""

import compileall
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

STDLIB = Path(sysconfig.get_path("stdlib"))
SYSTEM = ("base-files", "base-passwd", "libc-bin", "media-types", "netbase", "tzdata")
"""Packages without libraries, whose files are read at a run; not every base has all."""
OPENSSL = Path("/usr/lib/ssl")
"""Links to /etc/ssl, in the package of the command, which is left out."""
SETTINGS = (
    *("group", "gshadow", "passwd", "shadow", "host.conf", "nsswitch.conf"),
    *("ld.so.cache", "localtime", "ssl", "timezone"),
)
"""Files of /etc that no package lists, because its installation makes them."""
UNREAD = re.compile(
    r"/usr/share/(man|info|locale|lintian|bug|base-files)(/|$)"
    r"|/usr/share/doc/[^/]+/(?!copyright$)"
    r"|/(gconv|systemd|debug|audit|sbin)(/|$)"
)
"""Files of these packages that nobody reads in a container."""
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
UNLOADED = {f"{name}{SUFFIX}" for name in ("_dbm", "_gdbm", "_tkinter")}
"""Modules whose libraries are large, and which nothing here imports."""
UNUSED = {
    *("ensurepip", "idlelib", "lib2to3", "pydoc_data"),
    *("test", "tkinter", "turtle.py", "turtledemo"),
    *("site-packages", "dist-packages", "__pycache__"),
    *(path.name for path in STDLIB.glob("config-*")),
    *UNLOADED,
}
"""Parts of the standard library that stay out: for development, for windows, other packages, and
byte code, which is made again."""


class Root:
    """The files below the target, laid out as here."""

    def __init__(self, target: Path) -> None:
        self.target = target
        for link in ("bin", "lib", "lib32", "lib64", "libx32", "sbin"):
            if (Path("/") / link).is_symlink():
                self.add(Path("/") / link)

    def place(self, path: Path) -> Path:
        """Where it goes; folders above it are real ones, with the modes that they have here."""
        folder = path.parent.resolve()
        for above in [*reversed(folder.parents), folder]:
            there = self.target / above.relative_to("/")
            if not there.exists():
                there.mkdir()
                shutil.copystat(above, there)
        return self.target / folder.relative_to("/") / path.name

    def add(self, path: Path) -> None:
        """A file, a link with all that it leads to, or an empty folder."""
        place = self.place(path)
        if path.is_symlink():
            if not place.is_symlink():
                place.symlink_to(path.readlink())
            if path.exists() and path.is_file():
                self.add(path.parent.resolve() / path.readlink())
        elif path.is_dir():
            self.place(path / "any")
        elif path.is_file() and not place.exists():
            shutil.copy2(path, place)

    def add_all(self, folder: Path, leave: Iterable[str] = ()) -> None:
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name in leave:
                continue
            if path.is_dir() and not path.is_symlink():
                self.add_all(path, leave)
            else:
                self.add(path)


def modules(folder: Path) -> Iterator[Path]:
    found = (path for path in folder.rglob("*.so*") if path.is_file())
    yield from (path for path in found if path.name not in UNLOADED)


def libraries(files: Iterable[Path]) -> set[Path]:
    """What the dynamic linker finds for them; an error if it misses something."""
    done = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=True)
    missing = sorted(set(re.findall(r"(\S+) => not found", done.stdout)))
    if missing:
        sys.exit(f"the base image lacks {', '.join(missing)}")
    return {Path(name) for name in re.findall(r"(?:=> |^\t)(/\S+) \(0x", done.stdout, re.MULTILINE)}


def owners(files: Iterable[Path]) -> set[str]:
    """The packages of files, where they have any: a Python in /usr/local has none."""
    names = {name for file in files for name in (str(file), str(file.resolve()))}
    done = subprocess.run(
        ["dpkg", "-S", *sorted(names)], capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stdout.splitlines() if not line.startswith("diversion ")]
    words = [word for line in lines for word in line.split(": /")[0].split(", ")]
    return {word.split(":")[0] for word in words}


def listed(package: str) -> list[Path]:
    done = subprocess.run(["dpkg", "-L", package], capture_output=True, text=True, check=False)
    return [Path(line) for line in done.stdout.splitlines() if line.startswith("/")]


def python_of(folder: Path) -> list[Path]:
    """The links from the virtual environment to the interpreter, which is the last one."""
    chain = [folder / "bin/python3"]
    while chain[-1].is_symlink():
        chain.append(chain[-1].parent / chain[-1].readlink())
    return chain[1:]


def main(target: Path, folder: Path, commands: list[str]) -> None:
    root, python = Root(target), python_of(folder)
    programs = [Path(found) for command in commands if (found := shutil.which(command))]
    loaded = libraries([python[-1], *programs, *modules(STDLIB), *modules(folder)])
    for path in (*python, *programs, *(file for file in loaded if folder not in file.parents)):
        root.add(path)
    root.add_all(STDLIB, UNUSED)
    root.add_all(OPENSSL)
    for package in SYSTEM:
        for path in listed(package):
            if not UNREAD.search(str(path)):
                root.add(path)
    for path in map(Path("/etc").joinpath, SETTINGS):
        if path.is_dir():
            root.add_all(path)
        elif path.exists():
            root.add(path)
    # where the target becomes an image, its user may not write byte code
    below = target / STDLIB.relative_to("/")
    compileall.compile_dir(below, stripdir=str(target), quiet=1, workers=0)
    certificates = Path("/etc/ssl/certs")
    packages = owners([python[-1], STDLIB / "os.py", certificates, *programs, *loaded])
    packages.update(filter(listed, SYSTEM))
    for package in packages:
        root.add(Path("/usr/share/doc") / package / "copyright")
    status = Path("/var/lib/dpkg/status")
    known = status.read_text().strip().split("\n\n")
    kept = [about for about in known if about.splitlines()[0][len("Package: ") :] in packages]
    root.place(status).write_text("\n\n".join(kept) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
