"""Regular expressions that stand for topics in the consumer protocol, in RE2's syntax.

Apache Kafka reads them by RE2/J, whose time is linear in the text; Python's own `re` may take for
ever, and reads another language.  So they need the package google-re2, which is imported when the
first one comes.  Without it they are refused, with the remedy.

Source: Utils.throwIfRegularExpressionIsInvalid, GroupMetadataManager.refreshRegularExpressions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Final

from highwater.base.install_hint import install_hint
from highwater.kafka.errors import ApiError, ErrorCode

MAX_LENGTH: Final = 10_000
MAX_MEMORY_BYTES: Final = 1 << 20
"""RE2's bound on what an expression becomes."""
NAMES_A_TURN: Final = 1000
MayDescribe = Callable[[str], bool]


def check(regex: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION for an expression that cannot be used here."""
    compiled(regex)


def compiled(regex: str) -> Any:
    """The expression, compiled; raises ApiError."""
    try:
        re2: Any = import_module("re2")
    except ImportError:
        remedy = f"install google-re2 on the brokers: {install_hint('re2')}"
        raise _invalid(f"regular expressions are not available here; {remedy}") from None
    if len(regex) > MAX_LENGTH:
        raise _invalid(f"an expression of {len(regex)} characters, more than {MAX_LENGTH}")
    options = re2.Options()
    options.max_mem, options.log_errors = MAX_MEMORY_BYTES, False
    try:
        return re2.compile(regex, options)
    except re2.error as e:
        found = e.args[0] if e.args else e
        text = found.decode(errors="replace") if isinstance(found, bytes) else str(found)
        raise _invalid(f"SubscribedTopicRegex {regex!r} is no regular expression: {text}") from None


def _invalid(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, detail)


async def matches(
    regexes: Sequence[str],
    names: Iterable[str],
    may_describe: MayDescribe,
    pause: Callable[[], Awaitable[None]],
) -> dict[str, tuple[str, ...]]:
    """The topics that each expression matches as a whole, of those that may be described.

    It pauses after NAMES_A_TURN names.  An expression that cannot be used matches nothing.
    """
    patterns: dict[str, Any] = {}
    for regex in regexes:
        try:
            patterns[regex] = compiled(regex)
        except ApiError:
            continue
    found: dict[str, list[str]] = {regex: [] for regex in regexes}
    for number, name in enumerate(list(names), 1):
        if number % NAMES_A_TURN == 0:
            await pause()
        for regex, pattern in patterns.items():
            if pattern.fullmatch(name) and may_describe(name):
                found[regex].append(name)
    return {regex: tuple(sorted(topics)) for regex, topics in found.items()}
