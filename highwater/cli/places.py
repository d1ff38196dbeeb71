"""Files and folders that a command is going to write: refused before the work, not after it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click


class OutputFile(click.Path):
    """A file to be written: not a folder, and in a folder that is there."""

    def __init__(self, *, allow_dash: bool = False) -> None:
        super().__init__(path_type=Path, dir_okay=False, writable=True, allow_dash=allow_dash)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if self.allow_dash and str(path) == "-":
            return path
        folder = path.absolute().parent
        if not folder.is_dir():
            self.fail(f"there is no folder {folder} for {path}: make it first", param, ctx)
        if not os.access(folder, os.W_OK):
            self.fail(f"{folder} may not be written: name a file elsewhere", param, ctx)
        return path


class OutputFolder(click.Path):
    """A folder to be made, or to be written into; what is above it may be missing, too."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        above = path.absolute()
        while not os.path.lexists(above):
            above = above.parent
        if not above.is_dir():
            self.fail(f"{path}: {above} is no folder: name another one", param, ctx)
        if not os.access(above, os.W_OK):
            self.fail(f"{path}: {above} may not be written: name another folder", param, ctx)
        return path
