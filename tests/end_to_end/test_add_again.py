"""The second addition of a dataset has the types of the first one."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pyarrow.csv import write_csv

from registry.api import Catalog
from registry.errors import SourceError, UnusableRowsError, UsageError
from registry.features import ClassLabel, Tensor
from registry.images.png import encode_png
from registry.intake.schema import describe_type

REQUESTS = {
    "when": "date32",
    "label": "ClassLabel",
    "zip": "Text",
    "small": "int8",
    "left": "skip",
    "maybe": "float32?",
    "days": "date32[]",
    "pair": "time64[us][2]",
}
HEADER = "when,label,zip,small,left,maybe,free,days,pair\n"
LISTS = ',"[""2026-01-31""]","[""12:30:00"", ""12:31:00""]"\n'
ROWS = f"2026-01-31,dog,1069,1,x,1.5,1{LISTS}2026-02-01,cat,2000,2,y,,2{LISTS}"


def add_csv(catalog: Catalog, folder: Path, text: str, **options: Any) -> Any:
    path = folder / "rows.csv"
    path.write_text(text)
    return catalog.add(path, **options)


def types_of(report: Any) -> dict[str, Any]:
    return {column.name: (column.feature, str(column.arrow_type)) for column in report.plan.schema.columns}


def labels_of(catalog: Catalog) -> dict[str, str]:
    dataset = catalog.dataset("rows")
    names = dataset.features["label"].names
    return {str(row["zip"].decode()): names[int(row["label"])] for row in dataset.read("train")}


@pytest.mark.parametrize("content", ["day,n\n2026-01-31,1\n", '{"day": "2026-01-31", "n": 1}\n'])
def test_dates_are_offered_converted_on_request_and_remembered(tmp_path: Path, catalog: Catalog, content: str) -> None:
    path = tmp_path / ("d.jsonl" if content[0] == "{" else "d.csv")
    path.write_text(content)
    offered = catalog.add(path, dry_run=True)
    assert types_of(offered)["day"][1] == "string"
    assert offered.plan.schema.columns[0].reason == (
        "ISO dates or times; to convert them: features={'day': 'date32'}, or dates=True"
    )
    first = catalog.add(path, dates=True)
    assert types_of(first)["day"][1] == "date32[day]"
    assert catalog.add(path).outcome == "unchanged"
    assert types_of(catalog.add(path, retype=True))["day"][1] == "string"
    with pytest.raises(UsageError, match="by these options: `dates`"):
        catalog.add(tmp_path, in_place=True, dates=True)


def test_requested_types_are_remembered(tmp_path: Path, catalog: Catalog) -> None:
    first = add_csv(catalog, tmp_path, HEADER + ROWS, features=REQUESTS)
    assert add_csv(catalog, tmp_path, HEADER + ROWS).outcome == "unchanged"
    second = add_csv(catalog, tmp_path, HEADER + ROWS + "2026-02-02,cat,3000,3,z,2.5,3" + LISTS)
    assert types_of(second) == types_of(first)
    assert second.plan.schema.skipped == ("left",)
    # By the metadata of the second one.
    third = add_csv(catalog, tmp_path, HEADER + "2026-02-03,dog,4000,4,z,2.5,3" + LISTS)
    assert types_of(third) == types_of(first)


@pytest.mark.parametrize("name", ["when", "when[]", "a/b"])
def test_a_requested_type_is_remembered_whatever_the_name_of_its_column(catalog: Catalog, name: str) -> None:
    catalog.add({name: np.array([1, 2], "datetime64[s]")}, "rows", features={name: "timestamp[s]"})
    with pytest.raises(UnusableRowsError, match="expected timestamp"):
        catalog.add({name: np.array([1, 3], "datetime64[ms]")}, "rows")


def test_new_classes_follow_those_of_the_version_before(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, HEADER + ROWS, features=REQUESTS)
    report = add_csv(catalog, tmp_path, HEADER + ROWS + "2026-02-02,ant,3000,3,z,2.5,3" + LISTS)
    (label,) = (column for column in report.plan.schema.columns if column.name == "label")
    assert label.feature == ClassLabel(names=["cat", "dog", "ant"])
    assert label.reason == '3 classes, as in the previous version; new: "ant"'
    assert labels_of(catalog) == {"1069": "dog", "2000": "cat", "3000": "ant"}
    # A class that no record has any more keeps its number.
    report = add_csv(catalog, tmp_path, HEADER + "2026-02-02,dog,3000,3,z,2.5,3" + LISTS)
    assert report.plan.schema.features()["label"] == ClassLabel(names=["cat", "dog", "ant"])


def test_a_value_that_does_not_fit_is_refused_with_its_line(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, HEADER + ROWS, features=REQUESTS)
    with pytest.raises(UnusableRowsError) as caught:
        add_csv(catalog, tmp_path, HEADER + ROWS + "soon,dog,3000,300,z,2.5,3" + LISTS)
    assert "rows.csv:4, column 'when': expected date32 such as 2026-01-31, found \"soon\"" in str(caught.value)
    assert caught.value.hint == (
        "Correct them, or leave them out: skip_bad=1. If it means null: nulls=['soon']. To infer all types anew, "
        "not as in the previous version: retype=True. To change only the types of these columns: "
        "features={'when': 'Text', 'small': 'Text'}"
    )
    assert str(catalog.dataset("rows").version) == "1.0.0"


def test_retype_infers_anew_and_a_request_decides(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, HEADER + ROWS, features=REQUESTS)
    text = HEADER + ROWS.replace("dog", "ant")
    report = add_csv(catalog, tmp_path, text, retype=True, features={"label": "ClassLabel"})
    kinds = {name: kind for name, (_, kind) in types_of(report).items()}
    assert kinds == {
        "when": "string",
        "label": "int64",
        "zip": "int64",
        "small": "int64",
        "left": "string",
        "maybe": "double",
        "free": "int64",
        "days": "string",
        "pair": "string",
    }
    assert report.plan.schema.features()["label"] == ClassLabel(names=["ant", "cat"])
    report = add_csv(catalog, tmp_path, text, features={"label": "Text", "zip": "Text"})
    assert types_of(report)["label"][1] == "string"


def test_a_column_that_is_missing_is_missing(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, HEADER + ROWS, features=REQUESTS)
    report = add_csv(catalog, tmp_path, "when,free\n2026-03-01,1\n")
    assert {name: kind for name, (_, kind) in types_of(report).items()} == {"when": "date32[day]", "free": "int64"}


@pytest.mark.parametrize("rows", [[0, 1], [0, 1, 2, 5], [0]])
def test_classes_that_are_numbers_never_become_fewer(catalog: Catalog, rows: list[int]) -> None:
    catalog.add([{"label": number} for number in (0, 3)], "rows", features={"label": "ClassLabel"})
    report = catalog.add([{"label": number} for number in rows], "rows")
    assert report.plan.schema.features()["label"] == ClassLabel(num_classes=max(4, *rows, 0) + (max(rows) > 3))


def test_classes_do_not_change_from_names_to_numbers(catalog: Catalog) -> None:
    catalog.add([{"label": name} for name in ("cat", "dog")], "rows", features={"label": "ClassLabel"})
    catalog.add([{"label": 1}], "rows")  # a number of a class
    with pytest.raises(
        SourceError, match='column "label": its classes were the names "cat", "dog" in the previous version'
    ):
        catalog.add([{"label": 7}], "rows")


def test_the_classes_of_folders_keep_their_numbers(tmp_path: Path, catalog: Catalog) -> None:
    for folder in ("cat", "dog", "ant"):
        (tmp_path / "pictures" / folder).mkdir(parents=True)
        pixels = np.full((4, 4), ord(folder[0]), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / folder / "1.png")
        if folder != "cat":
            catalog.add(tmp_path / "pictures", "pictures")
    dataset = catalog.dataset("pictures")
    assert dataset.features["label"].names == ("cat", "dog", "ant")
    labels = {int(row["image"][0, 0, 0]): int(row["label"]) for row in dataset.read("train")}
    assert labels == {ord("c"): 0, ord("d"): 1, ord("a"): 2}
    report = catalog.add(tmp_path / "pictures", "pictures", retype=True)
    assert report.plan.schema.features()["label"].names == ("ant", "cat", "dog")  # type: ignore[attr-defined]


def refusal(catalog: Catalog, rows: Any, **options: Any) -> UnusableRowsError:
    with pytest.raises(UnusableRowsError) as caught:
        catalog.add(rows, "rows", **options)
    return caught.value


@pytest.mark.parametrize(
    ("first", "second", "fault"),
    [
        ("7", "abc", 'expected int64, found "abc"'),
        ("7", "1.5", 'expected int64, found "1.5"'),
        ("7", "007", 'expected int64, found "007"'),
        ("7", "9223372036854775808", 'expected int64, found "9223372036854775808"'),
        ("7", "", "is null, but the type int64 does not allow nulls; int64? does"),
        ("1.5", "0.1234567890123456789", 'expected float64, found "0.1234567890123456789"'),
        ("1.5", "1e5", 'expected float64, found "1e5"'),
        ("true", "1", 'expected bool, found "1"'),
        ("a", "", "is null, but the type Text does not allow nulls; Text? does"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_line(
    tmp_path: Path, catalog: Catalog, first: str, second: str, fault: str
) -> None:
    add_csv(catalog, tmp_path, f"id,x\n1,{first}\n")
    (tmp_path / "rows.csv").write_text(f"id,x\n1,{first}\n2,{second}\n")
    error = refusal(catalog, tmp_path / "rows.csv")
    assert error.message == f"1 row or file cannot be used\n  rows.csv:3, column 'x': {fault}"
    assert "To infer all types anew, not as in the previous version: retype=True. To change one type: fea" in error.hint
    assert str(catalog.add(tmp_path / "rows.csv", retype=True).reference) == "rows:2.0.0"


def test_an_error_of_a_type_says_how_to_change_it(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, "id,unit price\n1,7\n")
    error = refusal(catalog, (tmp_path / "rows.csv").write_text("id,unit price\n1,7\n2,\n") and tmp_path / "rows.csv")
    assert error.hint == (
        "Correct them, or leave them out: skip_bad=1. To infer all types anew, not as in the previous version: "
        "retype=True. To change one type: features={'unit price': 'int64?'}"
    )
    report = catalog.add(tmp_path / "rows.csv", features={"unit price": "int64?"})
    assert str(report.reference) == "rows:2.0.0"


@pytest.mark.parametrize("form", ["csv", "parquet", "frames"])
@pytest.mark.parametrize("word", ["?", "Text?", "ClassLabel", "ClassLabel?", "skip"])
def test_a_split_without_labels_is_a_split_of_the_same_table(
    tmp_path: Path, catalog: Catalog, form: str, word: str
) -> None:
    train = pa.table({"id": [1, 2], "animal": ["cat", "dog"]})
    splits = {"train": train, "test": pa.table({"id": [3]})}
    source: Any = splits if form == "frames" else tmp_path / "pets"
    write = {"csv": write_csv, "parquet": pq.write_table}.get(form)
    for name, table in splits.items() if write is not None else ():
        source.mkdir(exist_ok=True)
        write(table, source / f"{name}.{form}")
    with pytest.raises(SourceError) as caught:
        catalog.add(source, "pets")
    assert "one table, with null where a file lacks a column: features={'animal': '?'}." in (caught.value.hint or "")
    report = catalog.add(source, "pets", features={"animal": word})
    assert dict(report.splits) == {"train": 2, "test": 1}
    rows = list(catalog.dataset("pets").read("test"))
    assert [row.get("animal") for row in rows] == [-1 if word.startswith("ClassLabel") else None]
    assert catalog.add(source, "pets").outcome == "unchanged"
    assert catalog.add(source, "pets", features={"animal": word}).outcome == "unchanged"


def test_objects_that_some_files_lack_are_remembered(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "rows").mkdir()
    pq.write_table(pa.table({"id": [1], "size": [{"x": 1, "y": 2}]}), tmp_path / "rows" / "1.parquet")
    pq.write_table(pa.table({"id": [2]}), tmp_path / "rows" / "2.parquet")
    catalog.add(tmp_path / "rows", "rows", features={"size": "?"})
    assert catalog.add(tmp_path / "rows", "rows").outcome == "unchanged"
    with pytest.raises(UsageError) as caught:
        catalog.add([{"id": 1}, {"id": 2, "size": {"x": 1, "y": 2}}], "more", features={"colour": "?"})
    assert caught.value.message == 'a type is requested for "colour", but there is no such column'


PIXELS = encode_png(np.zeros((2, 2, 3), np.uint8))
TRAITS: dict[str, tuple[pa.Array, str]] = {
    "list": (pa.array([["u", "v"]]), "[]"),
    "list_of_objects": (pa.array([[{"u": 1}]]), '{"u": []}'),
    "object_with_a_list": (pa.array([{"u": 1, "v": [1, 2]}]), '{"u": null, "v": []}'),
    "image": (pa.array([{"bytes": PIXELS, "path": "a.png"}]), "[]"),
    "classes": (pa.array([1]), "-1"),
    "nulls": (pa.nulls(1), "null"),
}
"""The value of a column in a file, and as JSON in another file, which lacks the column."""

DESCRIBED = {"image": {"_type": "Image"}, "classes": {"_type": "ClassLabel", "names": ["cat", "dog"]}}


@pytest.mark.parametrize("places", [(1, 2), (2, 1)])
@pytest.mark.parametrize("trait", TRAITS)
def test_columns_of_every_type_may_be_missing_in_some_files(
    tmp_path: Path, catalog: Catalog, trait: str, places: tuple[int, int]
) -> None:
    value, missing = TRAITS[trait]
    (tmp_path / "rows").mkdir()
    about = {"info": {"features": {name: node for name, node in DESCRIBED.items() if name == trait}}}
    full = pa.table({"id": [1], "x": value}).rename_columns(["id", trait])
    full = full.replace_schema_metadata({"huggingface": json.dumps(about)})
    for place, table in zip(places, (full, pa.table({"id": [2]})), strict=True):
        pq.write_table(table, tmp_path / "rows" / f"{place}.parquet")
    catalog.add(tmp_path / "rows", "rows", features={trait: "?"})
    dataset = catalog.dataset("rows")
    rows = {int(row["id"]): row[trait] for row in dataset.read("train")}
    assert json.dumps(rows[2], default=lambda value: value.tolist() if isinstance(value, np.generic) else [*value]) == (
        missing
    )
    if trait == "image":
        assert np.array(rows[1]).shape == (1, 2, 2, 3)
    if trait == "classes":
        assert dataset.features[trait] == ClassLabel(names=["cat", "dog"])
    assert catalog.add(tmp_path / "rows", "rows").outcome == "unchanged"
    assert catalog.add(tmp_path / "rows", "rows", features={trait: "?"}).outcome == "unchanged"


def test_a_column_with_a_question_mark_may_be_null_later(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, "id,size\n1,7\n", features={"size": "?"})
    assert dict(add_csv(catalog, tmp_path, "id,size\n1,7\n2,\n").splits) == {"train": 2}


def test_a_question_mark_does_not_make_values_without_a_common_type_text(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a": {"b": 2}}\n')
    with pytest.raises(SourceError) as caught:
        catalog.add(tmp_path / "rows.jsonl", features={"a": "?"})
    assert caught.value.message == 'column "a": it is int64 at rows.jsonl:1, and struct at rows.jsonl:2'


def test_a_column_of_folders_with_a_question_mark_has_the_inferred_type(tmp_path: Path, catalog: Catalog) -> None:
    for year in (2022, 2023):
        (tmp_path / "rows" / f"year={year}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [year]}), tmp_path / "rows" / f"year={year}" / "a.parquet")
    assert types_of(catalog.add(tmp_path / "rows", "rows", features={"year": "?"}))["year"][1] == "int64"


def test_the_hint_for_a_missing_column_keeps_its_requested_type(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "1.csv").write_text("id,size,animal\n1,7,cat\n")
    (tmp_path / "rows" / "2.csv").write_text("id\n2\n")
    features = {"size": "int8", "animal": "ClassLabel(dog, cat)"}
    with pytest.raises(SourceError) as caught:
        catalog.add(tmp_path / "rows", "rows", features=features)
    assert "where a file lacks a column: features={'size': 'int8?'}." in (caught.value.hint or "")
    catalog.add(tmp_path / "rows", "rows", features=features | {"size": "int8?"})
    rows = {int(row["id"]): (row["size"], row["animal"]) for row in catalog.dataset("rows").read("train")}
    assert rows == {1: (7, 1), 2: (None, -1)}
    assert catalog.add(tmp_path / "rows", "rows").outcome == "unchanged"


def test_a_type_for_a_column_that_no_file_has_is_refused(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "1.csv").write_text("id,size\n1,7\n")
    (tmp_path / "rows" / "2.csv").write_text("id\n2\n")
    with pytest.raises(UsageError) as caught:
        catalog.add(tmp_path / "rows", "rows", features={"id": "int64?", "size": "int8?", "sise": "int8?"})
    assert caught.value.message == 'a type is requested for "sise", but there is no such column'


def test_a_column_with_a_question_mark_keeps_the_type_of_the_previous_version(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "1.csv").write_text("id,size\n1,7\n")
    catalog.add(tmp_path / "rows", "rows", features={"size": "float32"})
    (tmp_path / "rows" / "2.csv").write_text("id\n2\n")
    report = catalog.add(tmp_path / "rows", "rows", features={"size": "?"})
    assert types_of(report)["size"][1] == "float"
    assert {row["id"]: row["size"] for row in catalog.dataset("rows").read("train")} == {1: 7, 2: None}


def test_a_header_after_a_version_without_one_is_not_a_row(tmp_path: Path, catalog: Catalog) -> None:
    names = {"column_1": "n", "column_2": "name"}
    add_csv(catalog, tmp_path, "x,a\ny,b\n", header=False, rename_columns=names)
    (tmp_path / "rows.csv").write_text("name,n\na,x\nb,y\n")
    with pytest.raises(SourceError) as caught:
        catalog.add(tmp_path / "rows.csv")
    assert (caught.value.message, caught.value.hint) == (
        "rows.csv:1: the first row has the names of the columns, but the previous version had no header",
        "If it is a header: header=True. If it is data: header=False",
    )
    assert catalog.add(tmp_path / "rows.csv", header=True).outcome == "unchanged"
    assert dict(catalog.add(tmp_path / "rows.csv", header=False).splits) == {"train": 3}


def test_an_error_of_a_type_that_was_requested_before_says_how_to_change_it(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, "id,when\n1,2026-01-31\n", features={"when": "date32"})
    changed = "id,when\n1,2026-01-31\n2,unknown\n"
    error = refusal(catalog, (tmp_path / "rows.csv").write_text(changed) and tmp_path / "rows.csv")
    assert error.hint == (
        "Correct them, or leave them out: skip_bad=1. If it means null: nulls=['unknown']. To infer all types anew, "
        "not as in the previous version: retype=True. To change one type: features={'when': 'Text'}"
    )
    report = catalog.add(tmp_path / "rows.csv", features={"when": "Text"}, dry_run=True)
    assert types_of(report)["when"][1] == "string"
    (tmp_path / "rows.csv").write_text("id,when\n1,soon\n2,x1\n")
    error = refusal(catalog, tmp_path / "rows.csv")
    assert error.hint == (
        "No row fits. To infer all types anew, not as in the previous version: "
        "retype=True. To change one type: features={'when': 'Text'}"
    )
    (tmp_path / "rows.csv").write_text(changed)
    report = catalog.add(tmp_path / "rows.csv", nulls=["unknown"], features={"when": "date32?"})
    assert types_of(report)["when"][1] == "date32[day]"
    catalog.add([{"x": "a"}, {"x": "b"}], "rows", features={"x": "Text"}, replace=True)
    error = refusal(catalog, [{"x": "a"}, {"x": b"\xff"}])
    assert str(error.hint).endswith("To change one type: features={'x': 'bytes'}")
    (tmp_path / "rows.csv").write_text("ok,id\ntrue,1\nfalse,2\nmaybe,3\n")
    error = refusal(catalog, tmp_path / "rows.csv", features={"ok": "bool"}, retype=True, replace=True)
    assert "null" not in str(error.hint)  # a third answer is hardly a null


@pytest.mark.parametrize(
    ("word", "first", "second", "fitting"), [("?", '["x"]', "[5]", "int64[]?"), ("int64[]?", "[5]", '["x"]', "Text?")]
)
def test_an_error_of_a_list_that_may_be_null_offers_a_type_that_may_be_null(
    tmp_path: Path, catalog: Catalog, word: str, first: str, second: str, fitting: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"id": 1}}\n{{"id": 2, "tags": {first}}}\n')
    catalog.add(path, features={"tags": word})
    path.write_text(f'{{"id": 1}}\n{{"id": 2, "tags": {second}}}\n')
    assert f"To change one type: features={{'tags': '{fitting}'}}" in (refusal(catalog, path).hint or "")
    assert dict(catalog.add(path, features={"tags": fitting}).splits) == {"train": 2}


def test_an_error_of_types_names_all_columns_that_need_another(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, "id,code,weight,stock,price\n1,007,1.5,3,\n2,08A,2.5,4,7\n")
    (tmp_path / "rows.csv").write_text("id,code,weight,stock,price\n1,7,1,3,7\n2,,,,\n3,8,2,4.5,7.5\n4,9,3,5,7\n")
    error = refusal(catalog, tmp_path / "rows.csv")
    types = {"code": "Text?", "weight": "float64?", "stock": "float64?", "price": "float64?"}
    assert error.hint == (
        "Correct them, or leave them out: skip_bad=2. To infer all types anew, not as in the previous version: "
        f"retype=True. To change only the types of these columns: features={types}"
    )
    report = catalog.add(tmp_path / "rows.csv", features=types)
    assert dict(report.splits) == {"train": 4}


def test_nulls_in_most_rows_are_no_reason_for_text(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, "id,price\n1,7.5\n")
    (tmp_path / "rows.csv").write_text("id,price\n1,7.5\n2,\n3,\n")
    assert refusal(catalog, tmp_path / "rows.csv").hint == (
        "Most rows do not fit. To infer all types anew, not as in the previous version: retype=True. "
        "To change one type: features={'price': 'float64?'}"
    )


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("1.5", "2", "double"),
        ("a", "2", "string"),
        ("a", "true", "string"),
        ("18446744073709551615", "1", "uint64"),
        ("1\n2,", "3", "int64"),
    ],
)
def test_a_type_stays_if_the_values_look_like_another(
    tmp_path: Path, catalog: Catalog, first: str, second: str, kind: str
) -> None:
    before = add_csv(catalog, tmp_path, f"id,x\n1,{first}\n")
    assert types_of(before)["x"][1] == kind
    assert types_of(add_csv(catalog, tmp_path, f"id,x\n1,{second}\n")) == types_of(before)
    report = add_csv(catalog, tmp_path, f"id,x,y\n1,{second},new\n")  # by the metadata of the second one
    assert types_of(report) == {**types_of(before), "y": types_of(report)["y"]}
    assert str(report.reference) == "rows:2.1.0"
    (column,) = (column for column in report.plan.schema.columns if column.name == "x")
    assert column.reason.startswith("as in the previous version, else ")


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        (1, "1", 'expected int64, found "1"'),
        ("1", 1, "expected Text, found 1"),
        (1, True, "expected int64, found true"),
        (True, 1, "expected bool, found 1"),
        (1, 1.5, "expected int64, found 1.5"),
        (1.5, 2**53 + 1, "expected float64, found 9007199254740993"),
        ("a", b"a", "expected Text, found 1 byte"),
        (b"a", "a", 'expected bytes, found "a"'),
        ([1], ["a"], 'element 1: expected int64, found "a"'),
        ({"a": 1}, {"a": "b"}, "field \"a\": expected int64, found \"b\""),
        ({"a": 1}, {"a": None}, 'field "a": is null, but the type int64 does not allow nulls; int64? does'),
        (np.float32(0.5), np.float64(0.1), "expected float32, found 0.1"),
    ],
)  # fmt: skip
def test_objects_have_the_types_of_the_version_before(catalog: Catalog, before: Any, after: Any, fault: str) -> None:
    catalog.add([{"x": before}], "rows")
    error = refusal(catalog, [{"x": after}])
    assert error.message == f"1 row or file cannot be used\n  data:1, column 'x': {fault}"
    assert str(catalog.add([{"x": after}], "rows", retype=True).reference) == "rows:2.0.0"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": 1.5}, {"a": 2}),
        ({"a": None, "b": 1}, {"a": None, "b": 1}),
        ([{"a": 1.5}], [{"a": 2}]),
        ([b"a"], [b"b"]),
        (np.float32(0.1), np.float64(0.5)),
        (np.int32(1), np.int64(2)),
        (date(2026, 1, 31), date(2026, 2, 1)),
        ({"when": datetime(2026, 1, 31, tzinfo=UTC)}, {"when": datetime(2026, 2, 1, 12, tzinfo=UTC)}),
        (Decimal("1.50"), Decimal("2.125")),
    ],
)
def test_values_that_fit_keep_the_types(catalog: Catalog, before: Any, after: Any) -> None:
    first = catalog.add([{"x": before}], "rows")
    assert types_of(catalog.add([{"x": after}], "rows")) == types_of(first)


def test_a_new_field_is_new_and_the_others_keep_their_types(catalog: Catalog) -> None:
    catalog.add([{"x": {"a": 1.5, "t": datetime(2026, 1, 31, tzinfo=UTC)}}], "rows")
    report = catalog.add([{"x": {"b": "b", "a": 1, "t": datetime(2026, 1, 31, tzinfo=UTC)}}], "rows")
    (column,) = report.plan.schema.columns
    assert str(column.arrow_type) == "struct<b: string, a: double, t: timestamp[us, tz=UTC]>"
    assert str(report.reference) == "rows:2.0.0"  # a is 1.0


def test_pictures_keep_their_type(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "pictures").mkdir()
    for name, size in (("a", (4, 4)), ("b", (8, 8))):
        Image.fromarray(np.zeros(size, np.uint8)).save(tmp_path / f"pictures/{name}.png")
        report = catalog.add(tmp_path / "pictures", "pictures")
    assert str(report.reference) == "pictures:2.0.0"
    before = types_of(report)
    frames = [Image.fromarray(np.full((4, 4), grey, np.uint8)) for grey in (0, 255)]
    frames[0].save(tmp_path / "pictures/c.gif", save_all=True, append_images=frames[1:])
    with pytest.raises(UnusableRowsError, match=r"\n  c\.gif: it has 2 frames, but an Image has only one"):
        catalog.add(tmp_path / "pictures", "pictures")
    assert types_of(catalog.add(tmp_path / "pictures", "pictures", skip_bad=1)) == before
    assert types_of(catalog.add(tmp_path / "pictures", "pictures", retype=True)) != before


@pytest.mark.parametrize("height", [6, 7])
def test_pictures_that_were_exported_keep_their_size_unless_they_have_others(
    catalog: Catalog, tmp_path: Path, height: int
) -> None:
    """Only Parquet's bytes say how large its pictures are, so the sizes of the previous version were dropped."""
    for name in ("cat", "dog"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        (tmp_path / "pictures" / name / "1.png").write_bytes(encode_png(np.zeros((6, 8, 3), np.uint8)))
    catalog.add(tmp_path / "pictures", "pictures")
    catalog.dataset("pictures").export("parquet", tmp_path / "exported")
    table = pq.read_table(tmp_path / "exported/train.parquet")
    other = encode_png(np.zeros((height, 8, 3), np.uint8))
    column = pa.array([{"bytes": other}, *table["image"].to_pylist()[1:]], table.schema.field("image").type)
    pq.write_table(table.set_column(0, table.schema.field("image"), column), tmp_path / "exported/train.parquet")

    report = catalog.add(tmp_path / "exported", "pictures", replace=True)

    assert catalog.dataset("pictures").info.features["image"].shape == (6 if height == 6 else None, 8, 3)
    assert report.changes is not None
    assert any(change.kind == "features" for change in report.changes.changes) == (height != 6)


def test_a_number_of_a_class_is_that_of_the_version_before(catalog: Catalog) -> None:
    import datasets

    def table(names: list[str], numbers: list[int]) -> Any:
        features = datasets.Features({"label": datasets.ClassLabel(names=names)})
        return datasets.Dataset.from_dict({"label": numbers}, features=features)

    catalog.add(table(["cat", "dog"], [0, 1]), "rows")
    report = catalog.add(table(["cat", "dog", "ant"], [0, 1, 2]), "rows")
    (column,) = report.plan.schema.columns
    assert column.reason == '3 classes, as in the previous version; new: "ant"'
    with pytest.raises(SourceError) as caught:
        catalog.add(table(["ant", "cat", "dog"], [0, 1, 2]), "rows")
    assert caught.value.message == (
        'column "label": its classes were the names "cat", "dog", "ant" in the previous version, and are the names '
        '"ant", "cat", "dog" now'
    )
    assert caught.value.hint == "To number the classes anew: retype=True"


def test_dates_convert_columns_of_text_and_are_remembered(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, "id,when\n1,2026-01-31\n")
    add_csv(catalog, tmp_path, "id,when\n1,2026-01-31\n", dates=True)
    report = add_csv(catalog, tmp_path, "id,when\n1,2026-01-31\n2,2026-02-01\n")
    assert types_of(report)["when"][1] == "date32[day]"


def test_classes_that_are_renumbered_on_purpose_are_named(catalog: Catalog) -> None:
    rows = [{"id": number, "label": name} for number, name in enumerate(("cat", "dog", "fox"))]
    catalog.add(rows, "rows", features={"label": "ClassLabel"})
    rows[2]["label"] = "ant"
    report = catalog.add(rows, "rows", retype=True, features={"label": "ClassLabel"})
    change = next(one for one in report.changes.reasons if one.kind == "features")
    assert change.text == (
        "feature label is ClassLabel of 3 classes, was ClassLabel of 3 classes; new: 'ant'; gone: 'fox'; "
        "renumbered: 'cat' 0 -> 1, 'dog' 1 -> 2; its values were not compared"
    )
    assert change.brief == ("label has other classes (new: 'ant'; gone: 'fox'; renumbered: 'cat' 0 -> 1, 'dog' 1 -> 2)")


def test_a_requested_type_outlives_a_version_without_its_column(tmp_path: Path, catalog: Catalog) -> None:
    first = add_csv(catalog, tmp_path, HEADER + ROWS, features=REQUESTS)
    for free in (1, 2):  # the second one remembers it by the metadata of a version that lacks the columns
        add_csv(catalog, tmp_path, f"zip,free\n1069,{free}\n")
    report = add_csv(catalog, tmp_path, HEADER + ROWS)
    assert types_of(report) == types_of(first)
    assert report.plan.schema.skipped == ("left",)
    report = add_csv(catalog, tmp_path, HEADER + ROWS.replace("dog", "ant"))
    assert report.plan.schema.features()["label"] == ClassLabel(names=["cat", "dog", "ant"])


def test_lists_whose_nulls_are_empty_stay_so(catalog: Catalog) -> None:
    catalog.add([{"id": 1, "x": [1]}, {"id": 2, "x": None}], "rows", features={"x": "int32[]?"})
    for rows in ([{"id": 3, "x": None}], [{"id": 4}], [{"id": 5, "x": None}, {"id": 6, "x": [2]}]):
        catalog.add(rows, "rows")
    assert [row["x"].tolist() for row in catalog.dataset("rows").read("train")] in ([[], [2]], [[2], []])


def test_the_type_of_the_column_of_splits_is_remembered(catalog: Catalog) -> None:
    for rows in (2, 3):
        report = catalog.add(
            [{"id": number, "part": b"train"} for number in range(rows)],
            "rows",
            split_by="part",
            features={"part": "Text"} if rows == 2 else None,
        )
    assert types_of(report)["part"][1] == "string"


def splits_of(report: Any) -> dict[str, int]:
    return dict(report.splits)


def test_options_of_the_version_before_are_used_again(tmp_path: Path, catalog: Catalog) -> None:
    text = "id;x\n" + "".join(f"{number};{number % 3 or 'NA'}\n" for number in range(40))
    first = add_csv(catalog, tmp_path, text, delimiter=";", nulls=["NA"], holdout="test=50%", seed=7)
    assert add_csv(catalog, tmp_path, text).outcome == "unchanged"
    second = add_csv(catalog, tmp_path, text + "40;2\n")
    assert types_of(second) == types_of(first)
    assert set(splits_of(second)) == {"train", "test"}
    assert second.plan.remembered == {"delimiter": ";", "nulls": ["NA"], "holdout": "test=50%", "seed": 7}
    # One that is given decides; the others stay.
    third = add_csv(catalog, tmp_path, text.replace(";", ","), delimiter=",", holdout="")
    assert splits_of(third) == {"train": 40}
    assert third.plan.remembered == {"nulls": ["NA"]}
    assert add_csv(catalog, tmp_path, text.replace(";", ",")).outcome == "unchanged"


def test_options_for_csv_files_do_not_matter_to_other_sources(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, "id;x\n1;2\n", delimiter=";")
    (tmp_path / "rows.jsonl").write_text('{"id": 1, "x": 3}\n')
    assert str(catalog.add(tmp_path / "rows.jsonl", "rows").reference) == "rows:2.0.0"
    assert str(catalog.add([{"id": 1, "x": 4}], "rows").reference) == "rows:3.0.0"
    assert add_csv(catalog, tmp_path, "id;x\n1;2\n", name="rows").num_examples == 1


def test_a_rule_of_splits_replaces_the_one_before(tmp_path: Path, catalog: Catalog) -> None:
    rows = [{"id": number, "part": "ab"[number % 2]} for number in range(40)]
    catalog.add(rows, "rows", split_by="part")
    assert splits_of(catalog.add([*rows, {"id": 40, "part": "a"}], "rows")) == {"a": 21, "b": 20}
    with pytest.raises(UsageError) as caught:
        catalog.add([{"id": 1}], "rows")
    assert caught.value.hint.startswith("For another rule of splits: split_by=COLUMN, or split_by=''")
    assert set(splits_of(catalog.add(rows, "rows", holdout="test=50%"))) == {"train", "test"}
    assert splits_of(catalog.add(rows, "rows", split_by="")) == {"train": 40}


MIXED = (
    '{"id": 1, "messages": [{"role": "user", "content": "hi"}, {"role": "user", "content": [{"n":1.50}]}]}\n'
    '{"id": 2, "messages":  "x"}\n{"id": 3, "messages": null}\n{"id": 4, "messages": {"b": [ ], "a": 1e5}}\n'
)


def test_json_text_is_kept_as_it_is_written(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text(MIXED)
    with pytest.raises(UnusableRowsError) as caught:
        catalog.add(path)
    assert "To keep the column as text: features={'messages': 'Text'}" in str(caught.value.hint)
    catalog.add(path, features={"messages": "Text"}, key="id")
    assert catalog.add(path).outcome == "unchanged"
    rows = {int(row["id"]): row["messages"] for row in catalog.dataset("chat").read("train")}
    assert rows == {
        1: b'[{"role": "user", "content": "hi"}, {"role": "user", "content": [{"n":1.50}]}]',
        2: b"x",
        3: None,
        4: b'{"b": [ ], "a": 1e5}',
    }


def test_nested_objects_of_python_become_json_text(catalog: Catalog) -> None:
    rows = [{"m": [{"a": 1}, {"a": "x"}]}, {"m": "text"}, {"m": {"a": None}}, {"m": 1.5}]
    with pytest.raises(UnusableRowsError) as caught:
        catalog.add(rows, "rows")
    assert "features={'m': 'Text'}" in str(caught.value.hint)
    catalog.add(rows, "rows", features={"m": "Text"})
    read = {row["m"].decode() for row in catalog.dataset("rows").read("train")}
    assert read == {'[{"a": 1}, {"a": "x"}]', "text", '{"a": null}', "1.5"}


@pytest.mark.parametrize("kind", ["csv", "jsonl", "rows"])
def test_the_first_values_of_a_column_of_nulls_decide_its_type(tmp_path: Path, catalog: Catalog, kind: str) -> None:
    def add(values: list[Any]) -> Any:
        rows = [{"id": number, "x": value} for number, value in enumerate(values)]
        if kind == "rows":
            return catalog.add(rows, "rows")
        lines = ["id,x", *(f"{row['id']},{'' if row['x'] is None else row['x']}" for row in rows)]
        if kind == "jsonl":
            lines = [json.dumps(row) for row in rows]
        (tmp_path / f"rows.{kind}").write_text("\n".join(lines) + "\n")
        return catalog.add(tmp_path / f"rows.{kind}", "rows")

    def type_in(report: Any) -> str:
        return {column.name: describe_type(column) for column in report.plan.schema.columns}["x"]

    assert type_in(add([None, None])) == "Text?"
    assert add([None, None]).outcome == "unchanged"
    assert type_in(add([None, 7])) == "int64?"
    with pytest.raises(UnusableRowsError, match='expected int64, found "a"'):
        add([None, "a"])
    assert type_in(add([None, None])) == "int64?"


@pytest.mark.parametrize("key", ["at", "took", "seen", "clock", None])
def test_nanoseconds_have_the_same_keys_and_texts_without_pandas(
    catalog: Catalog, tmp_path: Path, key: str | None
) -> None:
    """pyarrow converts them to objects of pandas if it is installed, and else refuses or prints them differently."""
    kinds = {"at": pa.timestamp("ns"), "took": pa.duration("ns"), "seen": pa.timestamp("ns", "Asia/Kolkata")}
    columns = {name: pa.array([0, 1, 1_000, -1, 10**15 + 7, 2**62 + 1], kind) for name, kind in kinds.items()}
    columns["clock"] = pa.array([0, 1_001, 2_000, 86_399_999_999_999, 10**10 + 7, 10**12], pa.time64("ns"))
    columns["nested"] = pa.StructArray.from_arrays(list(columns.values()), list(columns))
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    options = {"key": key, "features": {"nested": "Text"}}
    add = (
        "import json, sys\nclass NoPandas:\n    def find_spec(self, name, path, target=None):\n"
        "        if name == 'pandas': raise ModuleNotFoundError(name=name)\n"
        "sys.meta_path.insert(0, NoPandas())\nimport registry\n"
        "with registry.connect(sys.argv[1], data_dir=sys.argv[2]) as catalog:\n"
        "    print(catalog.add(sys.argv[3], 'times', **json.loads(sys.argv[4])).outcome)\n"
    )
    arguments = [tmp_path / "catalog.db", tmp_path / "data", tmp_path / "rows.parquet", json.dumps(options)]
    done = subprocess.run([sys.executable, "-c", add, *arguments], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("published\n", "")
    assert catalog.add(tmp_path / "rows.parquet", "times", **options).outcome == "unchanged"  # pyarrow imported pandas


def test_the_type_of_most_values_is_advised_once(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, "id,views\n1,795\n2,883\n")
    (tmp_path / "rows.csv").write_text("id,views\n1,795.0\n2,883.0\n")
    assert refusal(catalog, tmp_path / "rows.csv").hint == (
        "No row fits. To infer all types anew, not as in the previous version: retype=True. "
        "To change one type: features={'views': 'float64'}"
    )


def differences(report: Any) -> dict[str, tuple[tuple[str, str, str], ...]]:
    (records,) = report.diff.records
    return {change.key[1]: change.features for change in records.first if change.kind == "changed"}


def test_the_diff_shows_values_that_became_null(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, 'id,name,price\n1,lamp,19.5\n2,chair,42.0\n3,"",7.5\n', key="id")
    changed = 'id,name,price\n1,lamp,19.5\n2,,\n3,"",8.5\n'
    types = {"name": "Text?", "price": "float64?"}
    nulls = add_csv(catalog, tmp_path, changed, features=types)
    assert differences(nulls) == {
        "2": (("name", "'chair'", "null"), ("price", "42.0", "null")),
        "3": (("price", "7.5", "8.5"),),
    }
    assert nulls.diff.records[0].same == 1
    assert [change.kind for change in nulls.changes.changes] == ["features", "features"]  # the others are their values
    back = add_csv(catalog, tmp_path, changed.replace(",,", ",stool,9"), retype=True)
    assert differences(back) == {"2": (("name", "null", "'stool'"), ("price", "null", "9.0"))}
    assert back.diff.records[0].same == 2


def test_the_diff_shows_values_of_objects_that_became_null(catalog: Catalog) -> None:
    catalog.add([{"id": 1, "size": {"x": 1}}, {"id": 2, "size": {"x": 2}}], "rows", key="id")
    report = catalog.add([{"id": 1, "size": {"x": 1}}, {"id": 2, "size": {"x": None}}], "rows", retype=True)
    assert differences(report) == {"2": (("size/x", "2", "null"),)}


def test_the_diff_shows_times_before_they_became_null_as_times(catalog: Catalog) -> None:
    rows = [{"id": number, "at": datetime(2026, 1, number, tzinfo=UTC)} for number in (1, 2, 3)]
    catalog.add(rows, "rows", key="id")
    changed = [rows[0], {"id": 2, "at": None}, {"id": 3, "at": datetime(2026, 5, 3, tzinfo=UTC)}]
    report = catalog.add(changed, "rows", retype=True)
    assert differences(report) == {
        "2": (("at", "2026-01-02 00:00:00Z", "null"),),
        "3": (("at", "2026-01-03 00:00:00Z", "2026-05-03 00:00:00Z"),),
    }


def test_a_diff_compares_arrays_that_became_optional_and_got_a_known_shape(catalog: Catalog) -> None:
    lists, array = Tensor(shape=(None,), dtype="int64"), Tensor(shape=(1,), dtype="int64", optional=True)
    catalog.add([{"id": 1, "v": [0], "x": 1}], "rows", key="id", features={"v": lists})
    report = catalog.add([{"id": 1, "v": [0], "x": 2}], "rows", features={"v": array})
    assert ("x", "1", "2") in differences(report)["1"]


def test_the_diff_shows_labels_that_changed_while_a_class_was_added(tmp_path: Path, catalog: Catalog) -> None:
    text = "id,label\n1,cat\n2,dog\n"
    add_csv(catalog, tmp_path, text, key="id", features={"label": "ClassLabel"})
    report = add_csv(catalog, tmp_path, text.replace("2,dog", "2,cat\n3,ant"))
    assert differences(report) == {"2": (("label", "'dog'", "'cat'"),)}
    assert "label has 3 classes, had 2 (new: 'ant')" in [change.brief for change in report.changes.changes]


def test_the_diff_says_which_values_it_did_not_compare(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, "id,price\n1,7\n", key="id")
    report = add_csv(catalog, tmp_path, "id,price\n1,8.5\n", features={"price": "float64"})
    assert [change.text for change in report.diff.changes.changes] == [
        "feature price is Tensor float64, was Tensor int64; its values were not compared"
    ]


def test_changed_records_show_no_values_that_were_not_compared(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, "id,price,name\n1,7,lamp\n2,8,desk\n", key="id")
    report = add_csv(catalog, tmp_path, "id,price,name\n1,seven,lamp\n2,8,table\n", features={"price": "Text"})
    assert differences(report) == {"2": (("name", "'desk'", "'table'"),)}


def test_the_key_of_a_list_is_forgotten_for_the_same_records_in_another_form(tmp_path: Path, catalog: Catalog) -> None:
    rows = [{"id": 1, "name": "lamp"}, {"id": 2, "name": "desk"}]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "wrapped.json").write_text(json.dumps({"version": 1, "data": rows}))
    catalog.add(tmp_path / "wrapped.json", "shop", records="data")
    (tmp_path / "list.json").write_text(json.dumps(rows))
    (tmp_path / "lines.jsonl").write_text(lines)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "table.parquet")
    for name in ("wrapped.json", "list.json", "lines.jsonl", "table.parquet"):
        assert catalog.add(tmp_path / name, "shop", replace=True).outcome == "unchanged"
    (tmp_path / "wrapped.jsonl").write_text(json.dumps({"version": 1, "data": rows}))
    assert catalog.add(tmp_path / "wrapped.jsonl", "shop", replace=True).outcome == "unchanged"
    (tmp_path / "indented.jsonl").write_text("".join(json.dumps(row, indent=1) + "\n" for row in rows))
    catalog.add(tmp_path / "indented.jsonl", "objects", records=".")
    for name in ("indented.jsonl", "list.json", "lines.jsonl"):
        assert catalog.add(tmp_path / name, "objects", replace=True).outcome == "unchanged"


def test_columns_without_names_can_be_left_out_and_stay_so(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, "id,price\n1,7\n")
    (tmp_path / "rows.csv").write_text("id,price,,\n1,7,,\n2,8,x,\n")
    with pytest.raises(SourceError) as caught:
        catalog.add(tmp_path / "rows.csv", header=True)
    assert caught.value.message == "rows.csv:1: columns 3 and 4 have no name"
    assert caught.value.hint is not None
    assert "To leave out the columns without a name: features={'': 'skip'}. If" in caught.value.hint
    assert dict(catalog.add(tmp_path / "rows.csv", features={"": "skip"}).splits) == {"train": 2}
    report = add_csv(catalog, tmp_path, "id,price,,\n1,7,,\n2,8,x,\n3,9,,\n")
    assert list(report.plan.schema.features()) == ["id", "price"]
    assert report.plan.schema.skipped == ("",)


@pytest.mark.parametrize("kind", ["csv", "lines"])
def test_text_that_was_saved_as_utf_8_is_not_read_in_the_encoding_before(
    tmp_path: Path, catalog: Catalog, kind: str
) -> None:
    path = tmp_path / ("places.csv" if kind == "csv" else "places.txt")
    text = "id,name\n1,Zürich\n2,Bern\n"
    path.write_bytes(text.encode("windows-1252"))
    catalog.add(path, "places", encoding="WINDOWS-1252", kind=kind)
    path.write_text(text)
    with pytest.raises(SourceError) as caught:
        catalog.add(path, "places", kind=kind)
    assert caught.value.message == f"{path.name}: the text is UTF-8, but that of the previous version was WINDOWS-1252"
    assert caught.value.hint == (
        "If it was saved as UTF-8: encoding='UTF-8'. If it is still WINDOWS-1252: encoding='WINDOWS-1252'"
    )
    assert catalog.add(path, "places", encoding="UTF-8", kind=kind).outcome == "unchanged"
    assert catalog.add(path, "places", encoding="WINDOWS-1252", kind=kind).outcome == "published"
    path.write_text("id,name\n2,Bern\n")
    assert catalog.add(path, "places", kind=kind).outcome == "published"


def test_another_delimiter_than_in_the_version_before_is_named(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, "id;price\n1;7\n", delimiter=";")
    for mark, word, option in ((",", "comma", ","), ("\t", "tab", "tab")):
        with pytest.raises(SourceError) as caught:
            add_csv(catalog, tmp_path, f"id{mark}price\n1{mark}7\n")
        assert (
            caught.value.message == "rows.csv:1: ';' separates no values; it is the delimiter of the previous version"
        )
        assert caught.value.hint == f"If a {word} separates them now: delimiter={option!r}"
        assert catalog.add(tmp_path / "rows.csv", delimiter=option, dry_run=True).outcome == "unchanged"


def test_lines_that_are_values_keep_the_delimiter_of_the_version_before(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, "text\na; b\n", delimiter=",")
    assert list(add_csv(catalog, tmp_path, "text\na; b\nc; d\n").plan.schema.features()) == ["text"]
    assert list(add_csv(catalog, tmp_path, "text; b\na; b\nc; d\n", replace=True).plan.schema.features()) == ["text; b"]
