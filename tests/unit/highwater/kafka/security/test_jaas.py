"""JAAS entries."""

from __future__ import annotations

import pytest

from highwater.kafka.security.jaas import PLAIN, JaasError, parse_jaas


def test_an_entry_as_users_files_have_it() -> None:
    login = parse_jaas(
        f"""{PLAIN} required
            username="admin" password='adm=in;"secret"'
            user_admin="a\\"b" user_alice=bare serviceName="" ;"""
    )
    assert login.module == PLAIN
    assert login.options["username"] == "admin"
    assert login.options["password"] == 'adm=in;"secret"'
    assert login.users == {"admin": 'a"b', "alice": "bare"}
    assert "secret" not in repr(login)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a JAAS entry"),
        ("hunter2", "not a JAAS entry"),
        (f'{PLAIN} required password="hunter2"', "not a JAAS entry"),
        (f'{PLAIN} perhaps password="hunter2";', "not a JAAS entry"),
        (f'{PLAIN} required password="hunter2;', "a quotation that does not end"),
        (f'{PLAIN} required password "hunter2";', "an option without a value"),
        (f'{PLAIN} required password="hunter2"; B required;', "more than one JAAS entry"),
    ],
)
def test_what_is_none_is_told_without_its_text(text: str, words: str) -> None:
    with pytest.raises(JaasError) as caught:
        parse_jaas(text)
    assert words in str(caught.value)
    assert "; " in str(caught.value)
    assert "hunter2" not in str(caught.value)
