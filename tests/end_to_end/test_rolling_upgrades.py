"""While a team upgrades: a client reads what a service or a schema of the next release says, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa
from support.catalog_samples import execute, publish
from support.catalog_server import PostgresServer
from support.services import TestServer, make_token

import registry
from registry.catalog import open_catalog, schema
from registry.catalog.service.calls import CALLS
from registry.catalog.service.messages import codec, record_schemas
from registry.catalog.session import open_engine
from registry.catalog.sql_catalog import SqlCatalog
from registry.cli.main import run
from registry.errors import CatalogError, SchemaAheadError, SchemaAheadWarning
from registry.server.service import Service

NEXT = f"{int(schema.HEAD) + 1:04}"
MIGRATION = (
    "CREATE TABLE of_the_next_release (id integer)",
    "ALTER TABLE dataset_version ADD COLUMN of_the_next_release text",
    f"UPDATE alembic_version SET version_num = '{NEXT}'",  # noqa: S608 (made above)
)
UNKNOWN = {"kind": "of_the_next_release", "values": [1, {"text": "x"}]}


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    started = TestServer()
    yield started
    started.stop()


@pytest.fixture
def behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: TestServer) -> Iterator[registry.Catalog]:
    """The catalog behind the service, of which the client is an admin."""
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    with registry.connect(tmp_path / "catalog.db", create=True) as opened:
        opened.add({"number": range(10)}, name="numbers", description="About numbers.")
        opened.add({"number": range(11)}, name="numbers")
        opened.aliases.set("paper", "numbers:1.0.0")
        opened.lifecycle.deprecate("numbers:1.0.0", reason="old")
        server.service.catalog = cast("SqlCatalog", opened.backend)
        monkeypatch.setenv("REGISTRY_TOKEN", make_token(opened.backend, "ann"))
        yield opened


def extended(value: Any, shape: Any) -> Any:
    """A JSON value with one more field in each object that is a value of the protocol; ``shape`` is its JSON Schema."""
    reference = shape.get("$ref", "").rpartition("/")[2]
    if reference and isinstance(value, dict):
        properties = record_schemas()[reference]["properties"]
        return {name: extended(part, properties[name]) for name, part in value.items()} | {"newer": UNKNOWN}
    for choice in shape.get("anyOf", ()):
        if ("$ref" in choice or choice.get("type") == "object") == isinstance(value, dict) and value is not None:
            value = extended(value, choice)
    if isinstance(value, list) and "prefixItems" in shape:
        return [extended(part, each) for part, each in zip(value, shape["prefixItems"], strict=True)]
    if isinstance(value, list) and "items" in shape:
        return [extended(part, shape["items"]) for part in value]
    if isinstance(value, dict) and isinstance(shape.get("additionalProperties"), dict):
        return {name: extended(part, shape["additionalProperties"]) for name, part in value.items()}
    return value


def change_answers(monkeypatch: pytest.MonkeyPatch, change: Callable[[str, Any], Any]) -> list[str]:
    """Let the service change its answers by ``change``, as one of another release; returns the calls that it made."""
    answer, calls = Service.answer, list[str]()

    def of_the_next_release(self: Service, who: Any, name: str, values: Any, **options: Any) -> Any:
        answered = answer(self, who, name, values, **options)
        calls.append(name)
        return replace(answered, body=json.dumps(change(name, json.loads(answered.body))).encode())

    monkeypatch.setattr(Service, "answer", of_the_next_release)
    return calls


def read_everything(url: str) -> list[Any]:
    with registry.connect(url) as catalog:
        dataset = catalog.dataset("numbers@paper")
        return [
            dataset.facts,
            [*map(repr, catalog.datasets())],
            [*map(repr, catalog.versions("numbers"))],
            [*map(repr, catalog.log())],
            [*map(repr, catalog.search("numbers"))],
            [*map(repr, catalog.aliases.list())],
            [*map(repr, catalog.aliases.history("numbers@paper"))],
            [*map(repr, catalog.lifecycle.configs("numbers"))],
            [*map(repr, catalog.tokens.list())],
            catalog.dataset("numbers", at="2999-01-01").facts,
            dataset.shards("train"),
            catalog.backend.locations.data_dir(),
        ]


def test_unknown_fields_of_a_newer_service_are_ignored(
    behind: registry.Catalog, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = read_everything(server.url)
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "0")
    seen: list[str] = []

    def extend(name: str, value: Any) -> Any:
        result = extended(value, codec(CALLS[name].answers).schema)
        seen.extend([name] * (result != value))
        return result

    calls = change_answers(monkeypatch, extend)
    assert read_everything(server.url) == expected
    assert len(set(seen)) > 8, (seen, calls)


def test_an_unknown_action_in_the_log_is_shown(
    behind: registry.Catalog, server: TestServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rename(name: str, value: Any) -> Any:
        if name == "log.page" and value:
            value[-1] |= {"action": "of-the-next-release", "details": UNKNOWN}
        return value

    change_answers(monkeypatch, rename)
    with registry.connect(server.url) as catalog:
        assert [event.action for event in catalog.log()][-1] == "of-the-next-release"
    assert run(["log", "--catalog", server.url]) == 0
    assert "of-the-next-release" in capsys.readouterr().out


def test_a_state_that_only_the_next_release_knows_is_an_error_that_says_what_to_do(
    behind: registry.Catalog, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def archive(name: str, value: Any) -> Any:
        return value | {"state": "archived"} if name == "find" else value

    change_answers(monkeypatch, archive)
    with registry.connect(server.url) as catalog:
        with pytest.raises(CatalogError) as caught:
            catalog.dataset("numbers")
        assert str(caught.value).startswith(
            f"the service at {server.url} answered find with what this release does not know: the answer.state must be "
        )
        assert caught.value.hint == "The service may be of a newer release: pip install --upgrade shardbook"
        assert len(catalog.datasets()) == 1  # all else goes on


def test_a_call_that_an_older_service_does_not_have_is_named(
    behind: registry.Catalog, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Service.answer

    def of_the_release_before(self: Service, who: Any, name: str, values: Any, **options: Any) -> Any:
        return answer(self, who, "unknown" if name == "producers" else name, values, **options)

    monkeypatch.setattr(Service, "answer", of_the_release_before)
    with registry.connect(server.url) as catalog, pytest.raises(CatalogError) as caught:
        catalog.backend.producers("numbers", None)
    assert str(caught.value) == (
        f"the service at {server.url} is of an older release than this one, and does not know producers"
    )


@pytest.fixture(params=["sqlite", "postgresql"])
def upgraded(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A catalog with animals:1.0.0 whose schema is one migration ahead of this release."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'catalog.db'}"
        open_catalog(url).close()
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.create_database(template="catalog_template")
    with open_catalog(url) as opened:
        publish(opened, "animals:1.0.0")
    for statement in MIGRATION:
        execute(url, statement)
    return url


def test_a_schema_of_the_next_release_is_read_and_not_changed(upgraded: str) -> None:
    with pytest.warns(SchemaAheadWarning, match=rf"has the schema {NEXT}, .*: it can be read, and not changed"):
        catalog = open_catalog(upgraded)
    with catalog:
        (summary,) = catalog.datasets()
        version = catalog.find(f"{summary.name}:1.0.0")
        assert catalog.shards.between(version, version.splits[0].name, 0, 1)
        for dry_run in (False, True):
            with pytest.raises(SchemaAheadError, match="made by a newer registry") as caught:
                catalog.lifecycle.yank(version.reference, reason="wrong", actor="ann", dry_run=dry_run)
            assert caught.value.hint == "Install a newer version: pip install --upgrade shardbook"
        with pytest.raises(SchemaAheadError):
            publish(catalog, "animals:2.0.0")
        with pytest.raises(SchemaAheadError):  # it does not know what the next release wrote
            list(catalog.backup())
        with pytest.raises(SchemaAheadError):
            catalog.log.verify()


def test_the_doctor_says_that_the_schema_is_only_read(upgraded: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["doctor", "--catalog", upgraded])
    line = next(line for line in capsys.readouterr().out.splitlines() if " catalog: " in line)
    assert line.startswith("warning")
    assert line.endswith(f"with schema {NEXT}, which this release ({schema.HEAD}) only reads")


def test_a_schema_two_releases_ahead_is_refused(upgraded: str) -> None:
    execute(upgraded, f"UPDATE alembic_version SET version_num = '{int(NEXT) + 1:04}'")  # noqa: S608 (as above)
    with pytest.raises(SchemaAheadError):
        open_catalog(upgraded)


def test_the_newest_migration_keeps_what_the_release_before_reads(tmp_path: Path) -> None:
    """Else that release, which reads a schema that is one ahead, would fail while machines are upgraded."""
    before, after = (columns_of(tmp_path / f"{revision}.db", revision) for revision in schema.REVISIONS[-2:])
    assert before.items() <= after.items()


def columns_of(path: Path, revision: str) -> dict[tuple[str, str], tuple[str, bool]]:
    """The type of each column of a schema, and whether it may be null, by table and name."""
    schema.upgrade(path, revision)
    engine = open_engine(path)
    try:
        inspector = sa.inspect(engine)
        return {
            (table, column["name"]): (str(column["type"]), bool(column["nullable"]))
            for table in inspector.get_table_names()
            for column in inspector.get_columns(table)
        }
    finally:
        engine.dispose()
