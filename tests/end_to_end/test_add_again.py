"""The second addition of a dataset has the types of the first one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import registry
from registry.api import Catalog
from registry.errors import SourceError, UnusableRowsError, UsageError
from registry.features import ClassLabel

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


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return registry.connect(f"sqlite:///{tmp_path / 'c.db'}", data_dir=tmp_path / "data", create=True)


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
        "ISO dates or times; to convert them: --feature day=date32, or --dates"
    )
    first = catalog.add(path, dates=True)
    assert types_of(first)["day"][1] == "date32[day]"
    assert catalog.add(path).outcome == "unchanged"
    assert types_of(catalog.add(path, retype=True))["day"][1] == "string"
    with pytest.raises(UsageError, match="by these options: dates"):
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


def test_new_classes_follow_those_of_the_version_before(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, HEADER + ROWS, features=REQUESTS)
    report = add_csv(catalog, tmp_path, HEADER + ROWS + "2026-02-02,ant,3000,3,z,2.5,3" + LISTS)
    (label,) = (column for column in report.plan.schema.columns if column.name == "label")
    assert label.feature == ClassLabel(names=["cat", "dog", "ant"])
    assert label.reason == '3 classes, as in the version before; new: "ant"'
    assert labels_of(catalog) == {"1069": "dog", "2000": "cat", "3000": "ant"}
    # A class that no record has any more keeps its number.
    report = add_csv(catalog, tmp_path, HEADER + "2026-02-02,dog,3000,3,z,2.5,3" + LISTS)
    assert report.plan.schema.features()["label"] == ClassLabel(names=["cat", "dog", "ant"])


def test_a_value_that_does_not_fit_is_refused_with_its_line(tmp_path: Path, catalog: Catalog) -> None:
    add_csv(catalog, tmp_path, HEADER + ROWS, features=REQUESTS)
    with pytest.raises(UnusableRowsError) as caught:
        add_csv(catalog, tmp_path, HEADER + ROWS + "soon,dog,3000,300,z,2.5,3" + LISTS)
    assert "rows.csv:4, column 'when': expected date32[day] such as 2026-01-31, found \"soon\"" in str(caught.value)
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("To infer types anew, not as in the version before: retype=True")
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
    with pytest.raises(SourceError, match='column "label": its classes were names in the version before'):
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
