"""A prepared folder in a store: its files, missing files, and contradictions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.golden import check_errors

from registry.errors import PreparedFormatError, StorageError
from registry.features import ClassLabel, FeaturesDict, Text
from registry.model import ShardedFileTemplate, ShardLengths, Split, Version
from registry.prepared import PreparedDataset, folder, read_labels, read_prepared, write_prepared
from registry.storage import Store, open_store

GOLDEN = Path(__file__).with_name("golden")


PREPARED = PreparedDataset(
    name="tiny",
    version=Version(1, 0, 0),
    splits=(Split(name="train", shard_lengths=ShardLengths([3]), files=ShardedFileTemplate(dataset="tiny")),),
    features=FeaturesDict({"kind": {"label": ClassLabel(names=["grün", "rot"])}, "text": Text()}),
)


@pytest.fixture
def store(tmp_path: Any) -> Store:
    return open_store(str(tmp_path)).child("1.0.0")


def put(store: Store, name: str, data: bytes) -> None:
    with store.create(name, overwrite=True) as file:
        file.write(data)


def test_what_is_written_is_read(store: Store) -> None:
    names = write_prepared(store, PREPARED)
    assert names == ["kind-label.labels.txt", "features.json", "dataset_info.json"]
    assert read_prepared(store) == PREPARED
    assert store.read_bytes("kind-label.labels.txt") == "grün\nrot\n".encode()


def test_written_files_are_not_replaced(store: Store) -> None:
    write_prepared(store, PREPARED)
    with pytest.raises(StorageError):
        write_prepared(store, PREPARED)


def test_blank_lines_and_spaces_in_a_label_file_are_ignored(store: Store) -> None:
    write_prepared(store, PREPARED)
    put(store, "kind-label.labels.txt", "\n grün \r\n\n\trot".encode())
    assert read_prepared(store) == PREPARED


def test_missing_label_file_leaves_the_classes_without_names(store: Store) -> None:
    write_prepared(store, PREPARED)
    store.remove_tree("kind-label.labels.txt")
    assert read_prepared(store).features["kind"]["label"] == ClassLabel(num_classes=2)  # type: ignore[index]


def test_the_error_for_a_folder_without_a_dataset_names_the_expected_files(store: Store) -> None:
    put(store, "readme.txt", b"hello")
    with pytest.raises(PreparedFormatError) as caught:
        read_prepared(store)
    assert str(caught.value) == (
        f"{store.url} is not a prepared dataset: it has no dataset_info.json and no features.json"
    )
    assert caught.value.hint == (
        "Looked for dataset_info.json and features.json. "
        "Name the folder of a version: <data dir>/<name>[/<config>]/<version>"
    )


def test_folder_of_versions_offers_the_highest(tmp_path: Any, store: Store) -> None:
    write_prepared(store, PREPARED)
    write_prepared(open_store(str(tmp_path)).child("0.9.0"), PREPARED)
    with pytest.raises(PreparedFormatError) as caught:
        read_prepared(open_store(str(tmp_path)))
    assert str(caught.value.hint).endswith("Name one of them, e.g. " + store.locate("").rstrip("/"))


def test_dataset_without_features_is_refused(store: Store) -> None:
    write_prepared(store, PREPARED)
    store.remove_tree("features.json")
    with pytest.raises(PreparedFormatError, match=r"it has no features\.json(?m:$)"):
        read_prepared(store)


def test_file_that_does_not_fit_is_named(store: Store) -> None:
    write_prepared(store, PREPARED)

    def read_with(name: str, data: bytes) -> None:
        path = Path(store.locate(name))
        right = path.read_bytes()
        path.write_bytes(data)
        try:
            read_prepared(store)
        finally:
            path.write_bytes(right)

    labels = "kind-label.labels.txt"
    calls = [partial(read_with, labels, data) for data in (b"a\nb\nc\n", b"a\na\n", b"\xff\n")]
    calls += [partial(read_with, "features.json", data) for data in (b"\xff", b"{")]
    calls += [partial(read_with, "dataset_info.json", b"null")]
    check_errors(GOLDEN / "prepared_folder.txt", calls, details=["file"])


def test_file_that_is_too_long_is_not_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write_prepared(store, PREPARED)
    monkeypatch.setattr(folder, "MAX_BYTES", 100)
    with pytest.raises(StorageError, match="longer than 100 bytes"):
        read_prepared(store)


def test_the_names_of_many_labels_are_set_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = FeaturesDict({f"f{place}": ClassLabel(num_classes=2) for place in range(20)})
    for place in range(20):
        (tmp_path / f"f{place}.labels.txt").write_text("cat\ndog\n")
    calls: list[int] = []
    with_labels = FeaturesDict.with_labels

    def counted(self: FeaturesDict, labels: Any) -> FeaturesDict:
        calls.append(len(labels))
        return with_labels(self, labels)

    monkeypatch.setattr(FeaturesDict, "with_labels", counted)
    assert list(read_labels(open_store(tmp_path), features).labels().values()) == [["cat", "dog"]] * 20
    assert calls == [20]
