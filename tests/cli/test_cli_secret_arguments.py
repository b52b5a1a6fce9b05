"""An argument that may contain a password is not repeated by any command that refuses it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


@pytest.mark.parametrize("form", ["human", "json"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["config", "data-dir", "s3://KEY:hunter2 hunter2@bucket/x"],
        ["add", "postgresql://ann:hunter2 x@h/y"],
        ["add", "ann:hunter2@h/x.csv"],
        ["list", "--catalog", "host=h", "password=hunter2"],
        ["show", "http://h/x?token=hunter2#hunter2"],
        ["read", "numbers", "token=hunter2"],
        ["pin", "show", "ann:hunter2 x@h"],
        ["pin", "create", "numbers", "ann:hunter2@h"],
        ["pin", "from-citation", "ann:hunter2 x@h"],
        ["mirror", "remove", "numbers", "ann:hunter2 x@h"],
        ["restore", "ann:hunter2 x@h"],
        ["backup", "http://ann:hunter2 x@h/b.gz"],
    ],
)
def test_a_password_in_an_argument_is_not_repeated(empty: Cli, arguments: list[str], form: str) -> None:
    ran = empty(*arguments, "--format", form)
    assert ran.code not in (0, 75)
    assert ran.err
    assert "hunter2" not in ran.out + ran.err
