"""Reads and writes small files wherever Spark can: file:, hdfs:, s3a:, through Hadoop's FileSystem.

A path without a scheme belongs to Spark's default file system (`fs.defaultFS`).  On a machine
without a cluster that is the machine's own, and the path is relative to the working folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from pyspark.sql import SparkSession

    T = TypeVar("T")

TAIL_BYTES: Final = 1 << 20
"""How much of a file's end is searched for a torn line."""


class StoreError(Exception):
    """A path could not be read or written; the message is one line that names it."""


class Store:
    """Accesses files; raises StoreError for every failure but a missing file."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def modified_ms(self, path: str) -> int | None:
        """When a path was modified; None if there is no such file or folder."""
        status = self._status(path)
        return None if status is None else int(status.getModificationTime())

    def exists(self, path: str) -> bool:
        return self._status(path) is not None

    def bytes_in(self, path: str) -> int:
        """The size of a file, or of all files in a folder; 0 if there is none."""
        if not self.exists(path):
            return 0
        return self._try(path, lambda fs, p: int(fs.getContentSummary(p).getLength()))

    def read(self, path: str) -> str | None:
        """The whole text, or None where there is no such file."""
        return self._text(path, 0) if self.exists(path) else None

    def torn_end(self, path: str) -> str:
        """The text after the last newline; "" if the last line is whole."""
        status = self._status(path)
        if status is None or status.isDirectory():
            return ""
        begin = max(0, int(status.getLen()) - TAIL_BYTES)
        return self._text(path, begin).rpartition("\n")[2]

    def write(self, path: str, text: str) -> None:
        def work(fs: Any, p: Any) -> None:
            fs.setWriteChecksum(False)  # else a local file gets a companion, .NAME.crc
            out = fs.create(p, True)
            try:
                out.write(bytearray(text.encode()))
            finally:
                out.close()

        self._try(path, work)

    def _text(self, path: str, begin: int) -> str:
        def work(fs: Any, p: Any) -> str:
            file = fs.open(p)
            try:
                file.seek(begin)
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(file, "UTF-8"))
            finally:
                file.close()

        return self._try(path, work)

    def _status(self, path: str) -> Any:
        return self._try(path, lambda fs, p: fs.getFileStatus(p), absent=None)

    def _try(self, path: str, work: Callable[[Any, Any], T], **absent: T) -> T:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        try:
            at = self._jvm.org.apache.hadoop.fs.Path(path)
            return work(at.getFileSystem(self._hadoop), at)
        except Py4JJavaError as error:
            cause = error.java_exception
            name = str(cause.getClass().getSimpleName())
            if name == "FileNotFoundException" and absent:
                return absent["absent"]
            raise StoreError(f"{path}: {name}: {reason(cause)}") from None


def reason(cause: Any) -> str:
    """The first line of a Java exception's message."""
    text = str(cause.getMessage() or "no reason given")
    return text.splitlines()[0][:300]
