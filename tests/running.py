"""Tests as async functions whose first argument is what they run in, such as a simulated broker."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any

Body = Callable[..., Awaitable[None]]
Decorator = Callable[[Body], Callable[..., None]]


def running_in(run: Callable[..., Any]) -> Callable[..., Decorator]:
    """Makes a decorator: `run`, with the decorator's arguments, gives a test its first one."""

    def configured(**config: Any) -> Decorator:
        return lambda test: _runner(test, lambda _, body: run(body, **config), ())

    return configured


def run_by(fixture: str) -> Decorator:
    """A decorator: the fixture is a function that gives a test its first argument."""
    return lambda test: _runner(test, lambda given, body: given[fixture](body), (fixture,))


def _runner(
    test: Body, run: Callable[[dict[str, Any], Body], Any], fixtures: tuple[str, ...]
) -> Callable[..., None]:
    first, *others = inspect.signature(test).parameters.values()

    @wraps(test)
    def run_test(**given: Any) -> None:
        run(given, partial(test, **{p.name: given[p.name] for p in others}))

    asked = [first.replace(name=name) for name in fixtures]
    run_test.__signature__ = inspect.Signature([*asked, *others])  # type: ignore[attr-defined]
    return run_test
