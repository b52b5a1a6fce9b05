"""No text that names a catalog gets its password into a message, an output or a file name, however it is mistyped."""

from __future__ import annotations

import io
import json
import os
import re
import tempfile
import traceback
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.levels import cases

import registry
from registry.api import catalog_url
from registry.catalog import masked_url, open_catalog, schema, sqlite_path
from registry.cli.main import run
from registry.errors import RegistryError, UsageError

SCHEMES = ["postgresql://", "postgresql+psycopg://", "POSTGRESQL://", "postgres://", "postgresql:/", "postgresql:"]
SCHEMES += ["postgresql//", "mysql://", "jdbc:postgresql://", "sqlite://", "sqlite:///", "sqlite:", "://", "//", ""]
USERS = ["ann:{}@127.0.0.1:1/x", ":{}@127.0.0.1:1/x", "ann:{}@", "ann:{}@127.0.0.1:1", "ann:{}@[::1]:1/x"]
USERS += ["ann:{}@127.0.0.1:1/x?sslmode=disable", "ann:{}@/x?host=/nowhere", "ann:{}@127.0.0.1:1,127.0.0.1:2/x"]
NAMES = ["password", "PASSWORD", "pass%77ord", "sslpassword", "token", "key", "secret", "sig", "X-Amz-Signature"]
NAMES += ["AWS_SECRET_ACCESS_KEY", "oauth_client_secret", "scram_client_key", "pwd", "sslmode=x;password"]
OPTIONS = [f"ann@127.0.0.1:1/x{mark}{name}={{}}" for mark in ("?", "?sslmode=disable&", "#", ";") for name in NAMES]
DSNS = ["host=127.0.0.1 port=1 user=ann password={} dbname=x", "password='{}' host=127.0.0.1", "PASSWORD = {} port=1"]
DSNS += ["user=ann,password={}", "Server=h;User Id=ann;Pwd={};", "dbname=postgresql://ann:{}@127.0.0.1/x", "passwd={}"]
ALL_FORMS = [scheme + rest for scheme in SCHEMES for rest in (*USERS, *OPTIONS)] + DSNS
FORMS = ALL_FORMS[:: int(os.environ.get("REGISTRY_EVERY_FORM", "12"))]
"""Every twelfth form: all of them (``REGISTRY_EVERY_FORM=1``) take longer than the rest of the long level."""

HALVES = ("hunter2first", "second7dog")


@st.composite
def passwords(draw: st.DrawFn) -> str:
    """Two halves that a message can be searched for, with what should have been escaped around them."""
    special = st.text(st.sampled_from("@:/?#%&;=+ '\"[],\\ä"), max_size=3)
    escaped = st.sampled_from(["", "%40", "%3A", "%2F", "%3f", "%25", "%"])
    return draw(special) + HALVES[0] + draw(special) + draw(escaped) + HALVES[1]


def shown(text: str) -> str:
    return "; ".join(half for half in HALVES if half in text)


def everything_of(error: BaseException) -> str:
    """What a caller may see of an error: its fields, and those of the errors behind it."""
    parts = traceback.format_exception(error)
    while error is not None:
        parts += [str(error), repr(error), json.dumps(getattr(error, "details", None)), str(getattr(error, "hint", ""))]
        error = error.__cause__  # type: ignore[assignment]  # None ends the loop
    return "".join(parts)


