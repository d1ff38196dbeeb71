"""Takes a log directory offline on an OSError from it, and stops the error there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from highwater.broker.log.log import Log


class Guard:
    """Encloses code that uses the directory `path`: an OSError takes it offline, and ends here."""

    def __init__(
        self,
        fail_dir: Callable[[str, OSError], None],
        path: str,
        log: Log | None = None,
    ) -> None:
        self._fail_dir = fail_dir
        self._path = path
        self._log = log

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if isinstance(error, BaseExceptionGroup):
            if error.split(OSError)[1] is not None:
                return False
            error = next(_leaves(error))
        if not isinstance(error, OSError):
            return False
        if self._log is None or not self._log.deleted:  # deleted meanwhile: its files are closed
            self._fail_dir(self._path, error)
        return True


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
