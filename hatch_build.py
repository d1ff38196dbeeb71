"""The parts of the wheel beside the project's own files; each is fixed by SHA-256.

highwater/_vendor/python    kafka-python with its licence, without its admin client.  Its schemas
                            are one file, without their prose.  For both a line of it is another
                            one.  As a build requirement it comes from the index or mirror of the
                            user's own settings
highwater/docs              the pages of the documentation that are for users
highwater/compose           compose.yaml, and what its images are built of beside the package itself

Where there is a C compiler the wheel is for this machine's Python, and holds the modules of
highwater/machine_code.py as machine code beside their files, which stay as they are.
HIGHWATER_COMPILE=0 makes a pure wheel; with HIGHWATER_COMPILE=1 a build that cannot compile fails.

An editable installation has none of this.  It depends on kafka-python as others do, and has the
rest from its clone.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# A build runs this file beside the package, which is not installed there.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from highwater.machine_code import ROOMS, compiled, compiles, finds_compiler, insists

KAFKA_PYTHON = "3.0.12"
KAFKA_PYTHON_SHA256 = "9730925ca4790ded38388a497e13f9140a1e64b09925ef36db3c1abdf5a3b5e0"
"""Over the lines `SHA-256 path` of its files, in order; a new version needs new values of both."""
UNUSED = (
    "kafka/admin/",
    "kafka/cli/",
    "kafka/benchmarks/",
    "kafka/protocol/old/",
    "kafka/protocol/generate_stubs.py",
)
"""What nothing else of it imports, but its first module (`DOOR`)."""
NOT_READ = (".pyc", ".pyi")
"""Stubs are for those who check types against it, and this copy is private."""
SCHEMAS = "kafka/protocol/schemas/resources/"
LOADER = "kafka/protocol/schemas/load_json.py"
DOOR = "kafka/__init__.py"
OTHER_LINES = {
    DOOR: ("from kafka.admin import KafkaAdminClient\n", ""),
    LOADER: (
        "    msg_json = importlib.resources.read_text(package, msg_type + '.json')\n",
        "    msg_json = _texts(package).get(msg_type)\n"
        "    if msg_json is None:\n"
        "        msg_json = importlib.resources.read_text(package, msg_type + '.json')\n",
    ),
}
"""Files of it in which a line is another one."""
TEXTS = """\


@functools.lru_cache(maxsize=None)
def _texts(package):
    \"\"\"The schemas of the package where they are one file: name -> text.\"\"\"
    file = importlib.resources.files(package) / 'all.json'
    return json.loads(file.read_text('utf-8')) if file.is_file() else {}
"""
COMPILER_PACKAGES = ["mypy==2.4.1", "setuptools>=80"]
COMPOSE = ("compose.yaml", "Dockerfile", ".dockerignore")
OWN_TESTS = "## About the project's own tests"
"""The title in the pages' index under which they are of use only in a clone."""
FROM_A_CLONE = "cluster"
"""The folder of the image that is built from a clone alone."""


def users_pages(docs: Path) -> list[Path]:
    """The pages that are for users, by their index, and the index."""
    own_tests = (docs / "README.md").read_text("utf-8").partition(OWN_TESTS)[2]
    left_out = set(re.findall(r"(?m)^- \[([\w-]+\.md)\]", own_tests))
    return [page for page in sorted(docs.glob("*.md")) if page.name not in left_out]


