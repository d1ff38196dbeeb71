"""`--add-scram`: what it takes, and that its errors name the thing and show no secret."""

from __future__ import annotations

import hashlib
from base64 import b64encode

import pytest
from scramp import ScramClient

from highwater.kafka.security.mechanisms import ScramExchange
from highwater.kafka.security.scram_arguments import ScramArgumentError, parse_all, parse_scram


def logs_in(text: str, user: str, mechanism: str, password: str) -> bool:
    """Whether a client with this password gets in."""
    made = parse_scram(text)
    assert (made.name, made.mechanism) == (user, mechanism)
    server = ScramExchange(mechanism, lambda name: made.credential if name == user else None)
    client = ScramClient([mechanism], user, password)
    client.set_server_first(server.step(client.get_client_first().encode()).decode())
    client.set_server_final(server.step(client.get_client_final().encode()).decode())
    return server.user == user


@pytest.mark.parametrize(
    ("text", "password"),
    [
        ("SCRAM-SHA-256=[name=alice,password=alice-s3cret]", "alice-s3cret"),
        ("SCRAM-SHA-512=[name=alice,iterations=8192,password=alice-s3cret]", "alice-s3cret"),
        ('SCRAM-SHA-512=[password="a,b=c" , name="alice"]', "a,b=c"),
        ("SCRAM-SHA-256=[name=alice,salt=MWx2NHBkbnc0bmlja2Vs,password=a=b]", "a=b"),
    ],
)
def test_the_user_logs_in(text: str, password: str) -> None:
    assert logs_in(text, "alice", text.partition("=")[0], password)


def test_a_salted_password_is_taken_as_it_is() -> None:
    given = parse_scram(
        "SCRAM-SHA-256=[name=a,salt=MWx2NHBkbnc0bmlja2Vs,password=s3cret]"
    ).credential
    salted = hashlib.pbkdf2_hmac("sha256", b"s3cret", given.salt, 4096)
    text = b64encode(salted).decode()
    again = f'SCRAM-SHA-256=[name=a,salt=MWx2NHBkbnc0bmlja2Vs,saltedpassword="{text}"]'
    assert parse_scram(again).credential == given


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s3cret", "it is not MECHANISM=[name=…,password=…], as SCRAM-SHA-256="),
        ("SCRAM-SHA-256=name=a,password=s3cret", "it is not MECHANISM="),
        ("SCRAM-SHA-1=[name=a,password=s3cret]", "no mechanism 'SCRAM-SHA-1'; there are SCRAM-"),
        ("SCRAM-SHA-256=[password=s3cret]", "it has no name"),
        ("SCRAM-SHA-256=[name=a]", "user 'a': give one of password and saltedpassword"),
        ("SCRAM-SHA-256=[name=a,password=]", "user 'a': the password is empty"),
        ("SCRAM-SHA-256=[name=a,password=s3cret,iterations=99]", "iterations '99': a number from"),
        ("SCRAM-SHA-256=[name=a,password=s3cret,sugar=1]", "no field 'sugar'; there are name, "),
        ("SCRAM-SHA-256=[name=a,password=x,password=s3cret]", "password is given twice"),
        ("SCRAM-SHA-256=[name=a,password=x,s3cret]", "after 2 of its fields comes no FIELD=VALUE"),
        ("SCRAM-SHA-256=[name=a,salt=s3cret!,password=x]", "user 'a': salt is not in base64"),
        ("SCRAM-SHA-256=[name=a,salt=eHg=,password=s3cret]", "the salt needs 12 bytes or more"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=czNjcmV0]", "saltedpassword needs the salt"),
    ],
)
def test_what_is_wrong_is_said_without_the_secret(text: str, said: str) -> None:
    with pytest.raises(ScramArgumentError) as error:
        parse_scram(text)
    assert said in str(error.value)
    assert "s3cret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_user_has_one_credential_of_a_mechanism() -> None:
    one, two = (f"SCRAM-SHA-{n}=[name=a,password=x]" for n in (256, 512))
    assert len(parse_all([one, two])) == 2
    with pytest.raises(ScramArgumentError, match="user 'a' has two credentials of SCRAM-SHA-256"):
        parse_all([one, two, one])