@pytest.mark.parametrize("form", cases(FORMS, everyday=len(FORMS) // 10))
def test_no_message_about_a_catalog_contains_its_password(form: str) -> None:
    calls: list[Callable[[str], object]] = [masked_url, sqlite_path, open_catalog, schema.status, schema.upgrade]
    calls += [registry.connect, lambda url: repr(registry.connect(url, create=False))]

    @given(passwords())
    def check(password: str) -> None:
        url = form.format(password)
        with tempfile.TemporaryDirectory() as folder, chdir(folder), pytest.MonkeyPatch.context() as patch:
            patch.setenv("REGISTRY_TRIES", "1")
            for call in calls:
                try:
                    said = str(call(url))
                except RegistryError as error:
                    said = everything_of(error)
                if call is sqlite_path and said != "None":
                    continue  # a path is what it is
                assert not shown(said), (url, said)
            assert os.listdir(folder) == [], url  # noqa: PTH208 (names suffice)

    check()


@pytest.mark.parametrize(
    "option",
    [
        "user=ann:hunter2first",
        "user=ann:%40hunter2first",
        "options=-c%20app.password%3Dhunter2first",
        "options=-capp.password%3Dhunter2first+-c+search_path%3Dx",
        "options=--app.api-key%3Dhunter2first",
        "options=-c%20app.token%3Dx%5C%20hunter2first",  # a space that libpq's escape keeps in the value
    ],
)
def test_a_password_in_the_value_of_an_option_is_not_shown(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_TRIES", "1")
    with pytest.raises(RegistryError) as caught:
        open_catalog(f"postgresql://127.0.0.1:1/x?{option}")
    assert not shown(everything_of(caught.value))


def test_options_without_a_password_and_a_user_with_an_escaped_colon_are_shown() -> None:
    url = "postgresql://127.0.0.1:1/x?options=-c%20statement_timeout%3D1000&user=team%3Aann"
    assert masked_url(masked_url(url)) == masked_url(url)
    assert "statement_timeout" in masked_url(url)
    assert "team%3Aann" in masked_url(url)


@pytest.mark.parametrize("form", cases(FORMS, everyday=6))
@pytest.mark.parametrize("given_by", ["--catalog", "REGISTRY_CATALOG", "--to"])
def test_no_command_prints_the_password_of_a_catalog(form: str, given_by: str) -> None:
    commands = [
        ["list"],
        ["db", "status"],
        ["db", "upgrade"],
        ["build", "digits"],
        ["backup", "b.gz"],
        ["restore", "b.gz"],
    ]
    commands += [["log"], ["pin", "create", "digits", "train"], ["du"], ["quickstart"]]

    @given(passwords(), st.sampled_from(commands), st.sampled_from(["human", "json"]), st.booleans())
    def check(password: str, command: list[str], output: str, debug: bool) -> None:
        url = form.format(password)
        with tempfile.TemporaryDirectory() as folder, chdir(folder), pytest.MonkeyPatch.context() as patch:
            patch.setenv("REGISTRY_TRIES", "1")
            patch.setenv("REGISTRY_DEBUG", "1" if debug else "")
            patch.setenv("REGISTRY_DATA_DIR", str(Path(folder, "data")))
            Path("b.gz").touch()
            arguments = [*command, "--format", output]
            if given_by == "--catalog":
                arguments += [given_by, url]
            elif given_by == "--to":
                arguments = ["copy", "--all", given_by, url, "--catalog", "source.db"]
                open_catalog("source.db").close()
            else:
                patch.setenv(given_by, url)
            with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
                code = run(arguments)
            assert not shown(out.getvalue() + err.getvalue()), (url, arguments, err.getvalue())
            assert code in (1, 2, 5, 75), (url, arguments, err.getvalue())
            assert not [name for name in os.listdir(folder) if shown(name)], url  # noqa: PTH208 (names suffice)

    check()


@given(
    st.sampled_from(["s3://KEY:{}@bucket/x", "gs://KEY:{}@bucket", "az://KEY:{}@c/x", "s3://bucket/x?token={}"]),
    passwords(),
)
def test_no_message_about_a_data_directory_contains_its_password(form: str, password: str) -> None:
    url = form.format(re.sub(r"[\s&#;]", "", password))
    for command in (["list"], ["db", "status"], ["quickstart"]):
        with tempfile.TemporaryDirectory() as folder, chdir(folder), pytest.MonkeyPatch.context() as patch:
            patch.setenv("REGISTRY_DATA_DIR", url)
            patch.setenv("REGISTRY_CATALOG", f"{folder}/catalog.db")
            with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
                run(command)
            assert not shown(out.getvalue() + err.getvalue()), (url, err.getvalue())


@given(
    user=st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=8),
    password=st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=6, max_size=20),
)
def test_an_escaped_password_is_understood_whatever_it_contains(user: str, password: str) -> None:
    from urllib.parse import quote

    from registry.catalog.urls import parse_url

    url = parse_url(f"postgresql://{quote(user, safe='')}:{quote(password, safe='')}@host:5433/x?sslmode=require")
    assert (url.username, url.password, url.host, url.port, url.database) == (user, password, "host", 5433, "x")
    assert url.query == {"sslmode": "require"}


@pytest.mark.parametrize(
    "path",
    [
        "catalog.db",
        "/data/host=3/catalog.db",
        "./user=ann.db",
        "a catalog, 100%.db",
        "/home/ann@work/x.db",
        "../12:30.db",
    ],
)
def test_a_path_stays_a_path(path: str) -> None:
    assert sqlite_path(path) == sqlite_path(f"sqlite:///{path.replace('%', '%25')}") == Path(catalog_url(path))


def test_the_options_of_a_url_are_those_of_libpq() -> None:
    from psycopg.pq import Conninfo

    from registry.catalog.urls import OPTIONS

    # "replication" makes a connection that streams the server's log.
    assert {option.keyword.decode() for option in Conninfo.get_defaults()} - {"replication"} == OPTIONS


def _foreign_options() -> list[str]:
    """Parameters of the drivers' connect functions that are no options of a URL, by introspection."""
    import inspect
    import sqlite3

    import psycopg

    names = set(inspect.signature(psycopg.Connection.connect).parameters) - {"kwargs"} | {"replication", "client"}
    names |= {"timeout", "detect_types", "isolation_level", "check_same_thread", "factory", "cached_statements", "uri"}
    assert sqlite3.connect
    return sorted(names | {"mode", "immutable", "cache", "nosuch"})


@pytest.mark.parametrize("scheme", ["postgresql://ann:hunter2first@127.0.0.1:1/x", "sqlite:///x.db"])
@pytest.mark.parametrize("name", _foreign_options())
def test_an_option_of_a_driver_is_refused_by_its_name(scheme: str, name: str) -> None:
    for value in ("0", "x", "", "None"):
        with pytest.raises(UsageError, match=name) as caught:
            open_catalog(f"{scheme}?{name}={value}")
        assert not shown(everything_of(caught.value))


@pytest.mark.parametrize("value", ["abc", "-1", "", "1e9", "99999999999999999999", "%00"])
def test_each_option_with_any_value_gives_an_error_of_the_registry(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from registry.catalog.urls import OPTIONS

    monkeypatch.setenv("REGISTRY_TRIES", "1")
    monkeypatch.setenv("REGISTRY_CONNECT_TIMEOUT", "1")
    for name in sorted(OPTIONS - {"host", "hostaddr"}):
        with pytest.raises(RegistryError):
            open_catalog(f"postgresql://ann@127.0.0.1:1/x?{name}={value}")