class BuildHook(BuildHookInterface[Any]):
    """Called by hatchling, for wheels alone."""

    def dependencies(self) -> list[str]:
        return COMPILER_PACKAGES if compiles() and finds_compiler() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            build_data["dependencies"].append(f"kafka-python=={KAFKA_PYTHON}")
            return
        root = Path(self.root)
        self.work = tempfile.TemporaryDirectory()
        included: dict[str, str] = build_data["force_include"]
        schemas = {}
        for source, path in kafka_python().items():
            if path.startswith(SCHEMAS) and path.endswith(".json"):
                schemas[Path(path).stem] = _without_prose(Path(source).read_text("utf-8"))
                continue
            if path in OTHER_LINES:
                source = self._made(path, _with_other_line(path, Path(source).read_text("utf-8")))
            included[source] = f"highwater/_vendor/python/{path}"
        one = f"{SCHEMAS}all.json"
        source = self._made(one, json.dumps(schemas, indent=0, sort_keys=True) + "\n")
        included[source] = f"highwater/_vendor/python/{one}"
        for room in ROOMS:  # a source distribution has no symbolic links
            if not (root / "highwater" / room).exists():
                included[str(root / room)] = f"highwater/{room}"
        for page in users_pages(root / "docs"):
            included[str(page)] = f"highwater/docs/{page.name}"
        place = Path(self.work.name) / "compiled"
        for file in self._compiled(root, place):
            included[str(file)] = file.relative_to(place).as_posix()
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
        images = (f"docker/{p.name}" for p in sorted((root / "docker").iterdir()))
        for name in (*COMPOSE, *(i for i in images if i != f"docker/{FROM_A_CLONE}")):
            included[str(root / name)] = f"highwater/compose/{name}"

    def _made(self, path: str, text: str) -> str:
        """A file of this content, outside of the clone."""
        place = Path(self.work.name) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8")
        return str(place)

    def _compiled(self, root: Path, place: Path) -> list[Path]:
        if not compiles() or not (insists() or finds_compiler()):
            return []
        try:
            return compiled(root, place)
        except RuntimeError as error:
            if insists():
                raise
            self.app.display_warning(f"the wheel is pure Python, and slower: {error}")
            return []

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            _pack(Path(artifact_path))
            self.work.cleanup()


def kafka_python() -> dict[str, str]:
    """The files of kafka-python and its licence: where they are, and what they are called."""
    found = distribution("kafka-python")
    names = sorted(
        path.as_posix()
        for path in found.files or ()
        if (path.parts[0] == "kafka" and path.suffix not in NOT_READ) or path.name == "LICENSE"
        if not path.as_posix().startswith(UNUSED)
    )
    files = {str(found.locate_file(name)): name for name in names}
    lines = (f"{_sha256(Path(file))} {name}\n" for file, name in files.items())
    total = hashlib.sha256("".join(lines).encode()).hexdigest()
    if (found.version, total) != (KAFKA_PYTHON, KAFKA_PYTHON_SHA256):
        raise RuntimeError(
            f"the wheel carries kafka-python {KAFKA_PYTHON} with SHA-256 {KAFKA_PYTHON_SHA256}, and"
            f" the build environment has {found.version} with {total}: install the former"
        )
    return files


def _with_other_line(path: str, text: str) -> str:
    """A file of kafka-python as the wheel has it."""
    old, new = OTHER_LINES[path]
    if text.count(old) != 1:
        raise RuntimeError(f"{path} of kafka-python {KAFKA_PYTHON} does not read as expected")
    text = text.replace(old, new)
    return f"import functools\n{text}{TEXTS}" if path == LOADER else text


def _without_prose(schema: str) -> str:
    """A message's schema without the descriptions of its fields, which nothing reads; the notice at
    its head stays."""
    notice = re.match(r"(\s*//.*\n)*", schema)
    fields = json.loads(re.sub(r"(?m)^\s*//.*$", "", schema), object_hook=_without_about)
    return ("" if notice is None else notice.group()) + json.dumps(fields, separators=(",", ":"))


def _without_about(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "about"}


def _pack(wheel: Path) -> None:
    """Compresses the wheel once more, as far as zip can."""
    with zipfile.ZipFile(wheel) as archive:
        members = [(member, archive.read(member)) for member in archive.infolist()]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for member, data in members:
            archive.writestr(member, data, zipfile.ZIP_DEFLATED, 9)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
