"""Statistics of published versions: the same bytes for any order and number of workers, attached once, found again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import warm_python
from support.attached_folds import attach_nothing
from support.prepared_samples import animals, prepare

import registry
from registry.building import publication_folds
from registry.errors import (
    CatalogPermissionError,
    CorruptExampleError,
    CorruptRecordError,
    NotFoundError,
    ShardMismatchError,
)
from registry.features import FeaturesDict, Sequence, Text
from registry.statistics import Duplicates, parse_statistics, statistics_documents, statistics_of

ROWS = [{"id": number, "price": number / 7, "shop": f"shop {number % 3}"} for number in range(5000)]


def write_files(folder: Path, rows: list[dict[str, Any]]) -> Path:
    folder.mkdir()
    for place in range(3):
        lines = [json.dumps(row) for row in rows[place::3]]
        (folder / f"train-{place}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_any_order_of_files_and_number_of_workers_give_the_same_document(tmp_path: Path) -> None:
    documents = set()
    for name, rows, processes in (("one", ROWS, 1), ("two", ROWS[::-1], 2)):
        files = write_files(tmp_path / f"{name}-files", rows)
        with registry.connect(tmp_path / f"{name}.db", data_dir=tmp_path / name) as catalog:
            catalog.add(files, "prices", key="id")
            dataset = catalog.dataset("prices")
            statistics = dataset.compute_statistics(processes=processes)
            documents.add(dataset.read_attachment("statistics", "statistics.json"))
            assert statistics_documents(statistics.splits)["statistics.json"] in documents
            assert catalog.verify_log().faults == ()
    assert len(documents) == 1
    price = statistics["train"]["price"]
    assert price.mean == pytest.approx(np.mean([row["price"] for row in ROWS]), rel=1e-6)
    assert (price.count, price.nulls) == (5000, 0)


def test_whatever_publishes_attaches_the_statistics_of_the_stored_records(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.build("digits", processes=1)
        catalog.add([{"shop": "x", "price": 1.5, "id": 7, "at": {"y": 1, "x": "a"}}], "prices")  # not sorted
        catalog.add({"train": {"value": [1, 2]}, "test": {"value": [3]}}, "numbers", processes=2)
        catalog.publish(prepare(tmp_path / "one", splits={"train": animals(5)}))
        catalog.import_tfds(prepare(tmp_path / "two", "2.0.0", splits={"train": animals(7)}), copy=True).require_all()
        for reference in ("digits", "prices", "numbers", "animals:1.0.0", "animals:2.0.0"):
            dataset = catalog.dataset(reference)
            assert len(dataset.attachments) == 1
            assert dataset.compute_statistics() == dataset.statistics, "other bytes would be a conflict"
            assert [split.num_examples for split in dataset.statistics.values()] == [
                split.num_examples for split in dataset.splits.values()
            ]
            assert dataset.verify().faults == ()
        assert [event.action for event in catalog.log()].count("attach") == 0
        assert catalog.verify_log().faults == ()


class Wide(registry.DatasetBuilder):
    """Declares more leaves than have statistics, neither sorted nor flat."""

    VERSION = "1.0.0"
    FEATURES = FeaturesDict(
        {
            "z": "int64",
            "steps": Sequence({"y": "int64", "x": Text()}),
            "é": "int64",
            "a": {f"n{place}": "int64" for place in reversed(range(12))},
            "a-b": {"b": {"y": "float32", "x": "int64"}, "a": Text()},
            "B": "int64",
        }
    )

    def features(self) -> FeaturesDict:
        return self.FEATURES

    def splits(self) -> dict[str, Any]:
        return {"train": self._examples()}

    def _examples(self) -> Any:
        for place in range(3):
            steps = [{"y": place, "x": "x"}] * place
            nested = {"b": {"y": 0.5, "x": place}, "a": "text"}
            yield (
                place,
                {
                    "z": place,
                    "steps": steps,
                    "é": place,
                    "a-b": nested,
                    "B": place,
                    "a": {f"n{number}": place for number in range(12)},
                },
            )


def test_a_publication_and_a_later_computation_leave_out_the_same_leaves_of_a_wide_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("registry.statistics.fold.MOST_LEAVES", 16)
    monkeypatch.setattr("registry.statistics.fold.MOST_DETAILED", 8)
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.build(Wide(), processes=1)
        dataset = catalog.dataset("wide")
        published = dataset.statistics
        assert dataset.compute_statistics(processes=1) == published, "other bytes would be a conflict"
        train = published["train"]
        assert (list(train), train.num_omitted) == (
            ["B", *sorted(f"a/n{number}" for number in range(12)), "a-b/a", "a-b/b/x", "a-b/b/y"],
            4,
        )
        assert [path for path in train if train[path].histogram] == list(train)[:8]
        assert dataset.verify().faults == ()


def test_what_stays_in_place_gets_statistics_when_somebody_asks(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data", create=True) as catalog:
        folder = Path(prepare(tmp_path / "one", splits={"train": animals(5)}))
        catalog.import_tfds(folder).require_all()
        dataset = catalog.dataset("animals")
        assert (dataset.attachments, (tmp_path / "data").exists()) == ((), False)
        assert dataset.compute_statistics()["train"].num_examples == 5
        assert catalog.dataset("animals").statistics["train"]["age"].count == 5
        assert not (folder / ".attachments").exists()


@pytest.mark.parametrize("way", ["publish", "build"])
def test_files_of_a_published_version_come_with_its_statistics(tmp_path: Path, way: str) -> None:
    """Its row is there and its folder is not: another data directory, or one that was lost."""
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        folder = prepare(tmp_path / "one", splits={"train": animals(5)})
        name = "digits" if way == "build" else "animals"
        for _ in range(2):
            shutil.rmtree(tmp_path / "data", ignore_errors=True)
            if way == "build":
                catalog.build("digits", rebuild=True)
            else:
                catalog.publish(folder)
            assert catalog.dataset(name).verify().faults == ()
        assert catalog.dataset(name).statistics["train"].num_examples


TWINS = {
    "train": [{"text": f"text {number % 4000}", "sizes": [number % 4] * (number % 4)} for number in range(5000)],
    "test": [*[{"text": "text 7", "sizes": [3, 3, 3]}] * 2, {"text": "new", "sizes": [7]}],
}
DUPLICATES = {
    "train": Duplicates(num_repeated=1000, num_groups=1000, shared={"test": 2}),
    "test": Duplicates(num_repeated=1, num_groups=1, shared={"train": 2}),
}


class Twins(registry.DatasetBuilder):
    """Gives every record of ``TWINS`` a key of its own, in the order of the keys or in reverse."""

    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict({"text": Text(), "sizes": Sequence("int64")})

    def splits(self) -> dict[str, Any]:
        return {name: iter(list(enumerate(rows))[::-1]) for name, rows in TWINS.items()}


@pytest.mark.parametrize("processes", [1, 2])
def test_duplicates_within_and_across_splits_are_counted_by_whatever_publishes(tmp_path: Path, processes: int) -> None:
    documents = set()
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        for name, step in (("one", 1), ("two", -1)):
            catalog.add({split: rows[::step] for split, rows in TWINS.items()}, name, processes=processes)
        catalog.build(Twins(), processes=processes, num_shards={"train": 3, "test": 1})
        catalog.publish(prepare(tmp_path / "same", splits={"train": animals(5), "test": animals(2)}))
        for name in ("one", "two", "twins"):
            dataset = catalog.dataset(name)
            documents.add(dataset.read_attachment("statistics", "statistics.json"))
            assert {split: it.duplicates for split, it in dataset.statistics.items()} == DUPLICATES
            assert dataset.compute_statistics(processes=processes) == dataset.statistics
        shared = {split: it.duplicates for split, it in catalog.dataset("animals").statistics.items()}
        assert shared == {"train": Duplicates(shared={"test": 2}), "test": Duplicates(shared={"train": 2})}
    assert len(documents) == 1


def test_an_older_document_stays_and_says_nothing_about_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attach_older(results: Any) -> Any:
        return statistics_documents(statistics_of(results).without_duplicates())

    older = replace(publication_folds.STATISTICS, documents=attach_older)
    monkeypatch.setattr(publication_folds, "ATTACHED", (older,))
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.add(TWINS, "twins")
        dataset = catalog.dataset("twins")
        assert [it.duplicates for it in dataset.statistics.values()] == [None, None]
        assert "duplicates" not in repr(dataset.statistics.to_json())
        computed = dataset.compute_statistics()
        assert {split: it.duplicates for split, it in computed.items()} == DUPLICATES
        assert dataset.statistics == computed.without_duplicates()
        assert not dataset.verify().faults


def test_statistics_are_attached_once_and_read_from_the_attachment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach_nothing(monkeypatch)
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.build("digits")
        dataset = catalog.dataset("digits")
        with pytest.raises(NotFoundError, match=r"digits:1\.0\.0 has no statistics") as refusal:
            _ = dataset.statistics
        assert "registry stats digits:1.0.0 --compute" in str(refusal.value.hint)
        assert dataset.attachments == ()
        first, again = dataset.compute_statistics(), dataset.compute_statistics()
        assert first == again == catalog.dataset("digits").statistics
        assert [event.action for event in catalog.log()].count("attach") == 1
        assert len(dataset.attachments) == 1
        assert {name: split.num_examples for name, split in first.items()} == {"train": 1797}
        assert first["train"]["image"].formats == {"png": 1797}
        assert not dataset.verify().faults


@pytest.mark.parametrize("store", ["local", "s3"])
def test_two_processes_that_compute_at_once_attach_the_same_document(
    catalog_url: str, tmp_path: Path, store: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach_nothing(monkeypatch)
    data_dir = request.getfixturevalue("bucket") if store == "s3" else str(tmp_path / "data")
    with registry.connect(catalog_url, data_dir=data_dir, create=True) as catalog:
        catalog.add({"train": {"value": list(range(3000))}, "test": {"value": [7.5]}}, "numbers")
        script = (
            "import registry, sys\n"
            "with registry.connect(sys.argv[1], data_dir=sys.argv[2]) as catalog:\n"
            "    dataset = catalog.dataset('numbers')\n"
            "    sys.stdin.readline()\n"
            "    print(dataset.compute_statistics()['train'].num_examples)\n"
        )
        command = [sys.executable, "-c", script, catalog_url, data_dir]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        runs = [warm_python.Popen(command, **pipes) for _ in range(2)]
        assert [run.communicate("go\n")[0] for run in runs] == ["3000\n", "3000\n"]
        dataset = catalog.dataset("numbers")
        assert [attachment.name for attachment in dataset.attachments] == ["statistics.json"]
        assert dataset.statistics["test"]["value"].max == 7.5
        assert catalog.verify_log().faults == ()
        assert not dataset.verify().faults


def test_a_damaged_document_is_noticed_and_computed_again(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.add({"value": [1, 2]}, "numbers")
        dataset = catalog.dataset("numbers")
        computed = dataset.compute_statistics()
        [file] = (tmp_path / "data").rglob("*_statistics.json")
        file.write_bytes(file.read_bytes().replace(b"2", b"3", 1))
        with pytest.raises(ShardMismatchError):
            _ = dataset.statistics
        assert dataset.compute_statistics() == computed == dataset.statistics


def test_a_damaged_shard_gives_no_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attach_nothing(monkeypatch)
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.add({"value": list(range(100))}, "numbers")
        [shard] = (tmp_path / "data").rglob("*.tfrecord*")
        content = bytearray(shard.read_bytes())
        content[len(content) // 2] ^= 1
        shard.chmod(0o644)
        shard.write_bytes(content)
        dataset = catalog.dataset("numbers")
        with pytest.raises((ShardMismatchError, CorruptExampleError, CorruptRecordError)):
            dataset.compute_statistics()
        assert dataset.attachments == ()


def test_a_reader_who_may_not_write_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.add({"value": [1, 2]}, "numbers")
        dataset = catalog.dataset("numbers")

        def refuse() -> None:
            raise CatalogPermissionError("this user only reads")

        monkeypatch.setattr(catalog.backend, "require_publisher", refuse, raising=False)
        monkeypatch.setattr("registry.publishing.fingerprint.fold_documents", lambda *_, **__: pytest.fail("was read"))
        with pytest.raises(CatalogPermissionError):
            dataset.compute_statistics()


def test_a_pinned_version_is_described_and_its_pin_file_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach_nothing(monkeypatch)
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.build("digits")
        catalog.dataset("digits").pin("train").save(tmp_path / "pins.lock.yaml")
        before = (tmp_path / "pins.lock.yaml").read_bytes()
        with registry.locked(tmp_path / "pins.lock.yaml"):
            dataset = catalog.dataset("digits")
        assert dataset.compute_statistics()["train"]["label"].classes.num_classes == 10
        assert (tmp_path / "pins.lock.yaml").read_bytes() == before
        assert catalog.dataset("digits").attachments == ()
        with pytest.raises(NotFoundError, match="has no statistics"):
            _ = dataset.statistics


def test_the_document_is_that_of_a_copy(tmp_path: Path) -> None:
    with (
        registry.connect(tmp_path / "a.db", data_dir=tmp_path / "a") as source,
        registry.connect(tmp_path / "b.db", data_dir=tmp_path / "b", create=True) as target,
    ):
        source.build("digits")
        computed = source.dataset("digits").compute_statistics()
        list(source.copy("digits", target))
        assert target.dataset("digits").statistics == computed
        document = target.dataset("digits").read_attachment("statistics", "statistics.json")
        assert parse_statistics(document) == computed
