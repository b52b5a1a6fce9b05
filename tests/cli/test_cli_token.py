"""``registry token``: the text of a token is printed once, and nothing else is on stdout."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import registry
from registry.errors import UsageError, WrongTypeError
from registry.model import Role, digest_of

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_a_token_is_created_listed_and_revoked(empty: Cli) -> None:
    made = empty("token", "create", "ann")
    text = made.out.rstrip("\n")
    assert digest_of(text)
    token_id = text[4:16]
    assert made.err == f"created the token {token_id} for ann: reader of *. Its text is printed only once:\n"

    with registry.connect() as catalog:
        (token,) = catalog.tokens.list()
        assert catalog.backend.access.authenticate(digest_of(text)) == token
    head, row = empty("token", "list").out.splitlines()
    assert head.split("  ")[0] == "ID"
    assert re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "<time>", row).split() == [
        *(token_id, "ann", "reader", "*", "valid", "<time>"),
        *(token.created_by, "<time>"),
    ]

    dry = empty("token", "revoke", token_id, "--dry-run")
    assert dry.out == f"would revoke {token_id} of ann\n"
    assert empty("token", "revoke", token_id).out == f"revoked {token_id} of ann\n"
    assert "  revoked by " in empty("token", "list").out
    missing = empty("token", "revoke", "ann")
    assert (missing.code, missing.err) == (
        3,
        f"error: no token 'ann'\nhint: ann has the tokens {token_id}: name one of these ids.\n",
    )


def test_programs_get_the_text_and_what_the_token_covers(empty: Cli) -> None:
    options = ["--role", "publisher", "--dataset", "lab_*", "--dataset", "c4/en", "--expires", "90d"]
    made: dict[str, Any] = empty("token", "create", "ci", *options, "--format", "json").json()
    assert made["schema"] == "registry.token.create/1"
    data = made["data"]
    assert digest_of(data["text"])
    assert (data["id"], data["dry_run"]) == (data["text"][4:16], False)
    (listed,) = empty("token", "list", "--format", "json").json()["data"]
    assert "text" not in listed
    assert (listed["name"], listed["role"], listed["datasets"]) == ("ci", "publisher", ["lab_*", "c4/en"])
    assert (listed["is_valid"], listed["revoked_by"]) == (True, None)
    assert "  valid until 20" in empty("token", "list").out


def test_in_python_the_text_is_not_in_the_repr(empty: Cli) -> None:
    with registry.connect() as catalog:
        made = catalog.tokens.create("ann", role="admin", datasets=["mnist"], expires="1d")
        assert made.token.role is Role.ADMIN
        assert made.text not in repr(made)
        with pytest.raises(
            UsageError, match=r"^no role 'owner'\nhint: There are: reader, publisher, maintainer, admin\.$"
        ):
            catalog.tokens.create("ann", role="owner")
        with pytest.raises(WrongTypeError):
            catalog.tokens.create("ann", datasets="mnist")


def test_refused_calls_are_listed(empty: Cli) -> None:
    assert empty("token", "refusals").err == "No call was refused.\n"
    with registry.connect() as catalog:
        for number in range(3):
            refusal = {"call": "lifecycle.yank", "dataset": "digits", "reason": f"reason {number}\n\x1b[31m"}
            catalog.backend.access.note_refusal(token=None, principal="(ci)", **refusal)
    head, *rows = empty("token", "refusals", "--limit", "2").out.splitlines()
    assert head.split() == ["AT", "(UTC)", "WHO", "TOKEN", "CALL", "DATASET", "REASON"]
    assert [re.sub(r" +", " ", row[16:]) for row in rows] == [
        f" (ci) lifecycle.yank digits reason {number} \N{REPLACEMENT CHARACTER}[31m" for number in (2, 1)
    ]
    data = empty("token", "refusals", "--format", "json").json()["data"]
    reasons = [f"reason {number}\n\N{REPLACEMENT CHARACTER}[31m" for number in (2, 1, 0)]
    assert [row["reason"] for row in data] == reasons
    assert empty("token", "refusals", "--limit", "0").code == 2
