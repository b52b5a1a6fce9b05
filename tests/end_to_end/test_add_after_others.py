"""``add`` to a dataset whose versions somebody else published, withdrew, or whose files are gone."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.golden import check_errors
from support.prepared_samples import animals, prepare

import registry
from registry.errors import ConflictError

GOLDEN = Path(__file__).with_name("golden")


ROWS = [{"name": f"animal {number}", "kind": number % 2, "age": number} for number in range(8)]


def add(catalog: registry.Catalog, rows: Any, name: str, **options: Any) -> str:
    report = catalog.add(rows, name, **options)
    return f"{report.outcome} {report.reference}"


def test_a_dataset_of_a_builder_or_of_tfds_is_continued_under_the_number_of_the_proof(
    catalog: registry.Catalog, tmp_path: Path
) -> None:
    folder = prepare(tmp_path / "animals/1.0.0", splits={"train": animals(8)})
    catalog.publish(folder)
    catalog.import_tfds(prepare(tmp_path / "tfds/beasts/2.1.0", "2.1.0", name="beasts"), name="beasts")
    for name, number in (("animals", "2.0.0"), ("beasts", "3.0.0")):
        report = catalog.add(ROWS, name, replace=True)
        assert (str(report.reference), report.outcome) == (f"{name}:{number}", "published")
        text = "feature age is Tensor int64, was Tensor int32; its values were not compared"
        assert text in [one.text for one in report.changes.changes]
        assert add(catalog, ROWS, name) == f"unchanged {name}:{number}"
        more = [{**row, "wild": False} for row in ROWS]
        assert add(catalog, more, name) == f"published {name}:{number.replace('.0.0', '.1.0')}"


def test_a_dataset_of_parquet_is_continued(catalog: registry.Catalog, tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "shards/train.parquet")
    catalog.import_parquet(tmp_path / "shards", name="numbers")
    report = catalog.add(tmp_path / "shards", "numbers", in_place=True, replace=True)
    assert (str(report.reference), report.outcome) == ("numbers:1.0.0", "unchanged")
    other_order = add(catalog, tmp_path / "shards", "numbers", replace=True)  # by the keys
    assert other_order == "published numbers:2.0.0"
    assert add(catalog, tmp_path / "shards", "numbers") == "unchanged numbers:2.0.0"


@pytest.mark.parametrize("has_fingerprints", [True, False])
def test_a_version_whose_files_are_gone_is_followed_by_the_next_one(
    catalog: registry.Catalog, tmp_path: Path, has_fingerprints: bool
) -> None:
    folder = prepare(tmp_path / "tfds/animals/1.0.0", splits={"train": animals(8)})
    catalog.import_tfds(folder, trust_lengths=not has_fingerprints)
    shutil.rmtree(tmp_path / "tfds")
    report = catalog.add(ROWS, "animals", replace=True, dry_run=True)
    assert (str(report.reference), report.outcome) == ("animals:2.0.0", "would_publish")
    report = catalog.add(ROWS, "animals", replace=True)
    told = [one.text for one in report.changes.changes]
    assert any("was not compared: animals:1.0.0 was published without" in one for one in told) != has_fingerprints
    assert str(report.reference) == "animals:2.0.0"
    shutil.rmtree(tmp_path / "data")
    assert add(catalog, ROWS, "animals") == "unchanged animals:2.0.0"
    assert add(catalog, ROWS[1:], "animals") == "published animals:3.0.0"


@pytest.mark.parametrize("state", ["deprecate", "yank", "drop"])
def test_a_withdrawn_version_is_compared_with_and_followed(catalog: registry.Catalog, state: str) -> None:
    catalog.add(ROWS, "x")
    getattr(catalog.lifecycle, state)("x:1.0.0", reason="wrong")
    assert add(catalog, ROWS, "x") == "unchanged x:1.0.0"
    assert add(catalog, [{**row, "wild": False} for row in ROWS], "x") == "published x:1.1.0"
    getattr(catalog.lifecycle, state)("x:1.1.0", reason="wrong")
    assert add(catalog, ROWS[1:], "x") == "published x:2.0.0"
    assert str(catalog.dataset("x").reference) == "x:2.0.0"


def test_numbers_and_parts_that_the_changes_do_not_allow_are_refused(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.add(ROWS, "x")
    catalog.add(ROWS[1:], "x")
    options: list[dict[str, str]] = [{"bump": "patch"}, {"bump": "minor"}]
    options += [{"number": number} for number in ("2.0.0", "1.0.0", "1.7.0", "2.0.1")]
    for dry_run in (True, False):
        calls = {f"{each}": partial(catalog.add, ROWS[2:], "x", dry_run=dry_run, **each) for each in options}
        check_errors(GOLDEN / "add_after_others.txt", calls, folder=tmp_path)
    assert sorted(path.name for path in (tmp_path / "data/x").iterdir()) == ["1.0.0", "2.0.0"]


def test_a_config_is_neither_left_out_nor_added_later(catalog: registry.Catalog) -> None:
    catalog.add(ROWS, "x", config="small")
    assert add(catalog, ROWS[1:], "x", config="large") == "published x/large:1.0.0"
    with pytest.raises(ConflictError) as caught:
        catalog.plan_add(ROWS, "x")  # before the rows are read
    assert caught.value.message == "x is published with configs: large, small"
    catalog.add(ROWS, "plain")
    with pytest.raises(ConflictError) as caught:
        catalog.plan_add(ROWS, "plain", config="small")
    assert caught.value.message == "plain is published without configs"
