"""The statements, policies and commands of docs/deployment.md work as described, on a real PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pytest

import registry
from registry import DatasetBuilder
from registry.catalog import schema
from registry.cli.main import run
from registry.errors import CatalogError, CatalogPermissionError
from registry.features import FeaturesDict

if TYPE_CHECKING:
    from support.catalog_server import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")
AS_SUPERUSER, PEOPLE = range(2)
LOGINS = {"reader": "ann", "publisher": "nightly_build", "curator": "carol", "admin": "registry_admin"}


class Rain(DatasetBuilder):
    VERSION = "1.0.0"
    SUPPORTED_VERSIONS = ("1.1.0", "2.0.0", "3.0.0", "4.0.0", "5.0.0")

    def features(self) -> FeaturesDict:
        return FeaturesDict({"day": "int64"})

    def splits(self) -> dict[str, list[tuple[int, dict[str, int]]]]:
        return {"train": [(day, {"day": day}) for day in range(2 * self.version.major)]}


class Deployed(NamedTuple):
    server: PostgresServer
    data_dir: Path

    def url(self, role: str) -> str:
        return self.server.url("datasets", LOGINS[role])

    def connect(self, role: str) -> registry.Catalog:
        return registry.connect(self.url(role), data_dir=self.data_dir)

    def execute(self, role: str, statement: str) -> None:
        with psycopg.connect(self.url(role), autocommit=True) as connection:
            connection.execute(statement)


def statements(block: int) -> list[str]:
    """The statements of one block of SQL on the page."""
    text = re.findall(r"^```sql\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)[block]
    return [one.strip() for one in re.sub(r"--.*", "", text).split(";") if one.strip()]


def run_grants(url: str) -> None:
    """Run the commands of the page that give the roles their rights."""
    commands = re.findall(r"^registry (db grant \S+ --as \S+)$", PAGE, flags=re.MULTILINE)
    assert len(commands) == len(RANK)
    for command in commands:
        assert run([*command.split(), "--catalog", url]) == 0


@pytest.fixture(scope="module")
def deployed(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """A database set up by the page's statements, in which the publisher has published rain:1.0.0 and 2.0.0."""
    made = Deployed(postgres_server, tmp_path_factory.mktemp("data"))
    for statement in statements(AS_SUPERUSER):
        postgres_server.execute(statement)
    schema.upgrade(made.url("admin"))
    run_grants(made.url("admin"))
    run_grants(made.url("admin"))  # "you can run it any number of times"
    for statement in statements(PEOPLE):
        postgres_server.execute(statement)
    with made.connect("publisher") as catalog:
        catalog.build(Rain(version="1.0.0"))
        catalog.build(Rain(version="2.0.0"))
    yield made
    postgres_server.execute("DROP DATABASE datasets WITH (FORCE)")
    postgres_server.execute(
        "DROP ROLE ann, nightly_build, carol, registry_admin, registry_curator, registry_publisher, registry_reader"
    )


def _promote(catalog: registry.Catalog) -> None:
    catalog.lifecycle.promote("rain:1.0.0")
    catalog.lifecycle.promote("rain:2.0.0")


def _withdraw(catalog: registry.Catalog) -> None:
    life = catalog.lifecycle
    life.deprecate("rain:1.0.0", reason="wrong days")
    life.undo("deprecate", "rain:1.0.0")
    life.yank("rain:1.0.0", reason="wrong days")
    life.undo("yank", "rain:1.0.0")
    life.drop("rain:1.0.0", reason="wrong days")
    life.undo("drop", "rain:1.0.0")


def _name(catalog: registry.Catalog) -> None:
    catalog.aliases.set("paper", "rain:1.0.0")
    catalog.aliases.set("paper", "rain:2.0.0")
    catalog.aliases.remove("rain@paper")


def _protect(catalog: registry.Catalog) -> None:
    catalog.lifecycle.protect("rain")
    catalog.lifecycle.unprotect("rain")


def _experiment(catalog: registry.Catalog) -> None:
    catalog.experiments.add("new_days", "Count from one.")
    catalog.experiments.set_default("new_days", True)
    catalog.experiments.retire("new_days")


