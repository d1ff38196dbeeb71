"""Runs seeds on worker processes.

The seeds are run in turns, each turn by new processes, so that a long run gives back the memory
that seeds leave behind.  A worker that dies (killed for lack of memory, or in a crash of the
interpreter) ends the run at once with an error: `multiprocessing.Pool` would start another one, and
wait for the lost seed for ever.  An exception of a seed ends the run as well, and names the seed.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from highwater.simulation.seed_outcome import Outcome

T = TypeVar("T")
SEEDS_A_TURN = 200
"""How many seeds a process runs in one turn."""


class WorkerDied(Exception):
    """A worker process ended in the middle of a seed."""

    def __init__(self, seeds: Sequence[object]) -> None:
        super().__init__(
            f"a process that ran one of the seeds {', '.join(map(str, seeds))} died: the system "
            "may have killed it for want of memory (try fewer --jobs); with --log FILE the same "
            "command goes on after the seeds that have ended"
        )


def in_processes(
    work: Callable[[int], Outcome],
    seeds: Iterable[int],
    jobs: int,
    prepare: Callable[[], None] | None = None,
) -> Iterator[Outcome]:
    """Yields the outcomes: in order with one process, in the order of their ends with more.
    `prepare` runs first in each process.  Raises WorkerDied, and whatever `work` raises, with a
    note that names the seed."""
    left = iter(seeds)
    while turn := list(islice(left, SEEDS_A_TURN * jobs)):
        with _executor(jobs, prepare) as executor:
            futures = {executor.submit(work, seed): seed for seed in turn}
            for future in futures if jobs == 1 else as_completed(futures):
                yield _outcome(future, futures, jobs)


def in_generations(
    work: Callable[[T], Outcome],
    choose: Callable[[], list[T]],
    jobs: int,
    prepare: Callable[[], None] | None = None,
) -> Generator[list[tuple[T, Outcome]]]:
    """Yields the outcomes of each generation that `choose` returns, in its order, until it returns
    nothing.  It is called when the outcomes before have been taken.  Otherwise as `in_processes`.
    """
    while chosen := choose():
        with _executor(jobs, prepare) as executor:
            done = 0
            while chosen:
                futures = {executor.submit(work, one): one for one in chosen}
                yield [(one, _outcome(future, futures, jobs)) for future, one in futures.items()]
                done += len(chosen)
                if done >= SEEDS_A_TURN * jobs:
                    break
                chosen = choose()


def _outcome(future: Future[Outcome], futures: Mapping[Future[Outcome], T], jobs: int) -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool:
        unended = [seed for each, seed in futures.items() if each.exception() is not None]
        raise WorkerDied(unended[: jobs + 1]) from None
    except BaseException as error:
        error.add_note(f"seed {futures[future]} ended with this, an error of the simulation itself")
        raise


@contextmanager
def _executor(jobs: int, prepare: Callable[[], None] | None) -> Iterator[ProcessPoolExecutor]:
    """The executor of one turn; a caller that ends early does not wait for seeds in progress."""
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(jobs, context, prepare)
    try:
        yield executor
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    executor.shutdown()
