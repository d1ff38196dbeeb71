"""Cuts a history that is being written into pieces that a stream can take.

Spark's file source takes a file once, and does not see what is appended to it later.  So a thread
of the driver copies what is new, up to the last whole line, into a folder of small files, each
moved there whole, and the stream deletes those that it has finished.  The next piece begins where
the newest one ended: that one's name says where, or, once it has been deleted, the file `position`.
A history that others write in pieces can be watched as well, in any store.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Final

MOST: Final = 1 << 20
"""The most bytes of a piece."""
AT_ONCE: Final = 64
"""How many pieces may wait for the stream; no more are made until it has taken some."""
EVERY_S: Final = 0.2


class Pieces:
    def __init__(self, history: Path, folder: Path) -> None:
        self.history = history
        self.folder = folder / "pieces"
        self.place = folder / "position"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.position = self._position()
        self.error: OSError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pieces", daemon=True)

    def _position(self) -> int:
        """Where the next piece begins."""
        ends = [end_of(path.name) for path in self.folder.glob("[0-9]*.jsonl")]
        if self.place.exists():
            ends.append(int(self.place.read_text()))
        return max(ends, default=0)

    def start(self) -> None:
        """Begins with an empty piece, so that the stream's slow first batch is over early."""
        self._move(f"{self.position:015d}-{self.position:015d}-{time.time_ns()}", b"\n")
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                while self.cut() and not self._stopping.is_set():
                    pass
            except OSError as error:
                self.error = error
                return
            self._stopping.wait(EVERY_S)

    def cut(self) -> bool:
        """Makes one piece of what is new; returns False if there is nothing, or no room for it."""
        if len(os.listdir(self.folder)) >= AT_ONCE:
            return False
        try:
            with self.history.open("rb") as file:
                file.seek(self.position)
                data = file.read(MOST)
        except FileNotFoundError:
            return False
        end = data.rfind(b"\n") + 1
        if not end:
            return False
        begin, self.position = self.position, self.position + end
        self._move(f"{begin:015d}-{self.position:015d}", data[:end])
        _write_whole(self.place, str(self.position))
        return True

    def _move(self, name: str, data: bytes) -> None:
        hidden = self.folder / f".{name}.jsonl"  # Spark ignores names that begin with a dot
        hidden.write_bytes(data)
        os.replace(hidden, self.folder / f"{name}.jsonl")


def end_of(piece: str) -> int:
    """The position in the history at which a piece ends, from its path."""
    return int(Path(piece).stem.split("-")[1])


def _write_whole(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def end_of_lines(path: Path) -> int:
    """The length of a file up to its last newline; 0 where there is no file."""
    try:
        with path.open("rb") as file:
            end = os.fstat(file.fileno()).st_size
            while end > 0:
                begin = max(0, end - (1 << 16))
                file.seek(begin)
                at = file.read(end - begin).rfind(b"\n")
                if at >= 0:
                    return begin + at + 1
                end = begin
    except FileNotFoundError:
        pass
    return 0