ACTS: dict[str, tuple[str, Callable[[registry.Catalog], object]]] = {
    "build": ("publisher", lambda catalog: catalog.build(Rain(version="3.0.0"))),
    "build of what is published": ("publisher", lambda catalog: catalog.build(Rain(version="2.0.0"), rebuild=True)),
    "promote": ("publisher", _promote),
    "withdraw": ("curator", _withdraw),
    "alias": ("curator", _name),
    "protect": ("curator", _protect),
    "experiment": ("curator", _experiment),
}
RANK = ["reader", "publisher", "curator"]


@pytest.mark.parametrize("role", RANK)
def test_everybody_looks_up_reads_searches_and_sees_the_log(deployed: Deployed, role: str) -> None:
    with deployed.connect(role) as catalog:
        rain = catalog.dataset("rain:2.*")
        assert sorted(int(one["day"]) for one in rain.read("train")) == [0, 1, 2, 3]
        assert "rain" in {one.name for one in catalog.search("rain")}
        assert "publish" in {event.action for event in catalog.log()}
    assert schema.status(deployed.url(role)).state == "current"
    assert list(schema.check(deployed.url(role))) == []


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("role", RANK)
def test_a_role_can_do_what_the_page_says_and_no_more(deployed: Deployed, role: str, act: str) -> None:
    lowest, perform = ACTS[act]
    is_allowed = RANK.index(role) >= RANK.index(lowest)
    with deployed.connect(role) as catalog:
        if is_allowed or (role == "reader" and act == "build of what is published"):
            perform(catalog)
            return
        with pytest.raises(CatalogPermissionError, match=r"permission denied|may not publish") as caught:
            perform(catalog)
        assert f"registry db grant {LOGINS[role]} --as " in str(caught.value.hint)


@pytest.mark.parametrize("role", RANK)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE dataset_version SET location = 'elsewhere'",
        "UPDATE shard SET sha256 = repeat('0', 64)",
        "DELETE FROM event",
        "TRUNCATE event",
        "UPDATE version_ledger SET used_by = 'eve'",
        "ALTER TABLE shard DISABLE TRIGGER ALL",
        "DROP TABLE alias",
        "CREATE TABLE mine (id int)",
        "UPDATE alembic_version SET version_num = '0001'",
    ],
)
def test_no_role_but_the_admin_edits_published_rows_or_the_schema(
    deployed: Deployed, role: str, statement: str
) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        deployed.execute(role, statement)


def test_the_admin_migrates_down_and_up_and_the_grants_hold_again(deployed: Deployed) -> None:
    for role in RANK:
        with pytest.raises(CatalogError, match=r"permission denied|must be owner"):
            schema.downgrade(deployed.url(role), "0006")
    schema.downgrade(deployed.url("admin"), "0006")
    assert run(["db", "upgrade", "--catalog", deployed.url("admin")]) == 0
    with deployed.connect("curator") as catalog:
        _protect(catalog)


def test_a_publisher_publishes_into_a_bucket(deployed: Deployed, bucket: str) -> None:
    with registry.connect(deployed.url("publisher")) as catalog:
        catalog.set_data_dir(bucket, force=True)
        catalog.build(Rain(version="4.0.0"))
        assert len(catalog.dataset("rain:4.0.0").read("train")) == 8
        catalog.set_data_dir(deployed.data_dir, force=True)
        assert catalog.reservations.list() == ()


def test_a_backup_by_a_reader_is_restored_by_the_admin(deployed: Deployed, tmp_path: Path) -> None:
    server = deployed.server
    with deployed.connect("reader") as catalog:
        head = catalog.backup(tmp_path / "catalog.backup.gz").facts.head
        assert head == catalog.verify_log().head
    server.execute("CREATE DATABASE restored OWNER registry_admin")
    try:
        url = server.url("restored", "registry_admin")
        assert registry.restore(tmp_path / "catalog.backup.gz", url, anchor=head).log is not None
        run_grants(url)
        with registry.connect(server.url("restored", "ann"), data_dir=deployed.data_dir) as catalog:
            assert len(catalog.dataset("rain:2.0.0").read("train")) == 4
            with pytest.raises(CatalogPermissionError, match="may not publish"):
                catalog.build(Rain(version="5.0.0"))
        assert list(schema.check(server.url("restored", "ann"))) == []
    finally:
        server.execute("DROP DATABASE restored WITH (FORCE)")
