"""JAAS entries as users' files have them: `Class required name="value" ... ;`.

A value is quoted, or a bare word; a backslash in quotes takes the next character as it is.  Errors
show no part of the text, as it holds passwords.

Source: org.apache.kafka.common.security.JaasConfig.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s="';]+)|([=;]))""", re.DOTALL
)
_QUOTED = r"\"(?:\\.|[^\"\\])*\""
_COMMENT = re.compile(rf"({_QUOTED})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_SECTION = re.compile(rf"\s*([^\s{{}}\";]+)\s*\{{((?:{_QUOTED}|[^\"{{}}])*)\}}\s*;?", re.DOTALL)
_FLAGS = ("required", "requisite", "sufficient", "optional")
_PACKAGE = "org.apache.kafka.common.security"
PLAIN = f"{_PACKAGE}.plain.PlainLoginModule"
SCRAM = f"{_PACKAGE}.scram.ScramLoginModule"
DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
"""Logs a broker in to ZooKeeper."""
OAUTH = f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule"
USER = "user_"
"""`user_alice="…"` gives PLAIN's user alice."""


class JaasError(ValueError):
    """A text that is no JAAS entry: "problem; remedy"."""


@dataclass(frozen=True, slots=True)
class Login:
    """One entry: a login module's class and its options."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """PLAIN's users and their passwords."""
        given = self.options.items()
        return {name.removeprefix(USER): text for name, text in given if name.startswith(USER)}


def parse_jaas(text: str) -> Login:
    """The one entry of a `sasl.jaas.config`; raises JaasError."""
    return _login(_tokens(text))


def _login(tokens: list[str]) -> Login:
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS or not _is(tokens[-1], ";"):
        raise JaasError('not a JAAS entry; write CLASS required username="…" password="…";')
    rest = tokens[2:-1]
    if any(_is(token, ";") for token in rest):
        raise JaasError("more than one JAAS entry; give one for each mechanism")
    if len(rest) % 3 or not all(_is(sign, "=") for sign in rest[1::3]):
        raise JaasError('an option without a value; write name="value"')
    return Login(tokens[0], dict(zip(rest[::3], rest[2::3], strict=True)))


def parse_jaas_file(text: str) -> dict[str, Login]:
    """Name -> the first entry of each section `NAME { CLASS required …; };` of a file; raises
    JaasError."""
    text = _COMMENT.sub(lambda match: match[1] or " ", text)
    sections = {}
    position = 0
    while text[position:].strip():
        match = _SECTION.match(text, position)
        if match is None:
            raise JaasError("not a JAAS file; write NAME { CLASS required …; };")
        position = match.end()
        tokens = _tokens(match[2])
        end = next((i for i, token in enumerate(tokens) if _is(token, ";")), len(tokens) - 1)
        sections[match[1]] = _login(tokens[: end + 1])
    return sections


class _Sign(str):
    """`=` or `;` that is no value."""


def _is(token: str, sign: str) -> bool:
    return isinstance(token, _Sign) and token == sign


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    text, position = text.strip(), 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError("a quotation that does not end; check the quotes")
        position = match.end()
        quoted = match[1] if match[1] is not None else match[2]
        if quoted is not None:
            tokens.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        else:
            tokens.append(match[3] if match[3] is not None else _Sign(match[4]))
    return tokens
