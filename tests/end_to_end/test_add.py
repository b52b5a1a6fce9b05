"""Adds data without a builder class: numbers by proof, keys, splits, and rows that cannot be used."""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.added_samples import Table, source
from support.golden import check_errors

import registry
from registry.engines import choice, workers
from registry.errors import (
    DuplicateKeyError,
    MissingExtraError,
    SourceError,
    UnusableRowsError,
    UsageError,
    VersionExistsError,
    VersionTooSmallError,
)
from registry.features import ClassLabel, Scalar, Tensor
from registry.images.png import encode_png
from registry.intake import staging
from registry.intake.source import BadRow, Source

GOLDEN = Path(__file__).with_name("golden")

PRICES = pa.table({"name": [f"item {n}" for n in range(300)], "price": [n * 0.5 for n in range(300)]})


def read_all(catalog: registry.Catalog, name: str, split: str = "train") -> list[dict[str, Any]]:
    def plain(value: Any) -> Any:
        return value.decode() if isinstance(value, bytes) else value.item() if hasattr(value, "item") else value

    return [{key: plain(value) for key, value in one.items()} for one in catalog.dataset(name).read(split)]


def test_the_first_version_is_1_0_0_and_holds_every_row(catalog: registry.Catalog) -> None:
    report = catalog.add(source({"train": PRICES}), "prices")
    assert (str(report.reference), report.outcome, dict(report.splits)) == ("prices:1.0.0", "published", {"train": 300})
    assert report.latest is None
    assert report.changes is None
    found = sorted(read_all(catalog, "prices"), key=lambda one: one["price"])
    assert found == PRICES.to_pylist()


def test_the_same_rows_in_any_order_publish_nothing(catalog: registry.Catalog) -> None:
    catalog.add(source({"train": PRICES}), "prices")
    order = random.Random(0).sample(range(300), 300)
    shuffled = PRICES.take(order)
    parts = [("train", "b", shuffled.slice(0, 70)), ("train", "a", shuffled.slice(70))]
    report = catalog.add(source(parts, step=7), "prices")
    assert (str(report.reference), report.outcome, report.publication) == ("prices:1.0.0", "unchanged", None)
    assert len(catalog.versions("prices")) == 1


@pytest.mark.parametrize(
    ("change", "number"),
    [
        ({"num_shards": 3}, "1.0.1"),
        ({"column": ("stock", list(range(300)))}, "1.1.0"),
        ({"rows": 10}, "2.0.0"),
        ({"drop": "name"}, "2.0.0"),
        ({"split": "test"}, "2.0.0"),
    ],
)
def test_the_next_number_is_the_smallest_that_the_changes_allow(
    catalog: registry.Catalog, change: dict[str, Any], number: str
) -> None:
    catalog.add(source({"train": PRICES}), "prices")
    table = PRICES
    if "column" in change:
        table = table.append_column(change["column"][0], [change["column"][1]])
    if "drop" in change:
        table = table.drop_columns([change["drop"]])
    if "rows" in change:
        more = pa.table({"name": [f"new {n}" for n in range(10)], "price": [float(n) for n in range(10)]})
        table = pa.concat_tables([table, more])
    tables = {"train": table} | ({"test": table.slice(0, 5)} if "split" in change else {})
    report = catalog.add(source(tables), "prices", num_shards=change.get("num_shards"))
    assert str(report.reference) == f"prices:{number}"
    assert [str(one.version) for one in catalog.versions("prices")] == [number, "1.0.0"]


def test_added_rows_are_shown_as_added_rows(catalog: registry.Catalog) -> None:
    catalog.add(source({"train": PRICES}), "prices")
    more = pa.table({"name": [f"new {n}" for n in range(10)], "price": [float(n) for n in range(10)]})
    report = catalog.add(source({"train": pa.concat_tables([more, PRICES])}), "prices", dry_run=True)
    assert report.outcome == "would_publish"
    (found,) = report.diff.records
    assert (found.same, found.added, found.changed, found.moved, found.removed) == (300, 10, 0, 0, 0)
    assert [str(one.version) for one in catalog.versions("prices")] == ["1.0.0"]


