"""A client's principal is the name in its certificate, mapped by `ssl.principal.mapping.rules`.

Source: org.apache.kafka.common.security.ssl.SslPrincipalMapper; the name as Java's
X500Principal.getName() writes it (RFC 2253).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from cryptography import x509
from cryptography.x509.oid import NameOID

_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_SPLIT = re.compile(r"\s*(DEFAULT|RULE:(?:\\.|[^\\/])*/(?:\\.|[^\\/])*/[LU]?|[^,]*?)\s*(?:,\s*|$)")
_KEYWORDS = {
    NameOID.COMMON_NAME,
    NameOID.COUNTRY_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.STREET_ADDRESS,
    NameOID.DOMAIN_COMPONENT,
    NameOID.USER_ID,
}
_BACK_REFERENCE = re.compile(r"\\(.)|\$(\d+)")


class NoRule(ConnectionAbortedError):
    """No rule is for this name: the connection is refused."""


class PrincipalMapper:
    """`text` is the property's value; raises ValueError ("problem; remedy")."""

    def __init__(self, text: str) -> None:
        self._rules: list[Callable[[str], str | None]] = []
        for rule in filter(None, (match[1] for match in _SPLIT.finditer(text.strip()))):
            found = _RULE.fullmatch(rule)
            if found is None:
                raise ValueError(f"{rule!r} is no rule; write DEFAULT or RULE:pattern/replacement/")
            if found[1]:
                self._rules.append(lambda name: name)
                continue
            try:
                pattern = re.compile(found[2])
            except re.error as exc:
                raise ValueError(f"{found[2]!r}: {exc}; correct the pattern") from exc
            self._rules.append(_rule(pattern, found[3], found[4]))

    def principal(self, certificate: bytes | None) -> str:
        """The principal of a certificate in DER; ANONYMOUS without one.  Raises NoRule."""
        if certificate is None:
            return "User:ANONYMOUS"
        name = distinguished_name(x509.load_der_x509_certificate(certificate).subject)
        return f"User:{self.mapped(name)}"

    def mapped(self, name: str) -> str:
        for rule in self._rules:
            found = rule(name)
            if found is not None:
                return found
        raise NoRule(f"no rule of ssl.principal.mapping.rules is for {name}")


def _rule(pattern: re.Pattern[str], replacement: str, case: str) -> Callable[[str], str | None]:
    def apply(name: str) -> str | None:
        match = pattern.fullmatch(name)
        if match is None:
            return None
        found = _BACK_REFERENCE.sub(lambda part: _part(part, match), replacement)
        return {"L": found.lower(), "U": found.upper()}.get(case, found)

    return apply


def _part(part: re.Match[str], match: re.Match[str]) -> str:
    """The text for `$1`, or for a character after a backslash, in the replacement."""
    if part[1] is not None:
        return part[1]
    number, rest = part[2], ""
    while int(number) > len(match.groups()) and len(number) > 1:
        number, rest = number[:-1], number[-1] + rest
    if int(number) > len(match.groups()):
        return part[0]
    return (match[int(number)] or "") + rest


def distinguished_name(name: x509.Name) -> str:
    """The last part first, as `CN=broker,OU=Kafka,O=Example`."""
    return ",".join("+".join(map(_attribute, rdn)) for rdn in reversed(name.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    if attribute.oid in _KEYWORDS:
        return attribute.rfc4514_string()
    value = attribute.value if isinstance(attribute.value, bytes) else attribute.value.encode()
    size = len(value)
    length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")
    tag = bytes([attribute._type.value])
    return f"{attribute.oid.dotted_string}=#{(tag + length + value).hex()}"
