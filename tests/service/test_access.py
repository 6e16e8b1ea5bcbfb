"""Tokens: what their file may say, and what each lets its holder do."""

from __future__ import annotations

import base64

import pytest
from service.tokens import digest, write_tokens

from specscope.errors import UsageError
from specscope.service import access as access_
from specscope.service.access import Access, Denied, read_tokens


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(access_, "LOOK_S", 0.0)
    return tmp_path / "tokens.toml"


def test_a_token_gives_the_rights_and_the_replicas_that_its_line_says(path):
    access = Access(write_tokens(path, red="a: publish", blue="read metrics"))

    grant = access.grant("publish", "Bearer red")

    assert grant.name == "red"
    assert grant.may_name("a-0")
    assert not grant.may_name("b-0")
    assert access.grant("read", "Bearer blue").may_name("b-0")


@pytest.mark.parametrize(
    ("right", "credentials", "known"),
    [
        ("read", ["Bearer red"], True),
        ("publish", [], False),
        ("publish", ["Bearer "], False),
        ("publish", ["red"], False),
        ("publish", ["bearer red"], False),
        ("publish", ["Bearer redd"], False),
        ("publish", ["Bearer red", "Bearer red"], False),
        ("publish", ["Basic !!!"], False),
        ("publish", ["Basic " + base64.b64encode(b"\xff:\xff").decode()], False),
        ("publish", [f"Bearer {digest('red')}"], False),
        ("publish", ["Bearer r\u00e9d"], False),
    ],
)
def test_who_has_no_token_or_not_the_right_is_denied(path, right, credentials, known):
    access = Access(write_tokens(path, red="a: publish"))

    with pytest.raises(Denied) as raised:
        access.grant(right, *credentials)

    assert raised.value.known is known


def test_a_client_of_clickhouse_may_give_the_token_as_its_password(path):
    access = Access(write_tokens(path, red="read"))

    for user in ("", "default", "x"):
        basic = base64.b64encode(f"{user}:red".encode()).decode()
        assert access.grant("read", f"Basic {basic}").name == "red"


def test_where_no_tokens_are_asked_for_anybody_may_write_and_read_and_nobody_may_apply():
    access = Access()

    assert access.grant("publish").may_name("any")
    assert access.grant("read", "Basic ZGVmYXVsdDo=").may_name("any")
    assert not access.takes_policies
    for right in ("apply", "metrics"):
        with pytest.raises(Denied):
            access.grant(right)


def test_tokens_are_taken_and_taken_away_without_a_restart(path):
    access = Access(write_tokens(path, red="publish"))
    before = access.grant("publish", "Bearer red")

    write_tokens(path, blue="publish")

    assert not access.holds(before)
    assert access.holds(access.grant("publish", "Bearer blue"))
    with pytest.raises(Denied):
        access.grant("publish", "Bearer red")


def test_a_new_token_in_the_same_line_takes_the_one_before_away(path):
    access = Access(write_tokens(path, red="a: publish"))
    before = access.grant("publish", "Bearer red")

    path.write_text(path.read_text().replace(digest("red"), digest("rotated")))

    assert not access.holds(before)
    assert access.holds(access.grant("publish", "Bearer rotated"))


def test_both_of_two_tokens_hold_while_one_replaces_the_other(path):
    access = Access(write_tokens(path, red="a: publish"))
    before = access.grant("publish", "Bearer red")

    write_tokens(path, red="a: publish", blue="a: publish")

    assert access.holds(before)
    assert access.grant("publish", "Bearer blue").prefixes == before.prefixes


@pytest.mark.parametrize("text", ["", "[[token]]", "\xff", None])
def test_a_file_that_went_wrong_is_said_and_the_tokens_before_still_hold(path, caplog, text):
    access = Access(write_tokens(path, red="publish"))
    path.unlink()
    if text is not None:
        path.write_text(text, "latin-1")

    assert access.grant("publish", "Bearer red").name == "red"
    assert len(caplog.records) == 1


TOKEN = f'[[token]]\nname = "n"\nsha256 = "{digest("n")}"\nrights = ["read"]\n'
TENANTS = '[tenant.a]\nreplicas = ["a-"]\n[tenant.b]\nreplicas = ["{}"]\n'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "token = 3",
        "[[token]]\nname = 'x'",
        TOKEN + TOKEN,
        TOKEN.replace(digest("n"), "short"),
        TOKEN.replace(digest("n"), digest("n").upper()),
        TOKEN.replace("read", "write"),
        TOKEN.replace('["read"]', "[]"),
        TOKEN + "tenant = 'nobody'",
        TOKEN + "tenants = 'a'",
        TOKEN + "scope = 'x'",
        TENANTS.format("a-b") + TOKEN,
        TENANTS.format("a-") + TOKEN,
        TENANTS.format("a") + TOKEN,
        TENANTS.format("") + TOKEN,
        TENANTS.format("b' OR 1") + TOKEN,
        TENANTS.format("b-").replace('["b-"]', "[]") + TOKEN,
        TENANTS.format("b-") + TOKEN.replace("read", "apply") + "tenant = 'a'",
    ],
)
def test_a_file_that_does_not_say_what_it_should_is_refused_in_one_line(path, text):
    path.write_text(text)

    with pytest.raises(UsageError) as raised:
        read_tokens(path)

    assert len(str(raised.value).splitlines()) == 1
    assert str(path) in str(raised.value)


def test_a_missing_file_stops_the_start(path):
    with pytest.raises(UsageError):
        Access(path)