def test_a_copy_of_a_row_is_a_new_record_wherever_its_place_is(catalog: registry.Catalog) -> None:
    rows = [{"a": number * 7 % 31, "b": f"x{number}"} for number in range(30)]
    catalog.add(rows, "x")
    for row in rows[:6]:
        report = catalog.add([*rows, row], "x", dry_run=True)
        assert report.has_grown
        assert report.diff is not None
        (found,) = report.diff.records
        assert (found.same, found.added, found.moved) == (30, 1, 0)
    catalog.add([*rows, *rows[:6], *rows[:3]], "x")
    (found,) = catalog.add([*rows, *rows[3:6]], "x", dry_run=True).diff.records  # type: ignore[union-attr]
    assert (found.same, found.removed, found.moved) == (33, 6, 0)


def test_a_dry_run_of_a_first_version_leaves_nothing(catalog: registry.Catalog, tmp_path: Path) -> None:
    report = catalog.add(source({"train": PRICES}), "prices", dry_run=True)
    assert (report.outcome, str(report.reference)) == ("would_publish", "prices:1.0.0")
    files = (path for path in tmp_path.rglob("*") if path.is_file())
    assert [path for path in files if not path.name.startswith("catalog.db")] == []


def test_a_number_and_a_part_can_be_requested(catalog: registry.Catalog) -> None:
    assert str(catalog.add(source({"train": PRICES}), "prices", number="0.3.0").reference) == "prices:0.3.0"
    wider = PRICES.append_column("stock", [list(range(300))])
    report = catalog.add(source({"train": wider}), "prices", bump="major", reason="Stock is counted")
    assert str(report.reference) == "prices:1.0.0"
    assert dict(catalog.dataset("prices").info.release_notes) == {"1.0.0": "Stock is counted"}
    fewer = wider.slice(0, 299)
    with pytest.raises(VersionTooSmallError, match=r"MINOR is too small a step from prices:1\.0\.0") as caught:
        catalog.add(source({"train": fewer}), "prices", bump="minor")
    assert caught.value.hint == "Leave out `bump`, or pass bump='major'."
    with pytest.raises(VersionTooSmallError):
        catalog.add(source({"train": fewer}), "prices", number="1.1.0")
    with pytest.raises(VersionExistsError):
        catalog.add(source({"train": fewer}), "prices", number="1.0.0")
    with pytest.raises(UsageError, match="a number and a part to raise"):
        catalog.add(source({"train": fewer}), "prices", number="3.0.0", bump="major")


@pytest.mark.parametrize("encoding", ["bytes", "zlib"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "uint64", "float16", "float32", "float64"])
def test_numbers_are_stored_in_the_encoding_of_their_feature(
    catalog: registry.Catalog, encoding: str, dtype: str
) -> None:
    numbers = np.array([0, 1, 7, 1], dtype)
    lists = [numbers[:2], numbers[2:], numbers[1:3], numbers[:2]]
    table = pa.table({"x": pa.array(numbers), "y": pa.array(lists), "place": [0, 1, 2, 3]})
    features = {"x": Scalar(dtype, encoding=encoding), "y": Tensor(shape=(2,), dtype=dtype, encoding=encoding)}
    catalog.add(table, "numbers", features=features, key="place")
    examples = sorted(catalog.dataset("numbers").read("train"), key=lambda example: int(example["place"]))
    assert [example["x"].tolist() for example in examples] == numbers.tolist()
    assert [example["y"].tolist() for example in examples] == [row.tolist() for row in lists]
    assert {example["y"].dtype for example in examples} == {np.dtype(dtype)}
    assert catalog.dataset("numbers").features["x"].encoding == encoding


def test_identical_rows_are_all_kept(catalog: registry.Catalog) -> None:
    table = pa.table({"word": ["a"] * 50 + ["b"] * 3})
    catalog.add(source({"train": table}), "words")
    assert Counter(one["word"] for one in read_all(catalog, "words")) == {"a": 50, "b": 3}
    assert catalog.add(source({"train": table.take(list(range(52, -1, -1)))}, step=9), "words").outcome == "unchanged"


def test_a_new_column_that_tells_identical_rows_apart_is_minor_in_any_order(catalog: registry.Catalog) -> None:
    table = pa.table({"word": ["a"] * 40 + ["b"] * 3})
    catalog.add(source({"train": table}), "words")
    wider = table.append_column("place", [list(range(43))])
    report = catalog.add(source({"train": wider}), "words")
    assert str(report.reference) == "words:1.1.0"
    order = random.Random(1).sample(range(43), 43)
    assert catalog.add(source({"train": wider.take(order)}, step=4), "words").outcome == "unchanged"


