"""Slices that share equal records, or equal values of a column: what counts as equal, and what is said of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow

import registry
from registry.errors import FeatureNotFoundError, UsageError
from registry.features import FeaturesDict, Image, Sequence, Tensor, Text
from registry.publishing.record_overlap import record_marks
from registry.tfrecord import frame_records


def shared(found: Any) -> list[tuple[int, int, int]]:
    return [(one.num_values, one.num_first, one.num_second) for one in found.shared]


def test_equal_records_of_two_splits_are_found_whatever_their_keys(catalog: registry.Catalog) -> None:
    train = [{"id": n, "text": f"row {n}"} for n in range(50)]
    test = [{"id": n, "text": f"row {n}"} for n in (3, 3, 60, 61)]
    catalog.add({"train": train, "test": test}, "rows")
    rows = catalog.dataset("rows")
    assert rows.relation("train", "test").is_disjoint
    found = rows.overlap(["train", "test"])
    assert not found.is_disjoint
    assert shared(found) == [(1, 1, 2)]
    assert [(one.num_records, one.num_repeated, one.num_missing) for one in found.slices] == [(50, 0, 0), (4, 1, 0)]
    ((first, second),) = found.shared[0].pairs
    examples = [next(iter(rows.read(f"{name}[{at}:{at + 1}]"))) for name, at in (first, second)]
    assert [(int(one["id"]), one["text"]) for one in examples] == [(3, b"row 3")] * 2


@pytest.mark.parametrize("processes", [1, 2])
def test_the_same_patient_is_found_in_two_splits(catalog: registry.Catalog, processes: int) -> None:
    people = {"train": [7, 7, 8, None], "test": [9, None, 7, math.nan]}
    values = {
        "patient": lambda n: None if n is None or math.isnan(n) else f"p{n}",
        "number": lambda n: None if n is None or math.isnan(n) else int(n),
        "weight": lambda n: None if n is None else float(n),
    }
    tables = {
        split: pa.table({name: [value(n) for n in found] for name, value in values.items()} | {"at": range(len(found))})
        for split, found in people.items()
    }
    catalog.add(tables, "scans")
    scans = catalog.dataset("scans")
    assert scans.overlap(["train", "test"]).is_disjoint
    for column in values:
        found = scans.overlap(["train", "test"], column=column, processes=processes)
        assert shared(found) == [(1, 2, 1)], column
        assert [one.num_missing for one in found.slices] == [1, 2]
        assert [one.num_repeated for one in found.slices] == [1, 0]


def test_nan_in_bfloat16_equals_nothing(catalog: registry.Catalog) -> None:
    class Scores(registry.DatasetBuilder):
        VERSION = "1.0.0"

        def features(self) -> FeaturesDict:
            return FeaturesDict({"score": Tensor(shape=(), dtype="bfloat16", encoding="bytes")})

        def splits(self) -> Any:
            values = {"train": [1.5, math.nan, 2], "test": [math.nan, 1.5]}
            return {split: [(at, {"score": each}) for at, each in enumerate(these)] for split, these in values.items()}

    catalog.build(Scores, processes=1)
    found = catalog.dataset("scores").overlap(["train", "test"], column="score")
    assert shared(found) == [(1, 1, 1)]
    assert [one.num_missing for one in found.slices] == [1, 1]


def test_nested_features_sequences_labels_and_images_are_compared_as_wholes(
    catalog: registry.Catalog, tmp_path: Path
) -> None:
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)

    class Boxes(registry.DatasetBuilder):
        VERSION = "1.0.0"

        def features(self) -> FeaturesDict:
            return FeaturesDict(
                {
                    "image": Image(shape=(4, 4, 3)),
                    "box": {"id": "int64", "name": Text()},
                    "tags": Sequence(Text()),
                    "at": "int64",
                }
            )

        def splits(self) -> Any:
            def example(at: int, image: Any, box: tuple[int, str], tags: list[str]) -> tuple[int, Any]:
                return at, {"image": image, "box": {"id": box[0], "name": box[1]}, "tags": tags, "at": at}

            file = tmp_path / "pixels.png"
            Pillow.fromarray(pixels).save(file, compress_level=0)  # other bytes of the same pixels
            return {
                "train": [example(0, pixels, (1, "a"), ["x", "y"]), example(1, pixels + 1, (2, "b"), [])],
                "test": [example(2, file.read_bytes(), (1, "b"), ["xy"]), example(3, pixels + 2, (2, "b"), ["x"])],
            }

    catalog.build(Boxes, processes=1)
    boxes = catalog.dataset("boxes")
    expected: dict[str | None, list[tuple[int, int, int]]] = {
        None: [],
        "image": [(1, 1, 1)],
        "box/id": [(2, 2, 2)],
        "box": [(1, 1, 1)],
        "tags": [],
        "at": [],
    }
    for column, counts in expected.items():
        assert shared(boxes.overlap(["train", "test"], column=column)) == counts, column


def test_typed_columns_of_parquet_are_compared_like_records(catalog: registry.Catalog, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    folder = tmp_path / "shards"
    folder.mkdir()
    for name, numbers in {"train": range(2000), "test": [5, 5, 3000]}.items():
        table = pa.table({"id": list(numbers), "word": [f"w{n % 3}" for n in numbers]})
        pq.write_table(table, folder / f"{name}-00000-of-00001.parquet")
    catalog.import_parquet(folder, name="typed")
    typed = catalog.dataset("typed")
    assert shared(typed.overlap(["train", "test"])) == [(1, 1, 2)]
    found = typed.overlap(["train[:10]", "train[10:]", "test"], column="word", show=1)
    assert [(one.first, one.second) for one in found.shared] == [(0, 1), (0, 2), (1, 2)]
    assert [(one.num_values, one.num_first) for one in found.shared] == [(3, 10), (2, 7), (2, 1326)]
    assert found.shared[0].pairs == ((("train", 0), ("train", 12)),)


def test_slices_of_one_split_and_records_that_are_named_twice(catalog: registry.Catalog) -> None:
    catalog.add([{"id": n} for n in range(100)], "rows")
    rows = catalog.dataset("rows")
    assert rows.overlap(["train[:50%]", "train[50%:]"]).is_disjoint
    found = rows.overlap(["train[:10]+train[5:12]", "train[11:20]", "train[:0]"])
    assert [(one.num_records, one.num_repeated) for one in found.slices] == [(12, 0), (9, 0), (0, 0)]
    assert [(one.first, one.second, one.pairs) for one in found.shared] == [(0, 1, ((("train", 11), ("train", 11)),))]


def test_wrong_arguments_are_refused(catalog: registry.Catalog) -> None:
    catalog.add([{"patient": 1}], "rows")
    rows = catalog.dataset("rows")
    with pytest.raises(FeatureNotFoundError) as caught:
        rows.overlap(["train", "train"], column="pateint")
    assert str(caught.value.message) == "no feature 'pateint' in the features of the dataset"
    assert caught.value.hint == "Did you mean 'patient'? There are: patient."
    for wrong in (["train"], []):
        with pytest.raises(UsageError) as refused:
            rows.overlap(wrong)
        assert refused.value.message == (
            f"overlap compares slices with each other: expected two or more, found {len(wrong)}"
        )
        assert refused.value.hint == 'For example: dataset.overlap(["train", "test"])'


def test_a_pinned_version_is_compared_without_its_catalog(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.add({"train": [{"id": n} for n in range(20)], "test": [{"id": 3}]}, "rows")
    rows = catalog.dataset("rows")
    pins = rows.pin("all")
    pins.save(tmp_path / "pins.yaml") if hasattr(pins, "save") else pins.write(tmp_path / "pins.yaml")
    with registry.locked(tmp_path / "pins.yaml", data_dir=tmp_path / "data"):
        pinned = registry.connect(tmp_path / "other.db").dataset("rows")
    assert shared(pinned.overlap(["train", "test"])) == [(1, 1, 1)]


SHARED = {
    "train": [{"id": n, "text": f"row {n}"} for n in range(300)],
    "test": [{"id": n, "text": f"row {n}"} for n in (7, 7, 8, 1000)],
    "extra": [{"id": 2000, "text": ""}, {"id": 8, "text": "row 8"}],
}


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("key_by", [None, "content"])
def test_add_finds_equal_records_of_splits(catalog: registry.Catalog, key_by: str | None, processes: int) -> None:
    report = catalog.add(SHARED, "rows", key_by=key_by, processes=processes)
    assert report.overlap is not None
    names = list(report.splits)
    assert {
        (names[one.first], names[one.second]): (one.num_values, one.num_first, one.num_second)
        for one in report.overlap.shared
    } == {("train", "test"): (2, 2, 3), ("train", "extra"): (1, 1, 1), ("test", "extra"): (1, 1, 1)}
    rows = catalog.dataset("rows")
    whole = rows.overlap(names, show=1)
    assert whole == report.overlap
    assert catalog.add(SHARED, "rows", key_by=key_by, dry_run=True).overlap == whole


def test_add_of_different_records_finds_nothing_and_reads_nothing_again(
    catalog: registry.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    from registry.intake import staging

    monkeypatch.delattr(staging, "compare_slices")
    for name, rows in {
        "rows": {"train": SHARED["train"], "test": [{"id": 301, "text": "row 0"}]},
        "one": SHARED["train"],
    }.items():
        assert catalog.add(rows, name).overlap is None
    empty = {"train": [{"id": None, "text": None}], "test": [{"id": None, "text": "x"}, {"id": 1, "text": None}]}
    assert catalog.add(empty, "nulls").overlap is None


@given(
    st.dictionaries(
        st.sampled_from(["train", "test", "extra"]),
        st.lists(
            st.sampled_from([b"", b"a", b"b", b"ab", b"x" * 9, b"x" * 40, b"y" * 40, b"x" * 39 + b"y"]), min_size=1
        ),
        min_size=2,
    )
)
def test_marks_of_records_tell_which_splits_may_share_some(splits: dict[str, list[bytes]]) -> None:
    """The law: equal records have equal marks, also empty ones, wherever they are in a block; these others differ."""
    every = [(name, record) for name, records in splits.items() for record in records]
    marks = record_marks(frame_records([record for _, record in every]).payloads())
    alone = [record_marks(frame_records([record]).payloads())[0] for _, record in every]
    assert marks.tolist() == alone
    assert len(set(alone)) == len({record for _, record in every})
