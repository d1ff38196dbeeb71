"""JAAS entries."""

from __future__ import annotations

import pytest

from highwater.kafka.security.jaas import DIGEST, PLAIN, JaasError, parse_jaas, parse_jaas_file


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


def test_a_file_as_java_reads_it() -> None:
    sections = parse_jaas_file(
        f"""
        // Client {{ of nobody }};
        KafkaServer {{ {PLAIN} required username="a" password="//;}}"; {DIGEST} optional; }};
        Client {{
          {DIGEST} required /* "by digest" */
          username="kafka" password="b";
        }}
        """
    )
    assert list(sections) == ["KafkaServer", "Client"]
    assert sections["KafkaServer"].module == PLAIN
    assert sections["KafkaServer"].options["password"] == "//;}"
    assert sections["Client"].options == {"username": "kafka", "password": "b"}
    assert parse_jaas_file("// nothing\n") == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hunter2", "not a JAAS file"),
        (f'{DIGEST} required password="hunter2";', "not a JAAS file"),
        ("Client { };", "not a JAAS entry"),
        (f'Client {{ {DIGEST} required password="hunter2" }};', "not a JAAS entry"),
        (f'Client {{ {DIGEST} required password="hunter2; }};', "not a JAAS file"),
    ],
)
def test_a_file_that_is_none_is_told_without_its_text(text: str, words: str) -> None:
    with pytest.raises(JaasError, match=words) as caught:
        parse_jaas_file(text)
    assert "hunter2" not in str(caught.value)
