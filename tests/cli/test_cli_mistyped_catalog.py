"""A mistyped catalog: the message says what was looked for and where the value came from, and nothing is created."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import registry
from registry.errors import CatalogNotFoundError, UsageError

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)

READING = [
    ("alias", "list", "digits"),
    ("alias", "set", "digits:1.0.0", "paper"),
    ("config", "list", "digits"),
    ("config", "unprotect"),
    ("db", "check"),
    ("db", "downgrade", "base", "--yes"),
    ("db", "reindex"),
    ("diff", "digits:1.0.0", "digits:1.0.1"),
    ("drop", "digits:1.0.0", "--reason", "x"),
    ("experiment", "list"),
    ("export", "csv", "digits", "digits.csv"),
    ("list",),
    ("log",),
    ("log", "verify"),
    ("pin", "create", "digits", "train"),
    ("read", "digits", "train"),
    ("reservation", "list"),
    ("resolve", "digits", "train"),
    ("search", "digits"),
    ("show", "digits"),
    ("split", "check", "digits", "train", "test"),
    ("verify", "--all"),
    ("verify", "digits"),
    ("versions", "digits"),
    ("yank", "digits:1.0.0", "--reason", "x"),
]


def said(path: Path, reason: str, origin: str) -> str:
    return (
        f"error: no catalog at {path}: {reason}\n"
        f"hint: To create a catalog there: registry db upgrade --catalog sqlite:///{path}\n{origin}\n"
    )


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_a_command_that_publishes_nothing_creates_nothing(
    cli: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(workspace)
    ran = cli(*arguments)
    assert ran.code == 3
    assert ran.err == said(
        workspace / "catalog.db", "no such file", "This catalog is named by the environment variable REGISTRY_CATALOG."
    )
    assert list(workspace.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "rows.jsonl", "--dry-run"),
        ("build", "digits", "--dry-run"),
        ("config", "protect", "--dry-run"),
        ("experiment", "add", "flag", "--description", "A flag.", "--dry-run"),
    ],
    ids=" ".join,
)
def test_a_dry_run_needs_no_catalog_and_leaves_no_file_and_no_folder(
    cli: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(workspace)
    Path("rows.jsonl").write_text('{"a": 1}\n')
    ran = cli(*arguments)
    assert (ran.code, ran.err) == (0, "")
    assert [one.name for one in workspace.iterdir()] == ["rows.jsonl"]


def test_a_path_after_the_option(empty: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = empty("list", "--catalog", str(workspace / "no/such/catalog.db"))
    assert (ran.code, ran.err) == (
        3,
        said(
            workspace / "no/such/catalog.db",
            f"the folder {workspace / 'no'} does not exist",
            "This path was given by --catalog.",
        ),
    )
    monkeypatch.chdir(workspace)
    ran = empty("list", "--catalog", "catlog.db")
    assert ran.err == (
        f"error: no catalog at {workspace}/catlog.db: no such file\n"
        f"hint: Did you mean {workspace}/catalog.db? "
        "To create a catalog there: registry db upgrade --catalog sqlite:///catlog.db\n"
        "This path was given by --catalog.\n"
    )
    assert [one.name for one in workspace.iterdir()] == ["catalog.db"]


def test_the_default_catalog(cli: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGISTRY_CATALOG")
    monkeypatch.setenv("XDG_DATA_HOME", str(workspace))
    path = workspace / "shardbook/catalog.db"
    start = "Start with `registry quickstart`, or name another with --catalog or REGISTRY_CATALOG."
    ran = cli("list")
    assert (ran.code, ran.err) == (
        3,
        said(path, f"the folder {path.parent} does not exist", f"This is the default catalog. {start}"),
    )
    with pytest.raises(CatalogNotFoundError, match="no catalog at"):
        registry.load("digits", split="train")
    assert list(workspace.iterdir()) == []


def test_an_empty_file_stays_empty(cli: Cli, workspace: Path) -> None:
    (workspace / "catalog.db").touch()
    ran = cli("list")
    assert (ran.code, ran.err) == (
        8,
        f"error: sqlite:///{workspace}/catalog.db holds no catalog yet\n"
        f"hint: Make it one with: registry db upgrade --catalog sqlite:///{workspace}/catalog.db\n"
        "This catalog is named by the environment variable REGISTRY_CATALOG.\n",
    )
    assert [(one.name, one.stat().st_size) for one in workspace.iterdir()] == [("catalog.db", 0)]


@pytest.mark.parametrize(
    ("url", "message", "hint"),
    [
        (
            "postgres://localhost/x",
            "catalogs cannot be stored in a database 'postgres'",
            "Begin the URL with postgresql:// instead of postgres://.",
        ),
        ("sqlite:/x.db", "the catalog's URL lacks '//' after the colon", None),
        ("postgresql:localhost/x", "the catalog's URL lacks '//' after the colon", None),
        (
            "sqlite://x.db",
            "an SQLite URL has three slashes before a relative path, and four before an absolute one",
            None,
        ),
        (
            "sqlite://tmp/x.db",
            "an SQLite URL has three slashes before a relative path, and four before an absolute one",
            None,
        ),
    ],
)
def test_a_malformed_url(cli: Cli, monkeypatch: pytest.MonkeyPatch, url: str, message: str, hint: str | None) -> None:
    hint = hint or "Write sqlite:///catalog.db, the path of a file, or postgresql://user@host/database."
    ran = cli("list", "--catalog", url)
    assert (ran.code, ran.err) == (2, f"error: {message}\nhint: {hint}\n")
    monkeypatch.setenv("REGISTRY_CATALOG", url)
    ran = cli("list")
    assert ran.err == (
        f"error: {message}\nhint: {hint}\nThis catalog is named by the environment variable REGISTRY_CATALOG.\n"
    )


def test_a_server_that_the_variable_names(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_TRIES", "1")
    monkeypatch.setenv("REGISTRY_CATALOG", "postgresql://nobody@127.0.0.1:1/x")
    ran = cli("list")
    assert ran.code == 75
    assert ran.err.startswith("error: postgresql://nobody@127.0.0.1:1/x cannot be reached: ")
    assert ran.err.endswith("\nThis catalog is named by the environment variable REGISTRY_CATALOG.\n")


def test_a_reader_in_python_asks_for_an_existing_catalog(tmp_path: Path) -> None:
    with pytest.raises(CatalogNotFoundError) as caught:
        registry.connect(tmp_path / "catalog.db", create=False)
    assert caught.value.details == {"path": str(tmp_path / "catalog.db")}
    assert isinstance(caught.value, LookupError)
    assert list(tmp_path.iterdir()) == []
    registry.connect(tmp_path / "catalog.db").close()
    with registry.connect(tmp_path / "catalog.db", create=False) as catalog:
        assert catalog.datasets() == ()
    with pytest.raises(UsageError):
        registry.connect("", create=False)
