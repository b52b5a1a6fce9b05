"""``add`` says why a version has its number: which columns, records and orders changed, as its dry run does."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import registry
from registry.cli.browse import describe_diff
from registry.publishing import proof
from registry.publishing.alignment import align, without_pairs

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)
Run = Callable[..., list[str]]


@pytest.fixture
def catalog(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[registry.Catalog]:
    (workspace / "here").mkdir()
    monkeypatch.chdir(workspace / "here")
    with registry.connect() as opened:
        yield opened


@pytest.fixture
def run(cli: Cli, catalog: registry.Catalog) -> Run:
    """Runs ``registry add`` and returns the lines after the summary of the source."""

    def add(*arguments: str) -> list[str]:
        ran = cli("add", *arguments)
        assert (ran.code, ran.err) == (0, "")
        return list(ran.out.rpartition("\n\n")[2].splitlines())

    return add


def lines(report: registry.AddReport) -> list[str]:
    assert report.diff is not None
    return [str(line) for line in describe_diff(report.diff)]


def test_the_real_run_prints_the_lines_of_the_dry_run(run: Run) -> None:
    Path("sales.csv").write_text("p,label,n\n1.5,a,1\n2.5,b,2\n")
    options = ("sales.csv", "--feature", "label=ClassLabel")
    run(*options)
    Path("sales.csv").write_text("p,label,n\n1.5,a,1\nmany,b,2\n3,c,3\n4,b,4\n")
    options = (*options, "--retype")
    dry = run(*options, "--dry-run")
    assert dry[:-1] == [
        "sales:1.0.0 -> sales:2.0.0: MAJOR",
        "  MAJOR  feature label is ClassLabel of 3 classes, was ClassLabel of 2 classes; new: 'c'",
        "  MAJOR  feature p is Text, was Tensor float64; its values were not compared",
        "  MAJOR  split train has 4 records, had 2",
        "  train: 2 added, 2 unchanged",
        *[one for one in dry if re.fullmatch(r"    record \d is new: label '[bc]', n [34], p '[34]'", one)],
        "smallest number after sales:1.0.0: 2.0.0",
    ]
    real = run(*options)
    assert real[:-3] == dry[:-1]
    assert real[-3].startswith("published sales:2.0.0: 4 examples in 1 shard")
    assert real[-2:] == [
        "MAJOR because: label has 3 classes, had 2 (new: 'c'); p is Text, was float64; 2 records added",
        "canonical: sales:2.0.0, replacing 1.0.0",
    ]


def test_smaller_changes_keep_their_words(catalog: registry.Catalog) -> None:
    rows = [{"n": number} for number in range(10)]
    catalog.add(rows, "x")
    report = catalog.add([{**row, "m": "a"} for row in rows], "x")
    assert lines(report) == [
        "x:1.0.0 -> x:1.1.0: MINOR",
        "  MINOR  feature m is new (Text)",
        "smallest number after x:1.0.0: 1.1.0",
    ]
    assert report.publication.proof.note == "the same records, with more features, as x:1.0.0"


def test_another_order_is_not_called_other_values(run: Run, catalog: registry.Catalog) -> None:
    numbers = list(range(2000))

    def write(folder: str, order: list[int]) -> None:
        table = {"number": order, "kind": [f"kind {number % 7}" for number in order], "price": [n * 0.5 for n in order]}
        Path(folder).mkdir()
        pq.write_table(pa.table(table), f"{folder}/train.parquet")

    write("figures", numbers)
    run("figures", "--in-place")
    random.Random(0).shuffle(numbers)
    write("sorted", numbers)
    real = run("sorted", "--as", "figures", "--in-place", "--show", "2")
    assert real[1] == "  MAJOR  the records of split train are in another order (1,917 moved), no value changed"
    assert real[2] == "  train: 1,917 moved, 83 unchanged"
    assert [re.sub(r"\d+", "N", line) for line in real[3:6]] == [
        "    record N is now record N",
        "    record N is now record N",
        "    and N,N more: --show N",
    ]
    reason = "the records of split train are in another order (1,917 moved), no value changed"
    assert real[-2] == f"MAJOR because: {reason}"
    assert [one.text for one in catalog.diff("figures:1.0.0", "figures:2.0.0").changes.changes] == [reason]
    numbers[0] = -1
    write("changed", numbers)
    changed = run("changed", "--as", "figures", "--in-place")
    assert changed[1].startswith("  MAJOR  split train has other values of kind, number, price, the first of them in")


def test_values_of_rows_are_short_and_printable(catalog: registry.Catalog) -> None:
    rows: list[dict[str, Any]] = [
        {
            "text": "a\x1b[31m\n" + "b" * 200,
            "data": bytes(range(256)),
            "pixels": np.zeros((8, 9), np.uint8),
            "few": np.arange(3),
            "none": None,
        },
        {"text": "", "data": b"", "pixels": np.ones((8, 9), np.uint8), "few": np.arange(3), "none": "x"},
    ]
    catalog.add(rows[1:], "x")
    report = catalog.add(rows, "x", features={"none": "Text?"})
    (change,) = report.diff.records[0].first
    assert re.sub(r"record \d", "record N", str(change)) == (
        "record N is new: data 256 bytes, few [0, 1, 2], none null, pixels uint8 (8, 9), "
        "text 'a\\x1b[31m\\n" + "b" * 53 + "'…"
    )
    assert dict(change.values)["data"] == "256 bytes"


def test_a_record_of_many_features_names_the_first(catalog: registry.Catalog) -> None:
    row = {f"c{number:02}": number for number in range(30)}
    catalog.add([row], "x")
    report = catalog.add([row, dict.fromkeys(row, 5)], "x")
    (change,) = report.diff.records[0].first
    assert str(change).endswith(" is new: c00 5, c01 5, c02 5, c03 5, c04 5, c05 5, c06 5, c07 5 and 22 more")
    assert len(change.values) == 30


def test_arrays_and_classes_are_told_in_words(catalog: registry.Catalog) -> None:
    def rows(value: int, label: str) -> list[dict[str, Any]]:
        pixels = np.full((4, 4, 3), 9, np.uint8)
        pixels.flat[:value] = 206
        return [{"id": 1, "pixels": pixels, "label": label}, {"id": 2, "pixels": pixels, "label": "dog"}]

    features = {"label": "ClassLabel(cat, dog)"}
    catalog.add(rows(40, "cat")[:1], "x", key="id", features=features)
    for value, label, told in (
        (2, "cat", "pixels differs in 38 of 48 values; the first, at [0, 0, 2], is 9 and was 206"),
        (1, "cat", "pixels differs in 1 of 48 values; the one at [0, 0, 1] is 9 and was 206"),
        (1, "dog", "label is 'dog', was 'cat'"),
    ):
        report = catalog.add(rows(value, label)[:1], "x", features=features)
        assert [str(one) for one in report.diff.records[0].first] == [f"record 0 with id 1: {told}"]


def test_json_lists_the_changes_of_the_real_run(cli: Cli, run: Run) -> None:
    Path("sales.csv").write_text("n\n1\n")
    run("sales.csv")
    Path("sales.csv").write_text("n\n1\n2\n")
    data = cli("add", "sales.csv", "--format", "json").json()["data"]
    change = {"level": "major", "kind": "records", "where": "train", "text": "split train has 2 records, had 1"}
    assert data["outcome"] == "published"
    assert data["changes"] == data["diff"]["changes"] == [change]
    (added,) = data["diff"]["records"][0]["first"]
    assert (added["kind"], added["values"]) == ("added", {"n": "2"})


def test_many_records_are_not_compared_while_they_are_published(
    catalog: registry.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "_MOST_COMPARED", 20)
    catalog.add([{"n": number} for number in range(20)], "x")
    report = catalog.add([{"n": number} for number in range(21)], "x")
    assert report.diff.records == ()
    assert report.diff.unread == "21 may differ, which takes a while: registry diff x:1.0.0 x:2.0.0"
    assert lines(report)[1] == "  MAJOR  split train has 21 records, had 20"
    assert report.publication.proof.note == "MAJOR because: train has 21 records, had 20"


def test_growing_data_is_named_in_one_line(cli: Cli, run: Run) -> None:
    def line(text: str, *options: str) -> str:
        Path("sales.csv").write_text(text)
        return run("sales.csv", *options)[-1]

    growing = (
        "`sales`, an alias or `sales:>=1` names growing data; `sales:1.*` stays at 1.0.0, whose slices do not change"
    )
    assert line("n,m\n1,a\n2,b\n") == "canonical: sales:1.0.0, the first"
    assert line("n,m\n1,a\n2,b\n3,c\n", "--dry-run") == f"only records were added: {growing}"
    assert line("n,m\n1,a\n2,b\n3,c\n", "-m", "more") == f"only records were added: {growing}"
    for changed in ("n,m\n1,a\n2,b\n3,x\n", "n,m\n1,a\n2,b\n", "n,m,o\n1,a,1\n2,b,1\n3,c,1\n4,d,1\n"):
        assert line(changed, "--dry-run").startswith("would publish sales:3.0.0: ")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proof, "_MOST_COMPARED", 2)
        Path("sales.csv").write_text("n,m\n1,a\n2,b\n3,c\n4,d\n")
        ran = cli("add", "sales.csv")
    assert ran.err == (
        "records were not compared one by one: 4 may differ, which takes a while: "
        "registry diff sales:2.0.0 sales:3.0.0\n"
    )
    assert ran.out.splitlines()[-1] == (
        "the splits have grown: `sales`, an alias or `sales:>=1` names growing data; `sales:2.*` stays at 2.0.0, "
        "whose slices do not change"
    )


def test_records_are_not_decoded_by_the_thousand_while_they_are_published(
    catalog: registry.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "_MOST_DECODED", 6)
    rows = [{"id": number, "price": 1.5} for number in range(50)]
    catalog.add(rows, "x", key="id")
    for changed, words in (
        (3, "MAJOR because: 3 records changed"),
        (4, "MAJOR because: split train has other values of price"),
    ):
        rows = [{**row, "price": row["price"] + (row["id"] < changed)} for row in rows]
        report = catalog.add(rows, "x")
        assert bool(report.diff.unread) == (changed == 4)
        assert report.publication.proof.describe(report.diff.changes, report.diff.records) == words
    rows = [{**row, "price": row["price"] + (row["id"] < 1), "more": 1} for row in rows]  # all bytes are other ones
    report = catalog.add(rows, "x")
    assert report.diff.unread == "50 may differ, which takes a while: registry diff x:3.0.0 x:4.0.0"


tables = st.lists(
    st.fixed_dictionaries({"a": st.integers(0, 3), "b": st.text("xy\x07\x1b", max_size=3)}), min_size=1, max_size=6
)


@given(tables, tables)
def test_the_real_run_reports_what_the_dry_run_reported(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder, registry.connect(f"{folder}/c.db", data_dir=f"{folder}/d") as catalog:
        catalog.add(old, "x")
        dry = catalog.add(new, "x", dry_run=True)
        real = catalog.add(new, "x")
        if real.outcome == "unchanged":
            return
        assert (real.diff, real.reference) == (dry.diff, dry.reference)
        assert all(line.isprintable() for line in lines(real))
        assert real.diff.changes.new == real.reference


def test_a_corrected_record_without_a_key_is_gone_and_new(run: Run, catalog: registry.Catalog) -> None:
    rows = [f"{1000 + number},{number * 1.5},berlin" for number in range(40)]
    head = "sale_id,amount,city"
    Path("sales.csv").write_text("\n".join([head, *rows]) + "\n")
    run("sales.csv")
    rows[7], rows[20] = "1007,69.5,berlin", "1020,30.0,rome"
    rows += [f"{1040 + number},0.5,oslo" for number in range(5)]
    Path("sales.csv").write_text("\n".join([head, *rows]) + "\n")
    dry = run("sales.csv", "--dry-run", "--show", "100")
    assert any(line.startswith("  train: 7 added, 2 removed, 38 ") for line in dry)
    records = sorted(re.sub(r"record [0-9]+", "record N", line.strip()) for line in dry if " record " in line)
    values = ["record N was removed: amount 10.5, city 'berlin', sale_id 1007"]
    values.append("record N was removed: amount 30.0, city 'berlin', sale_id 1020")
    values += [f"record N is new: amount 0.5, city 'oslo', sale_id {1040 + number}" for number in range(5)]
    values.append("record N is new: amount 30.0, city 'rome', sale_id 1020")
    values.append("record N is new: amount 69.5, city 'berlin', sale_id 1007")
    assert records == sorted(values)
    real = run("sales.csv", "--show", "100")
    assert [line for line in real if " record " in line] == [line for line in dry if " record " in line]
    (stored,) = catalog.diff("sales:1.0.0", "sales:2.0.0").records
    assert (stored.changed, stored.moved, stored.removed, stored.added, stored.same) == (0, 0, 2, 7, 38)


@given(st.lists(st.integers(0, 9), max_size=30), st.lists(st.integers(0, 9), max_size=30))
def test_records_without_identity_are_never_paired(old: list[int], new: list[int]) -> None:
    found = align(np.array(old, np.uint64), np.array(new, np.uint64))
    unpaired = without_pairs(found)
    removed, added = Counter(old) - Counter(new), Counter(new) - Counter(old)
    assert not len(unpaired.changed)
    assert Counter(old[place] for place in unpaired.removed.tolist()) == removed
    assert Counter(new[place] for place in unpaired.added.tolist()) == added
    assert (unpaired.same.tolist(), unpaired.moved.tolist()) == (found.same.tolist(), found.moved.tolist())
