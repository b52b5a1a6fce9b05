"""``dataset.sql``: splits are tables, only columns that a query needs are decoded, and a query reaches nothing else."""

from __future__ import annotations

import gc
import weakref
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from support.framework_samples import FEATURES, wide_reader

import registry
from registry.api import Catalog, Dataset
from registry.display import text_of
from registry.errors import CorruptExampleError, NotFoundError, QueryError, SplitNotFoundError, SplitSyntaxError
from registry.features import FeaturesDict, Text
from registry.interop.export_tables import json_value
from registry.reading import Reader
from registry.reading.frameworks.sql import Query
from registry.reading.readable import ReadableVersion

ROWS = pa.table(
    {
        "id": pa.array(range(20)),
        "kind": pa.array(["cat", "dog"] * 10),
        "price": pa.array([1.5, None] * 10),
        "boxes": pa.array([[{"x": number}] for number in range(20)]),
    }
)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("sql")
    catalog = registry.connect(f"sqlite:///{folder / 'c.db'}", data_dir=folder / "data", create=True)
    catalog.add({"train": ROWS, "test": ROWS.slice(0, 4)}, "pets", features={"kind": "ClassLabel"}, processes=1)
    return catalog


@pytest.fixture
def pets(catalog: Catalog) -> Dataset:
    return catalog.dataset("pets")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The features of each read."""
    seen: list[list[str]] = []
    blocks = Reader.blocks

    def watched(self: Reader) -> Any:
        seen.append(list(self.features))
        return blocks(self)

    monkeypatch.setattr(Reader, "blocks", watched)
    return seen


@pytest.mark.parametrize(
    ("query", "rows", "features"),
    [
        ("SELECT kind, count(*) FROM train GROUP BY kind ORDER BY kind", [("cat", 10), ("dog", 10)], [["kind"]]),
        ("SELECT sum(id) FROM train WHERE kind = 'cat' AND price > 1", [(90,)], [["id", "kind", "price"]]),
        ("SELECT max(b.x) FROM (SELECT unnest(boxes) AS b FROM train)", [(19,)], [["boxes"]]),
        ('SELECT count(*) FROM "train[:50%]"', [(10,)], [["id"]]),
        ("WITH t AS (FROM test) SELECT count(*) FROM t JOIN train USING (id)", [(4,)], [["id"], ["id"]]),
        ("SELECT * EXCLUDE (boxes, price) FROM test ORDER BY id LIMIT 1", [(0, "cat")], [["id", "kind"]]),
        ("FROM test WHERE id = 1", [(1, "dog", None, [{"x": 1}])], [["id", "kind", "price", "boxes"]]),
        ("SELECT 1 + 1", [(2,)], []),
    ],
)
def test_a_query_decodes_the_columns_that_it_needs(
    pets: Dataset, decoded: list[list[str]], query: str, rows: list[Any], features: list[list[str]]
) -> None:
    relation = pets.sql(query)
    assert decoded == []  # nothing is read before rows are requested
    assert relation.fetchall() == rows
    assert [sorted(names) for names in decoded] == [sorted(names) for names in features]


ATTACKS = (
    "COPY train TO '{folder}/out.csv'",
    "ATTACH '{folder}/other.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET memory_limit = '1TB'",
    "RESET memory_limit",
    "PRAGMA version",
    "CALL enable_logging()",
    "EXPORT DATABASE '{folder}/out'",
    "CREATE TABLE stolen AS FROM train",
    "INSERT INTO train (id) VALUES (1)",
    "WITH x AS (INSERT INTO train (id) VALUES (1) RETURNING *) FROM x",
    "SELECT 1; SELECT 2",
    "",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM '{secret}'",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM read_parquet('https://example.org/a.parquet')",
    "SELECT * FROM enable_logging(storage = 'file')",
    "SELECT * FROM query('COPY (SELECT 1) TO ''{folder}/out''')",
    "SELECT getenv('HOME')",
    "SELECT * FROM secret_variable",
    "SELECT * FROM query_table('secret_variable')",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM pandas_scan(1)",
)


def test_a_query_reaches_nothing_but_its_tables(pets: Dataset, tmp_path: Path) -> None:
    (secret := tmp_path / "secret.csv").write_text("a\n1\n")
    secret_variable = pa.table({"a": [1]})  # noqa: F841 (DuckDB finds it by its name)
    assert duckdb.sql("FROM secret_variable").fetchall() == [(1,)]
    for attack in ATTACKS:
        with pytest.raises((QueryError, NotFoundError, SplitSyntaxError, duckdb.Error)):
            pytest.fail(f"{attack}: {pets.sql(attack.format(folder=tmp_path, secret=secret)).fetchall()}")
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]
    assert pets.sql("SELECT count(*) FROM train").fetchall() == [(20,)]


def test_settings_are_those_of_a_closed_database(pets: Dataset) -> None:
    settings = dict(pets.sql("SELECT name, value FROM duckdb_settings()").fetchall())
    closed = {
        name: settings[name]
        for name in ("enable_external_access", "autoload_known_extensions", "python_enable_replacements")
    }
    assert set(closed.values()) == {"false"}
    assert (settings["lock_configuration"], settings["max_temp_directory_size"]) == ("true", "18.6 GiB")
    assert pets.sql("SELECT * FROM duckdb_secrets()").fetchall() == []


def test_errors_say_what_there_is(pets: Dataset) -> None:
    with pytest.raises(QueryError) as unknown:
        pets.sql("SELECT kid FROM test")
    assert unknown.value.message.startswith('Binder Error: Referenced column "kid" not found in FROM clause!')
    assert unknown.value.hint == "test has the columns id, kind, price, boxes."
    with pytest.raises(QueryError) as two:
        pets.sql("SELECT 1; DROP TABLE train")
    assert two.value.message == "a query is one SELECT statement, not SELECT, DROP"
    with pytest.raises(SplitNotFoundError, match="no split 'tran'"):
        pets.sql("FROM tran")


def test_damage_is_our_error_and_has_our_message_in_a_relation(tmp_path: Path) -> None:
    written = wide_reader([4], where=tmp_path, features=FeaturesDict({"key": FEATURES["key"]}))
    other = FeaturesDict({"id": "int64", "key": Text()})
    reader = Reader(written.readable.with_features(other), written.plan)
    query = Query("SELECT id FROM t", lambda _: reader)
    with pytest.raises(duckdb.Error, match="feature 'id'"):
        query.relation.fetchall()
    with pytest.raises(CorruptExampleError, match="feature 'id'"):
        list(query.rows()[1])
    with pytest.raises(QueryError, match="unlucky"):
        list(Query("SELECT error('unlucky')", lambda _: reader).rows()[1])


def test_a_query_with_a_limit_reads_only_the_first_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = registry.connect(tmp_path / "c.db", data_dir=tmp_path / "data", create=True)
    catalog.add(pa.table({"id": range(400_000)}), "numbers", processes=1)
    num_read = 0
    blocks = Reader.blocks

    def counted(self: Reader) -> Any:
        nonlocal num_read
        for block in blocks(self):
            num_read += 1
            yield block

    monkeypatch.setattr(Reader, "blocks", counted)
    numbers = catalog.dataset("numbers")
    assert numbers.sql("SELECT count(*) FROM train WHERE id >= 0").fetchall() == [(400_000,)]
    num_blocks, num_read = num_read, 0
    for query in ("FROM train LIMIT 3", "FROM train WHERE id > 9 LIMIT 3"):
        assert len(numbers.sql(query).fetchall()) == 3
    _, batches = Query("FROM train", numbers.read).rows()
    next(batches)
    del batches
    assert num_read / 3 < num_blocks / 2  # with what DuckDB and Arrow read ahead


def test_a_query_that_nobody_uses_is_freed_with_its_readers(pets: Dataset) -> None:
    opened: list[weakref.ref[Reader]] = []

    def open_table(name: str) -> Reader:
        reader = pets.read(name)
        opened.append(weakref.ref(reader))
        return reader

    relation = Query("SELECT count(*) FROM train", open_table).relation
    gc.collect()
    assert (relation.fetchall(), opened[0]() is None) == ([(len(pets.read("train")),)], False)
    del relation
    gc.collect()
    assert opened[0]() is None  # otherwise, each query would leave a database with its threads


def test_float16_is_a_number_in_sql(tmp_path: Path) -> None:
    reader = wide_reader([3], where=tmp_path)
    assert isinstance(reader.readable, ReadableVersion)
    (row,) = Query(
        "SELECT typeof(half), typeof(label), max(half) FROM t GROUP BY ALL", lambda _: reader
    ).relation.fetchall()
    assert row[:2] == ("FLOAT", "VARCHAR")


def no_table(name: str) -> Any:
    raise NotFoundError(name)


def test_columns_of_one_name_are_all_kept() -> None:
    schema, batches = Query("SELECT 1 AS a, 2 AS a, 3 AS A", no_table).rows()
    assert schema.names == ["a", "a_1", "A"]
    assert [row for batch in batches for row in batch.to_pylist()] == [{"a": 1, "a_1": 2, "A": 3}]


def test_intervals_are_durations_in_every_format() -> None:
    query = "SELECT INTERVAL 25 HOUR AS a, [{'b': INTERVAL (-90) SECOND}, {'b': NULL}, NULL] AS c, NULL::INTERVAL AS d"
    schema, batches = Query(
        f"{query} UNION ALL SELECT NULL, NULL, INTERVAL 1500 MICROSECOND ORDER BY d", no_table
    ).rows()
    assert [str(kind) for kind in schema.types] == [
        "duration[us]",
        "list<item: struct<b: duration[us]>>",
        "duration[us]",
    ]
    table = pa.Table.from_batches(batches, schema)
    first, second = table.to_pylist()[::-1]
    assert first == {"a": timedelta(hours=25), "c": [{"b": timedelta(seconds=-90)}, {"b": None}, None], "d": None}
    assert second == {"a": None, "c": None, "d": timedelta(milliseconds=1.5)}
    assert json_value(first) == {"a": "PT90000S", "c": [{"b": "-PT90S"}, {"b": None}, None], "d": None}
    assert text_of(first) == "{a: 1 day 01:00:00, c: [{b: -00:01:30}, {b: null}, null], d: null}"
    with pytest.raises(QueryError, match="an INTERVAL in the result has months") as caught:
        list(Query("SELECT INTERVAL 1 MONTH", no_table).rows()[1])
    assert caught.value.hint == "Write CAST(... AS VARCHAR)."


def test_intervals_beyond_292_years_keep_each_microsecond() -> None:
    numbers = [1, 2**53 + 1, 9_223_372_036_854_776, 12_614_400_000_000_001, 2**60 - 1]
    parts = [
        f"to_microseconds({n}) AS a, to_days(-2) + to_microseconds({-n}) AS b, NULL::INTERVAL AS c" for n in numbers
    ]
    schema, batches = Query(" UNION ALL ".join(f"SELECT {part}" for part in parts), no_table).rows()
    columns = pa.Table.from_batches(batches, schema).columns
    a, b, c = (column.cast(pa.int64()).to_pylist() for column in columns)
    assert (a, c) == (numbers, [None] * len(numbers))
    assert b == [-2 * 86_400_000_000 - number for number in numbers]


def test_long_durations_of_a_dataset_pass_through_a_query(catalog: registry.Catalog) -> None:
    days = [146_000, 5, -109_800]
    catalog.add(pa.table({"wait": pa.array([day * 86_400 for day in days], pa.duration("s"))}), "waits")
    query = Query("SELECT wait FROM waits ORDER BY wait", lambda _: catalog.dataset("waits").read("train"))
    rows = [row["wait"] for batch in query.rows()[1] for row in batch.to_pylist()]
    assert rows == [timedelta(days=day) for day in sorted(days)]


def test_an_interval_that_is_too_long_for_a_duration_is_refused() -> None:
    (batch,) = Query("SELECT INTERVAL 100000000 DAY AS a", no_table).rows()[1]
    assert batch.to_pylist() == [{"a": timedelta(days=100_000_000)}]
    for days in (-106_751_992, 2_000_000_000):
        with pytest.raises(QueryError, match="an INTERVAL in the result has more than 100,000,000 days"):
            list(Query(f"SELECT INTERVAL ({days}) DAY", no_table).rows()[1])


def test_a_query_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(QueryError, match="not valid Unicode"):
        Query("SELECT '\ud800'", no_table)