def test_a_key_column_keeps_a_changed_row_in_its_place(catalog: registry.Catalog) -> None:
    catalog.add(source({"train": PRICES}), "prices", key="name")
    changed = PRICES.set_column(1, "price", [[99.0, *PRICES["price"].to_pylist()[1:]]])
    report = catalog.add(source({"train": changed}), "prices", dry_run=True)  # the rule of the previous version
    assert str(report.plan.rule) == "the column 'name'"
    assert [(one.same, one.changed) for one in report.diff.records] == [(299, 1)]
    assert re.fullmatch(
        r"record [0-9]+ with name 'item 0': price is 99\.0, was 0\.0", str(report.diff.records[0].first[0])
    )


def test_times_that_python_cannot_represent_can_be_keys(catalog: registry.Catalog) -> None:
    lasts = {pa.timestamp("s"): 2**63 - 1, pa.timestamp("us", "UTC"): 2**63 - 1, pa.duration("s"): 2**63 - 1}
    for place, (kind, last) in enumerate({**lasts, pa.date32(): 2**31 - 1}.items()):
        catalog.add(pa.table({"at": pa.array([1, last], kind)}), f"moments_{place}", key="at")

        assert catalog.dataset(f"moments_{place}").splits["train"].num_examples == 2


def test_rows_are_compared_under_their_key_wherever_they_are(catalog: registry.Catalog) -> None:
    # Each row is a neighbour of another one that is gone, new or changed, so that only the key shows what is what.
    before = pa.table({"id": list(range(8)), "x": [0.0] * 8})
    after = pa.table({"id": [0, 1, 2, 3, 20, 21, 22, 23], "x": [1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]})
    catalog.add(source({"train": before}), "things", key="id")
    report = catalog.add(source({"train": after}), "things", dry_run=True, show=50)
    (found,) = report.diff.records
    assert (found.same, found.changed, found.removed, found.added, found.moved) == (1, 3, 4, 4, 0)
    told = Counter((one.kind, int(one.key[1])) for one in found.first if one.key is not None)
    assert told == Counter(
        [("changed", 0), ("changed", 1), ("changed", 3)]
        + [("removed", number) for number in (4, 5, 6, 7)]
        + [("added", number) for number in (20, 21, 22, 23)]
    )


def test_keys_from_the_content_can_be_requested_after_a_key_column(catalog: registry.Catalog) -> None:
    catalog.add(source({"train": PRICES}), "prices", key="name")
    assert str(catalog.add(source({"train": PRICES}), "prices").plan.rule) == "the column 'name'"
    report = catalog.add(source({"train": PRICES}), "prices", key_by="content")
    assert (report.plan.rule.kind, report.plan.rule_reason, str(report.reference)) == (
        "content",
        "as requested",
        "prices:2.0.0",
    )
    more = PRICES.append_column("stock", [list(range(300))])
    report = catalog.add(source({"train": more}), "prices", key_by="content")
    assert (report.plan.rule.columns, str(report.reference)) == (("name", "price"), "prices:2.1.0")
    assert catalog.add(source({"train": more}), "prices").outcome == "unchanged"


def test_keys_from_the_content_can_replace_paths_and_stay(catalog: registry.Catalog) -> None:
    images = Table(pa.table({"label": ["a", "b"]}), keys=["x.png", "y.png"])
    renamed = Table(pa.table({"label": ["a", "b"]}), keys=["1.png", "2.png"])
    catalog.add(source([("train", "x", images)]), "photos", key_by="content")
    report = catalog.add(source([("train", "x", renamed)]), "photos")
    assert (report.outcome, report.plan.rule.kind) == ("unchanged", "content")
    assert catalog.add(source([("train", "x", renamed)]), "photos", key_by="path").plan.rule.kind == "path"


def test_keys_that_the_source_does_not_have_are_refused(catalog: registry.Catalog) -> None:
    check_errors(
        GOLDEN / "add" / "keys_that_the_source_does_not_have_are_refused.txt",
        (
            partial(catalog.add, source({"train": PRICES}), "prices", **arguments)
            for arguments in [
                {"key_by": "path"},
                {"key_by": "name"},
                {"key": "name", "key_by": "content"},
                {"key": "content"},
                {"features": {"nmae": "Text"}},
            ]
        ),
    )


