"""The principal of a certificate, by the mapping rules."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from highwater.kafka.security.principals import NoRule, PrincipalMapper, distinguished_name

NAME = "CN=kafka1,OU=Service Users,O=Example,C=DE"


@pytest.mark.parametrize(
    ("rules", "mapped"),
    [
        ("DEFAULT", NAME),
        ("RULE:^CN=(.*?),OU=.*$/$1/", "kafka1"),
        ("RULE:^CN=(.*?),OU=(.*?),O=.*$/$1@$2/U", "KAFKA1@SERVICE USERS"),
        ("RULE:^CN=(.*?),OU=(.*?),O=.*$/$1@$3/L", "kafka1@$3"),
        ("RULE:^CN=(.*?),OU=.*$/$12/", "kafka12"),
        ("RULE:^CN=other$/x/, RULE:^.*OU=Service Users,.*$/service/,DEFAULT", "service"),
        ("RULE:^CN=other$/x/,DEFAULT", NAME),
        (r"RULE:^CN=(.*?),OU=.*$/a\/$1/", "a/kafka1"),
    ],
)
def test_rules_are_tried_in_turn(rules: str, mapped: str) -> None:
    assert PrincipalMapper(rules).mapped(NAME) == mapped


def test_a_name_without_a_rule_is_refused() -> None:
    with pytest.raises(NoRule, match="CN=kafka1"):
        PrincipalMapper("RULE:^CN=other$/x/").mapped(NAME)


@pytest.mark.parametrize("rules", ["RULE:(/x/", "RULES:a/b/", "DEFAULT,RULE:a"])
def test_rules_that_cannot_be_read(rules: str) -> None:
    with pytest.raises(ValueError, match=r"; "):
        PrincipalMapper(rules)


def test_the_name_is_written_as_java_writes_it() -> None:
    """As X500Principal.getName() gave for a certificate made by keytool with this name."""
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Sm;ith, Inc"),
            x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b"),
            x509.NameAttribute(NameOID.COMMON_NAME, "kafka"),
        ]
    )
    assert distinguished_name(name) == (
        r"CN=kafka,1.2.840.113549.1.9.1=#1603614062,O=Sm\;ith\, Inc,C=DE"
    )
