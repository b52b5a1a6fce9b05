"""Which words of which version are searched, and when they are written."""

from __future__ import annotations

import json
import threading

import pytest
import sqlalchemy as sa
from support.catalog_samples import execute, publish, sample
from support.catalog_search import about, found

from registry.catalog import CatalogBackend, schema
from registry.catalog.search import refresh
from registry.catalog.session import open_engine, write
from registry.errors import UsageError
from registry.model import DatasetMetadata, Reference


def test_the_version_that_stands_for_a_config_is_searched(catalog: CatalogBackend, catalog_url: str) -> None:
    def refer(number: str) -> Reference:
        return Reference.parse(f"mnist:{number}")

    def shown() -> list[tuple[str, str]]:
        return [(str(hit.version), hit.status.value) for text in words for hit in catalog.search(text)]

    lifecycle = catalog.lifecycle
    words = ["first", "second", "third", "fourth"]
    about(catalog, "mnist:1.0.0", "first", promote=False)
    assert shown() == [("1.0.0", "experimental")]
    about(catalog, "mnist:3.0.0", "third", promote=False)
    about(catalog, "mnist:2.0.0", "second", promote=False)
    assert shown() == [("3.0.0", "experimental")]
    lifecycle.yank(refer("3.0.0"), "wrong", actor="ann")
    assert shown() == [("2.0.0", "experimental")]
    lifecycle.deprecate(refer("2.0.0"), "old", actor="ann")
    assert shown() == [("2.0.0", "deprecated")]
    lifecycle.drop(refer("2.0.0"), "wrong", actor="ann")
    lifecycle.yank(refer("1.0.0"), "wrong", actor="ann")
    assert shown() == [("3.0.0", "yanked")]
    lifecycle.drop(refer("3.0.0"), "wrong", actor="ann")
    assert shown() == [("3.0.0", "dropped")]
    about(catalog, "mnist:0.9.0", "fourth", promote=True)
    assert shown() == [("0.9.0", "canonical")]
    lifecycle.undo("drop", refer("3.0.0"), actor="ann")
    lifecycle.undo("yank", refer("3.0.0"), actor="ann")
    assert shown() == [("0.9.0", "canonical")]
    lifecycle.promote(refer("3.0.0"), actor="ann")
    assert shown() == [("3.0.0", "canonical")]
    assert schema.check(catalog_url) == []


def test_a_publication_that_fails_is_not_found(catalog: CatalogBackend) -> None:
    about(catalog, "mnist:1.0.0", "first")
    broken, shards = sample(
        "mnist:2.0.0", experiments={"bad\0name": True}, metadata=DatasetMetadata(description="second")
    )

    with pytest.raises(UsageError):
        catalog.publish(broken, shards, promote=True, actor="ann")

    assert found(catalog, "first") == ["mnist"]
    assert found(catalog, "second") == []


def test_refreshing_a_config_without_versions_leaves_nothing(catalog: CatalogBackend, catalog_url: str) -> None:
    execute(catalog_url, "INSERT INTO builder (id, name, has_configs, created_at) VALUES (1, 'x', false, '2020-01-01')")
    execute(
        catalog_url,
        "INSERT INTO builder_config (id, builder_id, name, is_default, created_at) "
        "VALUES (1, 1, '', true, '2020-01-01')",
    )
    engine = open_engine(catalog_url)
    write(engine, lambda connection: refresh(connection, 1))
    engine.dispose()

    assert catalog.search("x") == ()
    assert schema.check(catalog_url) == []


@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
def test_of_two_writers_at_once_the_second_sees_what_the_first_wrote(catalog: CatalogBackend, catalog_url: str) -> None:
    about(catalog, "mnist:1.0.0", "first", promote=False)
    about(catalog, "mnist:2.0.0", "second", promote=False)
    rival = threading.Thread(target=lambda: about(catalog, "mnist:1.5.0", "between", promote=False))

    def yank_slowly(connection: sa.Connection) -> None:
        connection.exec_driver_sql("UPDATE dataset_version SET state = 'yanked' WHERE major = 2")
        refresh(connection, 1)
        rival.start()
        while execute(catalog_url, "SELECT count(*) FROM pg_locks WHERE NOT granted") == [(0,)]:
            assert rival.is_alive()

    engine = open_engine(catalog_url)
    write(engine, yank_slowly)
    rival.join()
    engine.dispose()

    assert [str(hit.version) for hit in catalog.search("mnist")] == ["1.5.0"]
    assert schema.check(catalog_url) == []


@pytest.mark.parametrize(
    "letters", ["abcdefghij", "数字手書日本語中文国", "アイウエオカキクケコ", "\ufdfa\ufdfb \ufdfa"]
)
def test_a_description_of_any_size_is_published_and_found_by_its_beginning(
    catalog: CatalogBackend, letters: str
) -> None:
    long = " ".join("".join(letters[int(digit) % len(letters)] for digit in str(number)) for number in range(60_000))
    features = {f"{letters[0]}{number}": {} for number in range(30_000)}
    publish(
        catalog,
        "vast:1.0.0",
        metadata=DatasetMetadata(
            description=f"Beginning {long}",
            config_description=long,
            citation=long,
            license=long,
            config_tags=tuple(long.split()),
        ),
        features_json=json.dumps({"featuresDict": {"features": features}}),
        labels={"label": tuple(long.split())},
    )

    assert found(catalog, "vast beginning") == ["vast"]
    assert len(catalog.search("beginning")[0].snippet) <= 80


@pytest.mark.parametrize(
    "features_json",
    ["", "[]", "null", '"text"', "{", '{"featuresDict": 1}', '{"featuresDict": {"features": {"a": 1}}}', "[" * 100_000],
)
def test_a_schema_that_does_not_read_is_no_reason_to_refuse(catalog: CatalogBackend, features_json: str) -> None:
    publish(catalog, "odd:1.0.0", features_json=features_json)

    assert found(catalog, "odd") == ["odd"]
