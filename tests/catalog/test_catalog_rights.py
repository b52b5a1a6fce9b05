"""Rights on a PostgreSQL catalog: ``registry db grant`` gives them, and commands that publish check them first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.catalog_server import PostgresServer
from support.prepared_samples import animals, prepare

import registry
from registry import DatasetBuilder
from registry.catalog import CatalogBackend, open_catalog, rights, schema
from registry.catalog.session import open_engine, reading
from registry.catalog.tables import whole_metadata
from registry.catalog.urls import parse_url
from registry.cli.main import run
from registry.errors import CatalogPermissionError, NotFoundError, RegistryError, UsageError
from registry.features import FeaturesDict
from registry.model import Role

ROLES = {"reader": "r'e\"ader", "publisher": "Pub lisher", "curator": "curator;--5%s%%", "admin": "an_admin"}
"""Names that a server accepts, and that must be quoted."""


class Owned(NamedTuple):
    """A catalog of the role ``owner``, in which one role has each level."""

    server: PostgresServer
    database: str

    def url(self, role: str) -> str:
        from urllib.parse import quote

        return self.server.url(self.database, quote(role, safe=""))

    def execute(self, role: str, statement: str) -> None:
        with psycopg.connect(self.url(role), autocommit=True) as connection:
            connection.execute(statement)


@pytest.fixture(scope="module")
def owned(postgres_server: PostgresServer) -> Iterator[Owned]:
    made = Owned(postgres_server, "of_owner")
    for role in ("owner", "nobody_yet", *ROLES.values()):
        postgres_server.execute(f"CREATE ROLE {quoted(role)} LOGIN")
    postgres_server.execute("CREATE DATABASE of_owner OWNER owner")
    postgres_server.execute("REVOKE ALL ON DATABASE of_owner FROM PUBLIC")
    schema.upgrade(made.url("owner"))
    for level, role in ROLES.items():
        user = "postgres" if level == "admin" else "owner"
        assert run(["db", "grant", role, "--as", level, "--catalog", made.url(user)]) == 0
    yield made
    postgres_server.execute("DROP DATABASE of_owner WITH (FORCE)")
    postgres_server.execute(f"DROP ROLE owner, nobody_yet, {', '.join(map(quoted, ROLES.values()))}")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Slow(DatasetBuilder):
    """Its records must not be made for somebody who may not publish them."""

    VERSION = "1.0.0"
    calls = 0

    def features(self) -> FeaturesDict:
        return FeaturesDict({"day": "int64"})

    def splits(self) -> dict[str, Any]:
        return {"train": self.examples()}

    def examples(self) -> Iterator[tuple[int, dict[str, int]]]:
        type(self).calls += 1
        yield from ((day, {"day": day}) for day in range(3))


def refused(action: Callable[[], object]) -> RegistryError:
    with pytest.raises(RegistryError) as caught:
        action()
    return caught.value


def test_a_grant_says_what_it_does_and_can_be_repeated(owned: Owned, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["db", "grant", "an_admin", "--as", "publisher", "--catalog", owned.url("owner")]
    assert run([*command, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        'GRANT CONNECT ON DATABASE "of_owner" TO "an_admin";',
        'GRANT USAGE ON SCHEMA "public" TO "an_admin";',
        'GRANT SELECT ON ALL TABLES IN SCHEMA "public" TO "an_admin";',
        'ALTER DEFAULT PRIVILEGES FOR ROLE "owner" IN SCHEMA "public" GRANT SELECT ON TABLES TO "an_admin";',
    ]
    assert run([*command, "--dry-run", "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)["data"]
    assert result["statements"] == [line.rstrip(";") for line in lines]
    assert (result["role"], result["as"], result["dry_run"]) == ("an_admin", "publisher", True)
    for _ in range(2):
        assert run(["db", "grant", ROLES["reader"], "--as", "reader", "--catalog", owned.url("owner")]) == 0
        assert capsys.readouterr().out == f"{ROLES['reader']} now has the rights of a reader\n"


def test_a_dry_run_gives_no_right(owned: Owned) -> None:
    schema.grant_rights(owned.url("owner"), "nobody_yet", "publisher", dry_run=True)
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        owned.execute("nobody_yet", "SELECT 1")


def test_an_unknown_role_is_named_with_the_nearest(owned: Owned) -> None:
    error = refused(lambda: schema.grant_rights(owned.url("owner"), "an_admim", "reader"))
    assert type(error) is NotFoundError
    assert error.message.startswith("no role 'an_admim' in postgresql://owner@/of_owner")
    assert (error.hint or "").startswith("Did you mean 'an_admin'? There are: ")
    assert (error.hint or "").endswith("To create one, run as a superuser: CREATE ROLE name LOGIN")
    assert refused(lambda: schema.grant_rights(owned.url("owner"), "public", "reader")).code == "not_found"


@pytest.mark.parametrize("level", ["reader", "publisher", "curator"])
def test_who_does_not_own_the_tables_grants_nothing(owned: Owned, level: str) -> None:
    error = refused(lambda: schema.grant_rights(owned.url(ROLES[level]), "nobody_yet", "reader"))
    assert type(error) is CatalogPermissionError
    assert error.code == "catalog_permission_denied"
    assert error.exit_code == 1


def test_sqlite_has_no_roles(tmp_path: Path) -> None:
    schema.upgrade(tmp_path / "catalog.db")
    error = refused(lambda: schema.grant_rights(tmp_path / "catalog.db", "ann", "reader"))
    assert type(error) is UsageError
    assert error.message == (
        f"sqlite:///{tmp_path}/catalog.db is an SQLite file, which has no roles: the permissions of the file and its "
        "folder decide"
    )
    assert error.hint == (
        "Let a group write: chgrp GROUP on the file and its folder, then chmod g+w. "
        "For roles, use a PostgreSQL catalog."
    )


@given(name=st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), min_size=1, max_size=15))
def test_no_name_of_a_role_leaves_its_quotes(name: str) -> None:
    # A name is found in pg_roles before it is used, so it is enough that its quotes cannot be left.
    text = rights.quote_name(name)
    assert text[0] == text[-1] == '"'
    assert text[1:-1].replace('""', "") == name.replace('"', "")


def test_every_table_has_a_decision() -> None:
    """A table of a later migration is written by some level, or is listed here: only the owner writes it."""
    written = {right.table for of_level in rights.WRITES.values() for right in of_level}
    assert {table.name for table in whole_metadata().sorted_tables} == written | {"corrected_time"}


STATEMENTS = {
    "UPDATE dataset_version SET location = 'elsewhere'": "admin",
    "UPDATE dataset_version SET state = state WHERE false": "curator",
    "UPDATE dataset_version SET metadata_json = metadata_json WHERE false": "curator",
    "UPDATE builder SET name = name WHERE false": "curator",
    "UPDATE builder SET has_configs = has_configs WHERE false": "admin",
    "INSERT INTO dataset_name SELECT * FROM dataset_name WHERE false": "curator",
    "UPDATE dataset_name SET position = position WHERE false": "admin",
    "UPDATE builder_config SET is_default = is_default WHERE false": "publisher",
    "UPDATE builder_config SET name = name WHERE false": "admin",
    "UPDATE shard SET sha256 = repeat('0', 64) WHERE false": "admin",
    "DELETE FROM event WHERE false": "admin",
    "UPDATE event SET actor = actor WHERE false": "admin",
    "UPDATE version_ledger SET used_by = 'eve' WHERE false": "admin",
    "DELETE FROM dataset_version WHERE false": "admin",
    "DELETE FROM alias WHERE false": "curator",
    "DELETE FROM reservation WHERE false": "publisher",
    "INSERT INTO access_token SELECT * FROM access_token WHERE false": "curator",
    "UPDATE access_token SET revoked_by = 'eve' WHERE false": "curator",
    "UPDATE access_token SET role = 'admin' WHERE false": "admin",
    "DELETE FROM access_token WHERE false": "curator",  # expired ones of CI jobs
    "DELETE FROM refusal WHERE false": "curator",
    "DELETE FROM kept_answer WHERE false": "curator",
    "DELETE FROM webhook WHERE false": "curator",
    "SELECT count(*) FROM event": "reader",
    "SELECT * FROM alembic_version": "reader",
    "UPDATE alembic_version SET version_num = version_num WHERE false": "admin",
    "CREATE TABLE mine (id int); DROP TABLE mine": "admin",
}


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("level", ROLES)
def test_each_level_may_run_what_it_needs_and_no_more(owned: Owned, level: str, statement: str) -> None:
    levels = list(ROLES)
    if levels.index(level) >= levels.index(STATEMENTS[statement]):
        owned.execute(ROLES[level], statement)
    else:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            owned.execute(ROLES[level], statement)


def _no_rows() -> Iterator[dict[str, int]]:
    raise AssertionError("rows are read")
    yield {}


def _copy(catalog: registry.Catalog, folder: Path) -> None:
    with registry.connect(folder.parent / "other.db") as other:
        other.publish(folder)
        other.copy("animals", catalog).require_all()


WAYS: dict[str, Callable[[registry.Catalog, Path], object]] = {
    "build": lambda catalog, _: catalog.build(Slow),
    "add": lambda catalog, _: catalog.add(iter(_no_rows()), "prices"),
    "publish": lambda catalog, folder: catalog.publish(folder),
    "import": lambda catalog, folder: catalog.import_tfds(folder),
    "import with a copy": lambda catalog, folder: catalog.import_tfds(folder, copy=True),
    "copy": _copy,
}


@pytest.mark.parametrize("way", WAYS)
def test_who_may_not_publish_learns_it_before_the_work(
    owned: Owned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    folder = prepare(tmp_path / "animals", splits={"train": animals(5)})
    before = Slow.calls
    with registry.connect(owned.url(ROLES["reader"]), data_dir=tmp_path / "data") as catalog:
        if way != "copy":
            monkeypatch.setattr(
                "registry.publishing.publish.verify_shards", lambda *_, **__: pytest.fail("shards are read")
            )
        error = refused(lambda: WAYS[way](catalog, folder))
    assert type(error) is CatalogPermissionError
    assert ": the role 'r\\'e\"ader' may not publish: it lacks " in error.message
    assert error.message.endswith(
        "it lacks INSERT on builder, INSERT on builder_config, INSERT on dataset_version and 16 more"
    )
    assert error.hint == (
        "The owner of the database can grant these rights with: registry db grant 'r'\"'\"'e\"ader' --as publisher"
    )
    assert error.details["role"] == ROLES["reader"]
    assert Slow.calls == before
    assert not (tmp_path / "data").exists()


def test_a_read_only_server_is_named_before_the_work(owned: Owned, tmp_path: Path) -> None:
    url = owned.url("owner") + "&options=-c%20default_transaction_read_only%3Don"
    before = Slow.calls
    with registry.connect(url, data_dir=tmp_path) as catalog:
        error = refused(lambda: catalog.build(Slow))
    assert type(error) is CatalogPermissionError
    assert error.message.endswith(" is read-only: its transactions are read-only")
    assert error.hint == "Name the primary server in the URL, or switch default_transaction_read_only off."
    assert Slow.calls == before


def test_tables_of_later_migrations_are_granted_with_them(
    owned: Owned, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = owned.url("owner")
    schema.downgrade(url, "0006")
    assert run(["db", "upgrade", "--catalog", url]) == 0
    notes = capsys.readouterr().err.splitlines()
    assert f"note: {ROLES['curator']} was given the rights of a curator on new tables" in notes
    for level in ("reader", "publisher", "curator"):
        assert schema.check(owned.url(ROLES[level])) == []
    with registry.connect(owned.url(ROLES["publisher"]), data_dir=tmp_path) as catalog:
        assert catalog.build(Slow).newly
    with registry.connect(owned.url(ROLES["curator"]), data_dir=tmp_path) as catalog:
        catalog.lifecycle.protect("slow")
        catalog.lifecycle.unprotect("slow")
        assert catalog.rename("slow", "slower").is_change
    with registry.connect(owned.url(ROLES["publisher"]), data_dir=tmp_path) as catalog:
        assert type(refused(lambda: catalog.rename("slow", "slowest"))) is CatalogPermissionError
        assert str(catalog.dataset("slow").reference) == "slower:1.0.0"


def test_the_check_names_roles_with_missing_rights(owned: Owned) -> None:
    owned.execute("owner", f"REVOKE SELECT ON shard FROM {quoted(ROLES['reader'])}")  # noqa: S608 (a quoted name)
    lines = schema.check(owned.url("owner"))
    assert lines == [
        "the reader 'r\\'e\"ader' lacks rights: SELECT on shard; give them with: "
        "registry db grant 'r'\"'\"'e\"ader' --as reader"
    ]
    schema.grant_rights(owned.url("owner"), ROLES["reader"], "reader")
    assert schema.check(owned.url("owner")) == []


def test_an_sqlite_file_that_cannot_be_written_is_named_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        # Tests may run as root, who may write anywhere.
        access = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: False if str(path).endswith(".db") else access(path, mode))
        before = Slow.calls
        error = refused(lambda: catalog.build(Slow))
    assert type(error) is CatalogPermissionError
    assert error.message == f"sqlite:///{tmp_path}/catalog.db is read-only"
    assert Slow.calls == before


def test_a_data_directory_that_cannot_be_written_is_named_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    data = tmp_path / "data"
    data.mkdir()
    with registry.connect(tmp_path / "catalog.db", data_dir=data) as catalog:
        access = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: False if str(path) == str(data) else access(path, mode))
        before = Slow.calls
        error = refused(lambda: catalog.build(Slow))
    assert error.code == "storage"
    assert error.message == f"cannot write {data}: Permission denied"
    assert Slow.calls == before


def test_the_owner_lacks_nothing(owned: Owned) -> None:
    engine = open_engine(owned.url("owner"))
    with reading(engine) as connection:
        assert list(rights.missing_rights(connection)) == []
    engine.dispose()


def test_who_may_not_grant_is_told_who_may(owned: Owned, capsys: pytest.CaptureFixture[str]) -> None:
    for user, level, who in (
        ("owner", "admin", "A superuser of the server"),
        (ROLES["curator"], "publisher", "The owner of the database"),
    ):
        assert run(["db", "grant", "nobody_yet", "--as", level, "--catalog", owned.url(user)]) == 1
        hint = f"hint: {who} has to run: registry db grant nobody_yet --as {level}\n"
        assert capsys.readouterr().err.endswith(hint)


def test_a_refusal_names_the_level_that_is_missing(owned: Owned) -> None:
    with registry.connect(owned.url(ROLES["publisher"])) as catalog:
        error = refused(catalog.lifecycle.protect)
    assert type(error) is CatalogPermissionError
    assert error.message.endswith(" refuses it: permission denied for table protection")
    assert error.hint == (
        "Your database user lacks this right. The owner of the database can grant it: "
        f"registry db grant '{ROLES['publisher']}' --as curator"
    )


def test_a_reader_is_told_about_rights_before_the_data_directory(owned: Owned) -> None:
    url = owned.server.create_database()
    name = str(parse_url(url).database)
    schema.upgrade(url)
    assert run(["db", "grant", ROLES["reader"], "--as", "reader", "--catalog", url]) == 0
    with registry.connect(url) as catalog:
        assert " records no data directory, " in refused(lambda: catalog.build(Slow)).message
    with registry.connect(owned._replace(database=name).url(ROLES["reader"])) as catalog:
        assert " may not publish: " in refused(lambda: catalog.build(Slow)).message
    owned.server.execute(f"DROP DATABASE {name} WITH (FORCE)")


class Restored(Slow):
    """Its files are removed from a store. It is last: it records the data directory."""

    calls = 0


def test_a_reader_learns_before_the_work_that_files_of_a_version_cannot_be_restored(
    owned: Owned, tmp_path: Path, bucket: str
) -> None:
    with registry.connect(owned.url(ROLES["publisher"]), data_dir=bucket) as catalog:
        catalog.set_data_dir(bucket, force=True)
        catalog.build(Restored, processes=1, rebuild=True)
    before = Restored.calls
    with registry.connect(owned.url(ROLES["reader"]), data_dir=bucket) as catalog:
        assert not catalog.build(Restored, processes=1).newly, "it is there"
        for rebuild in (True, False):
            error = refused(lambda: catalog.build(Restored, processes=1, rebuild=rebuild))  # noqa: B023
            assert type(error) is CatalogPermissionError
            assert ": the role 'r\\'e\"ader' may not publish: it lacks " in error.message
            folder = registry.storage.open_store(f"{bucket}/restored/1.0.0")
            for name in list(folder.list()):
                folder.remove(name)
    assert Restored.calls == before


def test_a_service_with_the_level_curator_removes_expired_tokens_of_ci_jobs(owned: Owned) -> None:
    def exchange(token_id: str, catalog: CatalogBackend) -> None:
        day = timedelta(days=1)
        issuer = "https://issuer.example"
        catalog.access.create_token(token_id, token_id * 5 + "0000", "ci", Role.READER, expires_in=day, actor=issuer)

    with open_catalog(owned.url(ROLES["curator"])) as catalog:
        exchange("0" * 11 + "1", catalog)
        owned.execute("postgres", "UPDATE access_token SET expires_at = now() - interval '1 year'")
        exchange("0" * 11 + "2", catalog)
        assert [token.id for token in catalog.access.tokens() if token.is_exchanged] == ["0" * 11 + "2"]