def test_options_for_csv_are_refused_by_their_arguments(catalog: registry.Catalog, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n')
    with pytest.raises(UsageError) as caught:
        catalog.add(tmp_path / "a.jsonl", delimiter=";", nulls=["NA"])
    assert (caught.value.message, caught.value.hint) == (
        "files of the kind json cannot be read with these options: `nulls`, `delimiter`",
        "Leave them out. If the files are CSV: kind='csv'",
    )


def test_a_key_that_is_used_twice_is_named_with_both_places(catalog: registry.Catalog) -> None:
    twice = pa.concat_tables([PRICES, PRICES.slice(7, 1)])
    with pytest.raises(DuplicateKeyError) as caught:
        catalog.add(source([("train", "prices.csv", twice)]), "prices", key="name")
    assert caught.value.message == (
        "split 'train': two records have the same key: 'item 7' (prices.csv:8) and 'item 7' (prices.csv:301)"
    )


def test_paths_are_keys(catalog: registry.Catalog) -> None:
    keys = [f"cats/{n}.png" for n in range(20)]
    table = pa.table({"size": list(range(20))})
    report = catalog.add(source([("train", "cats", Table(table, keys=keys))]), "cats")
    assert str(report.plan.rule) == "the name of each record in the source"
    assert len(read_all(catalog, "cats")) == 20


def test_a_column_may_decide_the_split(catalog: registry.Catalog) -> None:
    table = PRICES.append_column("part", [["test", "train", "extra"] * 100])
    report = catalog.add(source({"train": table}), "prices", split_by="part")
    assert list(report.splits.items()) == [("train", 100), ("test", 100), ("extra", 100)]
    assert set(read_all(catalog, "prices", "extra")[0]) == {"name", "price"}
    with pytest.raises(SourceError, match=r"^column 'name': 'item 0' is not the name of a split"):
        catalog.add(source({"train": PRICES}), "other", split_by="name")
    with pytest.raises(UsageError, match=r"^split_by='prt': there is no such column"):
        catalog.add(source({"train": table}), "other", split_by="prt")


def test_splits_that_differ_only_in_case_are_refused(catalog: registry.Catalog) -> None:
    told = "the splits 'Train' and 'train' differ only in case, and their files would have the same names"
    table = PRICES.append_column("part", [["train", "test", "Train"] * 100])
    with pytest.raises(SourceError) as caught:
        catalog.add(source({"train": table}), "prices", split_by="part")
    assert (caught.value.message, caught.value.hint) == (told, "Write them alike in the column 'part'.")
    for data, arguments in (
        (source({"Train": PRICES, "train": PRICES}), {}),
        (source({"train": PRICES}), {"holdout": "Train=10%"}),
    ):
        with pytest.raises(SourceError) as caught:
            catalog.add(data, "prices", **arguments)
        assert (caught.value.message, caught.value.hint) == (told, "Rename one of them.")
    assert catalog.datasets() == ()


def test_a_holdout_stays_stable_when_rows_are_added(catalog: registry.Catalog) -> None:
    first = catalog.add(source({"train": PRICES}), "prices", holdout="test=20%", seed=3)
    assert set(first.splits) == {"train", "test"}
    before = {one["name"] for one in read_all(catalog, "prices", "test")}
    assert 30 < len(before) < 90
    more = pa.table({"name": [f"new {n}" for n in range(100)], "price": [0.0] * 100})
    catalog.add(source({"train": pa.concat_tables([more, PRICES])}), "prices", holdout="test=20%", seed=3)
    after = {one["name"] for one in read_all(catalog, "prices", "test")}
    assert {name for name in after if name.startswith("item")} == before
    catalog.add(source({"train": PRICES}), "other", holdout="test=20%", seed=4)
    assert {one["name"] for one in read_all(catalog, "other", "test")} != before


@pytest.mark.parametrize("text", ["test", "test=0%", "test=100%", "test=0.1", "=10%"])
def test_an_invalid_holdout_is_refused(catalog: registry.Catalog, text: str) -> None:
    with pytest.raises(UsageError, match=r"^invalid holdout"):
        catalog.add(source({"train": PRICES}), "prices", holdout=text)


def test_a_holdout_needs_a_split_to_cut(catalog: registry.Catalog) -> None:
    with pytest.raises(UsageError, match=r"^the source has a split 'test' already"):
        catalog.add(source({"train": PRICES, "test": PRICES}), "prices", holdout="test=10%")
    with pytest.raises(UsageError, match="taken from the only split or from 'train'; the splits are a, b"):
        catalog.add(source({"a": PRICES, "b": PRICES}), "prices", holdout="test=10%")


PNG = encode_png(np.zeros((2, 2, 3), np.uint8))


@pytest.mark.parametrize(
    ("rows", "features", "hint", "as_requested"),
    [
        (
            [{"words": ["a"]}, {"words": ["b", "c"]}],
            {"words": "int32[]"},
            "No row fits. To keep the column as JSON text: features={'words': 'Text'}",
            {"words": "Text"},
        ),
        (
            [{"unit price": "a"}, {"unit price": "b"}],
            {"unit price": "int32"},
            "No row fits. To keep the column as text: features={'unit price': 'Text'}",
            {"unit price": "Text"},
        ),
        (
            [{"x": PNG[:40]}, {"x": b"GIF89a"}],
            {"x": "Image"},
            "No row fits. To keep the column as bytes: features={'x': 'bytes'}",
            {"x": "bytes"},
        ),
        (
            [{"x": "a.png"}],
            {"x": "Image"},
            'No row fits. To read files by the paths in "x": call it file_name in a metadata.csv beside the files. '
            "In Python, pass their bytes",
            {},
        ),
        (
            [{"x": b"\xff"}],
            {"x": "Text"},
            "No row fits. To keep the column as bytes: features={'x': 'bytes'}",
            {"x": "bytes"},
        ),
    ],
)
def test_no_hint_advises_to_leave_out_every_row(
    catalog: registry.Catalog, rows: Any, features: Any, hint: str, as_requested: Any
) -> None:
    with pytest.raises(UnusableRowsError) as caught:
        catalog.add(rows, "rows", features=features)
    assert caught.value.hint == hint
    assert catalog.add(rows, "rows", features=as_requested).splits == {"train": len(rows)}


def test_a_file_without_a_usable_row_has_no_hint_to_leave_all_out(catalog: registry.Catalog, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("no JSON\nnor this\n")
    with pytest.raises(UnusableRowsError) as caught:
        catalog.add(tmp_path / "x.jsonl")
    assert caught.value.hint == "No row fits. Check how the source is written."


def test_a_title_above_the_header_is_not_an_advice_to_leave_out_the_table(
    catalog: registry.Catalog, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text("# of 2024\n# by a tool\nid,v\n" + "".join(f"{row},{row}\n" for row in range(30)))
    with pytest.raises(UnusableRowsError) as caught:
        catalog.add(tmp_path / "x.csv")
    assert caught.value.hint == (
        "Most rows do not fit. Check how the source is written, and that its first line is neither a title nor a "
        "comment."
    )


def test_a_text_that_usually_means_null_says_how_to_read_it(catalog: registry.Catalog, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,v\n1,2.5\n2,3.5\n")
    catalog.add(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("id,v\n1,2.5\n2,NA\n3,n/a\n")
    with pytest.raises(UnusableRowsError) as caught:
        catalog.add(tmp_path / "x.csv")
    assert "If it means null: nulls=['NA', 'n/a']. To infer" in (caught.value.hint or "")
    catalog.add(tmp_path / "x.csv", nulls=["NA", "n/a"], retype=True)
    assert {row["v"] for row in catalog.dataset("x").read("train")} == {2.5, None}
    (tmp_path / "x.csv").write_text("id,v\n1,2.5\n2,NA\n3,-\n")
    with pytest.raises(UnusableRowsError) as caught:
        catalog.add(tmp_path / "x.csv")
    assert "If it means null: nulls=['NA', 'n/a', '-']" in (caught.value.hint or "")


def test_the_null_of_a_dump_is_noted_in_columns_of_text(catalog: registry.Catalog, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,name,none\n1,bob,\\N\n2,\\N,\\N\n3,see \\N,\\N\n4,amy,\\N\n")
    columns = catalog.add(tmp_path / "x.csv", dry_run=True).plan.schema.columns[1:]
    way = r"is null in dumps of databases; if it means null: nulls=['\\N']"
    assert [column.reason for column in columns] == [
        rf'the values are text; "\\N" at x.csv:{line} {way}' for line in (3, 2)
    ]
    catalog.add(tmp_path / "x.csv", nulls=[r"\N"])
    names = {row["name"] for row in catalog.dataset("x").read("train")}
    assert names == {b"bob", None, rb"see \N", b"amy"}


def test_a_csv_with_all_fields_in_quotes_offers_the_nulls_in_quotes(catalog: registry.Catalog, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('"name","n","v"\n"a","","NA"\n"","7","1.5"\n"c","8","2.5"\n')
    ways: list[dict[str, list[str]]] = [
        {},
        {"nulls": ["", "NA"]},  # of fields without quotes
        {"nulls": ['""', '"NA"']},
    ]
    reasons = [
        [column.reason for column in catalog.add(tmp_path / "x.csv", dry_run=True, **way).plan.schema.columns[1:]]
        for way in ways
    ]
    assert reasons == [
        [
            '"" at x.csv:2 is not a number; if it means null: nulls=[\'""\']',
            '"NA" at x.csv:2 is not a number; if it means null: nulls=[\'"NA"\']',
        ],
        [
            "\"\" at x.csv:2 is not a number; if it means null: nulls=['', 'NA', '\"\"']",
            "\"NA\" at x.csv:2 is not a number; if it means null: nulls=['', 'NA', '\"NA\"']",
        ],
        ["every value is an integer", "every value is a decimal number"],
    ]
    catalog.add(tmp_path / "x.csv", **ways[2])
    rows = sorted(catalog.dataset("x").read("train"), key=lambda row: row["n"] or 0)
    assert [dict(row) for row in rows] == [
        {"name": b"a", "n": None, "v": None},
        {"name": None, "n": 7, "v": 1.5},
        {"name": b"c", "n": 8, "v": 2.5},
    ]


def test_a_text_in_quotes_is_not_offered_as_null_because_another_column_has_it_without_quotes(
    catalog: registry.Catalog, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text('"country","n"\n"NA",7\n"DE",NA\n"FR",8\n')  # as R writes it
    columns = catalog.add(tmp_path / "x.csv", dry_run=True).plan.schema.columns
    assert columns[1].reason == "\"NA\" at x.csv:3 is not a number; if it means null: nulls=['NA']"
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "1.csv").write_text('"country","n"\n"NA",7\n')
    (tmp_path / "x" / "2.csv").write_text('"country","n"\n"DE",NA\n"FR",8\n')
    columns = catalog.add(tmp_path / "x", dry_run=True).plan.schema.columns
    assert columns[1].reason == "\"NA\" at 2.csv:2 is not a number; if it means null: nulls=['NA']"
    catalog.add(tmp_path / "x.csv", nulls=["NA"])
    assert {(row["country"], row["n"]) for row in catalog.dataset("x").read("train")} == {
        (b"NA", 7),
        (b"DE", None),
        (b"FR", 8),
    }


def test_the_hint_of_rows_with_mixed_lists_has_whole_sentences(catalog: registry.Catalog) -> None:
    with pytest.raises(UnusableRowsError) as caught:
        catalog.add([{"words": [1, "a"]}], "rows")
    assert caught.value.hint == "No row fits. To keep the column as text: features={'words': 'Text'}"


def test_unusable_rows_end_the_run_and_are_all_counted(catalog: registry.Catalog) -> None:
    bad = tuple(BadRow(file="x.csv", line=n, reason="expected 2 values, found 1") for n in range(1, 31))
    broken = source([("train", "x.csv", Table(PRICES, bad=bad))])
    with pytest.raises(UnusableRowsError) as caught:
        catalog.add(broken, "prices")
    lines = caught.value.message.splitlines()
    assert lines[:2] == ["30 rows or files cannot be used", "  x.csv:1: expected 2 values, found 1"]
    assert lines[-1] == "  and 10 more"
    assert caught.value.hint == "Correct them, or leave them out: skip_bad=30"
    assert catalog.datasets() == ()
    with pytest.raises(UnusableRowsError, match="and at most 29 may be skipped"):
        catalog.add(broken, "prices", skip_bad=29)
    report = catalog.add(broken, "prices", skip_bad=30)
    assert (report.num_bad, len(report.bad)) == (30, 30)
    stored = catalog.dataset("prices").info.metadata["skipped_rows"]
    assert stored["count"] == 30
    assert stored["rows"][0] == {"file": "x.csv", "line": 1, "reason": "x.csv:1: expected 2 values, found 1"}


def test_a_source_without_rows_is_refused(catalog: registry.Catalog) -> None:
    with pytest.raises(SourceError, match=r"^the source has no rows"):
        catalog.add(source({"train": PRICES.slice(0, 0)}), "prices")
    with pytest.raises(SourceError, match=r": the split 'test' has no rows"):
        catalog.add(source({"train": PRICES, "test": PRICES.slice(0, 0)}), "prices")


def test_hints_of_the_source_become_features(catalog: registry.Catalog) -> None:
    table = pa.table({"label": [0, 1, 1]})
    catalog.add(source({"train": table}, hints={"label": ClassLabel(names=["cat", "dog"])}), "animals")
    assert catalog.dataset("animals").features["label"] == ClassLabel(names=["cat", "dog"])


def test_processes_do_not_change_the_content(catalog: registry.Catalog) -> None:
    catalog.add(source({"train": PRICES}), "prices")
    assert catalog.add(source({"train": PRICES}, step=20), "prices", processes=2).outcome == "unchanged"


@pytest.mark.parametrize(("least", "num_workers"), [(300, 2), (301, 0)])
def test_many_rows_are_encoded_by_workers(
    catalog: registry.Catalog, monkeypatch: pytest.MonkeyPatch, least: int, num_workers: int
) -> None:
    catalog.add(source({"train": PRICES}), "prices", processes=1)
    started = []
    monkeypatch.setattr(staging, "_MANY_ROWS", least)
    monkeypatch.setattr(choice, "num_cpus", lambda: 2)
    monkeypatch.setattr(choice, "_SMALL_ITEMS", 0)
    start = workers.WorkerProcesses._start
    monkeypatch.setattr(workers.WorkerProcesses, "_start", lambda self: started.append(start(self)) or started[-1])
    assert catalog.add(source({"train": PRICES}, step=20), "prices").outcome == "unchanged"
    assert len(started) == num_workers


def test_an_object_needs_a_name(catalog: registry.Catalog) -> None:
    with pytest.raises(UsageError, match=r"^a dataset from a Python object needs a name"):
        catalog.add(source({"train": PRICES}))


@given(rows=st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), min_size=1, max_size=40), data=st.data())
def test_order_and_parts_never_change_the_bytes(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, str]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("law")
    with registry.connect(folder / "catalog.db", data_dir=folder / "data") as catalog:
        table = pa.table({"n": [one for one, _ in rows], "t": [one for _, one in rows]})
        catalog.add(source({"train": table}), "law")
        order = data.draw(st.permutations(range(len(rows))))
        cut = data.draw(st.integers(0, len(rows)))
        mixed = table.take(list(order))
        parts = [("train", "a", mixed.slice(0, cut)), ("train", "b", mixed.slice(cut))]
        step = data.draw(st.integers(1, 10))
        assert catalog.add(source(parts, step=step), "law").outcome == "unchanged"
        assert len(read_all(catalog, "law")) == len(rows)


def test_of_adders_at_once_each_gets_a_number_of_its_own(catalog_url: str, tmp_path: Path) -> None:
    def add(number: int) -> str:
        with registry.connect(catalog_url, data_dir=tmp_path / "data") as catalog:
            report = catalog.add(source({"train": PRICES.slice(0, 10 + number)}), "prices", processes=1)
        return str(report.reference)

    with registry.connect(catalog_url), ThreadPoolExecutor(4) as pool:
        found = sorted(pool.map(add, range(4)))
    assert found == [f"prices:{number}.0.0" for number in range(1, 5)]
    assert set(folders_of(tmp_path)) == {"1.0.0", "2.0.0", "3.0.0", "4.0.0"}


def folders_of(folder: Path) -> list[str]:
    return [one.name for one in (folder / "data" / "prices").iterdir() if one.is_dir()]


def test_with_a_complete_schema_rows_are_read_once(catalog: registry.Catalog, tmp_path: Path) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text("columns:\n  name: Text\n  price: float64\n")
    stages: list[str] = []
    table = pa.table({"name": ["a", "b", None], "price": [1.0, 2.0, 3.0]})
    with pytest.raises(UnusableRowsError) as caught:
        catalog.add(source([("train", "x", table)]), "prices", schema=schema)
    assert caught.value.message.splitlines()[1].startswith("  x:3, column 'name': ")
    catalog.add(
        source({"train": table.slice(0, 2)}), "prices", schema=schema, progress=lambda one: stages.append(one.stage)
    )
    assert "reading" not in stages
    assert [one["name"] for one in read_all(catalog, "prices")] in (["a", "b"], ["b", "a"])
    with pytest.raises(SourceError, match='column "stock" is not in the schema'):
        catalog.add(source([("train", "a", PRICES), ("train", "b", {"stock": [1]})]), "prices", schema=schema)


def test_arguments_without_an_effect_are_refused(catalog: registry.Catalog) -> None:
    check_errors(
        GOLDEN / "add" / "arguments_without_an_effect_are_refused.txt",
        (
            partial(catalog.add, [{"a": 1}], "objects", **arguments)
            for arguments in [
                {"skip_bad": -1},
                {"num_shards": 0},
                {"kind": "csv"},
                {"nulls": ["NA"], "header": False},
                {"splits": {"train": "*"}, "records": "a"},
            ]
        ),
    )
    assert catalog.datasets() == ()


def test_a_report_is_short_in_a_notebook(catalog: registry.Catalog) -> None:
    report = catalog.add({"train": [{"a": 1}, {"a": 2}], "test": [{"a": 3}]}, "objects")
    assert repr(report) == "<AddReport objects:1.0.0 published: train 2, test 1>"


def test_without_pyarrow_the_extra_is_named(catalog: registry.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError) as caught:
        catalog.add("prices.csv")
    assert caught.value.message == "adding data needs the package 'pyarrow', which is not installed"
    assert caught.value.hint == "Install it with: pip install 'shardbook[arrow]'"


def test_exported_lists_with_nan_and_infinity_are_added_again(catalog: registry.Catalog, tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2, 3], "points": [[1.5, float("nan")], [float("nan")], [float("-inf"), 2.0]]})
    catalog.add(table, "points")
    catalog.dataset("points").export("jsonl", tmp_path / "points.jsonl")
    with pytest.raises(SourceError, match=r"points\[\]"):  # without a request, a list of only "nan" is a list of texts
        catalog.add(tmp_path / "points.jsonl", "again")
    catalog.add(tmp_path / "points.jsonl", "again", features={"points": "float64[]"})
    assert catalog.dataset("again").features == catalog.dataset("points").features
    rows = [sorted(catalog.dataset(name).read("train"), key=lambda row: row["id"]) for name in ("points", "again")]
    np.testing.assert_equal(rows[1], rows[0])


def test_an_exported_nan_is_added_to_its_own_dataset_and_no_other_text_is(
    catalog: registry.Catalog, tmp_path: Path
) -> None:
    nan = float("nan")
    rows = [
        {"id": 1, "x": nan, "points": [nan], "place": {"y": 1.0}},
        {"id": 2, "x": 2.5, "points": [], "place": {"y": float("-inf")}},
    ]
    catalog.add(rows, "points", key="id")
    catalog.dataset("points").export("jsonl", tmp_path / "points.jsonl")
    assert str(catalog.add(tmp_path / "points.jsonl", "points", replace=True).outcome) == "unchanged"
    text = (tmp_path / "points.jsonl").read_text()
    for word, where in (('"x": "nan"', "'x'"), ('["nan"]', "'points'"), ('"-inf"', "'place'")):
        assert word in text
        (tmp_path / "other.jsonl").write_text(text.replace(word, word.replace("nan", "NaN").replace("-inf", "-Inf")))
        with pytest.raises(UnusableRowsError, match=rf"column {where}: .*expected float64, found"):
            catalog.add(tmp_path / "other.jsonl", "points", replace=True)


def test_the_names_of_splits_are_not_listed_for_every_file(
    catalog: registry.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[int] = []
    names = Source.splits.fget
    assert names is not None

    def splits(self: Source) -> tuple[str, ...]:
        walks.append(len(self.parts))
        return tuple(names(self))

    monkeypatch.setattr(Source, "splits", property(splits))
    catalog.add(source([("train", f"{n}.csv", PRICES.slice(n, 1)) for n in range(100)]), "prices", processes=1)
    assert len(walks) < 20
