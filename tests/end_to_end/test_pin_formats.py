"""Pins of versions in every file format: what is pinned are records, so a pin holds for files of any other format."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from support.pinned_samples import unpack
from support.prepared_samples import animals
from support.shard_samples import ANIMAL_COLUMNS, WRITERS, prepare_as, write_columns

import registry
from registry.cli.main import run
from registry.errors import NullLabelWarning, PinFormatError, ShardMismatchError, StorageError
from registry.features import codec_of
from registry.pins.citation import Citation
from registry.pins.document import seal
from registry.pins.restore import restore
from registry.pins.yaml_text import read_yaml, write_yaml
from registry.storage import open_store
from registry.wire.example_pb2 import Example

FORMATS = ("array_record", "parquet", "parquet_columns")
ALL = ("tfrecord", *FORMATS)
COUNTS = {"train": 50, "test": 7, "none": 0}
SLICES = {"across": "train[10:40]", "union": "train[40:]+test[:3]", "no": "train[:0]", "none": "none"}
LOCK = "dataset.lock.yaml"


@pytest.fixture(scope="module", params=FORMATS)
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with animals 1.0.0 in 3 shards of a format for each split, and a pin file of four slices."""
    folder = tmp_path_factory.mktemp(request.param)
    with registry.connect(folder / "catalog.db", data_dir=folder / "data") as catalog:
        catalog.publish(prepare_as(folder / "data/animals/1.0.0", request.param, counts=COUNTS))
        catalog.dataset("animals").pin(SLICES).save(folder / LOCK)
    return folder


@pytest.fixture
def paper(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of all that, which is the current folder; no catalog can be opened."""
    shutil.copytree(published, tmp_path / "paper")
    monkeypatch.chdir(tmp_path / "paper")
    monkeypatch.setenv("REGISTRY_CATALOG", "/dev/null/catalog.db")
    return tmp_path / "paper"


@pytest.fixture
def file_format(paper: Path) -> str:
    return registry.load_pin(paper / LOCK)["across"].entry.file_format


def ages(reader: Any) -> list[int]:
    return sorted(int(example["age"]) for example in reader)


def shard(paper: Path, file_format: str, index: int) -> Path:
    return paper / f"data/animals/1.0.0/animals-train.{file_format}-{index:05}-of-00003"


def rewrite(path: Path, file_format: str, rows: list[dict[str, Any]]) -> None:
    """Replace a shard by a sound one with these rows."""
    store = open_store(path.parent)
    path.unlink()
    if file_format == "parquet_columns":
        write_columns(store, path.name, rows, ANIMAL_COLUMNS)
    else:
        codec = codec_of(registry.load_pin(LOCK)["across"].features)
        WRITERS[file_format](store, path.name, [codec.encode(row) for row in rows])


def damage(path: Path) -> None:
    """Overwrite 24 bytes in a record."""
    data = path.read_bytes()
    place = max(data.find(b"animal 20"), 40)
    path.write_bytes(data[:place] + b"\xff" * 24 + data[place + 24 :])


def cut(path: Path) -> None:
    """Keep the first half of a file, without the index of its records."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_pins_are_verified_and_read_without_a_catalog(paper: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options in ([], ["--deep"], ["--quick"]):
        assert run(["pin", "verify", LOCK, *options]) == 0
        out = capsys.readouterr().out
        assert out.count("as pinned: every file matches the pin") == len(SLICES)
    pins = registry.load_pin(LOCK)
    expected = {"across": range(10, 40), "union": [*range(3), *range(40, 50)], "no": [], "none": []}
    assert {name: ages(pin.read()) for name, pin in pins.items()} == {name: [*to] for name, to in expected.items()}
    assert [pin.num_examples for pin in pins.values()] == [30, 13, 0, 0]
    with registry.locked(LOCK):
        assert ages(registry.load("animals", split="train[12:14]")) == [12, 13]


def test_the_same_pins_are_made_again_from_every_format(paper: Path, file_format: str, tmp_path: Path) -> None:
    """The digests of records, and the citations with them, are those of TFRecord files."""
    entries = {name: pin.entry for name, pin in registry.load_pin(LOCK).items()}
    for other in ALL:
        with registry.connect(tmp_path / f"{other}.db", data_dir=tmp_path / other, create=True) as catalog:
            catalog.publish(prepare_as(tmp_path / other / "animals/1.0.0", other, counts=COUNTS))
            again = catalog.dataset("animals").pin(SLICES)
            assert (again.to_yaml() == (paper / LOCK).read_text()) is (other == file_format)
            for name, pin in again.items():
                records, pinned = pin.entry.records, entries[name].records
                assert (records.ordered, records.unordered) == (pinned.ordered, pinned.unordered)
                assert (records.finder, records.features) == (pinned.finder, pinned.features)
        for name, pin in registry.load_pin(LOCK).items():
            report = pin.verify(folder=tmp_path / other / "animals/1.0.0", deep=True)
            by_files = other == file_format or not entries[name].files
            assert (report.faults, report.proved_by) == ((), "files" if by_files else "records")


def test_a_citation_and_a_moment_give_the_same_pin(paper: Path) -> None:
    pinned = registry.load_pin(LOCK)["across"].entry
    options = ["--catalog", "catalog.db", "--data-dir", "data"]
    today = datetime.now(UTC).date().isoformat()
    assert run(["pin", "from-citation", str(Citation.of(pinned)), "-o", "cited.yaml", *options]) == 0
    assert run(["pin", "create", "animals", "train[10:40]", "-o", "then.yaml", "--at", today, *options]) == 0
    for name in ("cited.yaml", "then.yaml"):
        entry = registry.load_pin(name)["train"].entry
        assert (entry.records, entry.files, entry.file_format) == (pinned.records, pinned.files, pinned.file_format)


def test_a_bundle_is_verified_and_read_on_another_machine(
    paper: Path, file_format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pin", "bundle", LOCK, "-o", "bundle.tar"]) == 0
    unpack(paper / "bundle.tar", tmp_path / "there")
    there = tmp_path / "there/bundle"
    shutil.rmtree(paper / "data")
    script = [sys.executable, "-I", "-S", str(there / "verify.py")]
    checked = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    across, union, *nothing = checked.stdout.splitlines()[1:]
    extra = "array-record" if file_format == "array_record" else "arrow"
    assert across == (
        "across: animals:1.0.0 train[10:40], 30 records: as pinned, by the sha256 of each file; its records in "
        f"{file_format} files can be checked with: pip install 'shardbook[{extra}]' && registry pin verify {LOCK}"
    )
    assert ", by the sha256 of each file; " in union
    assert [line.rpartition(": ")[2] for line in nothing] == ["as pinned", "as pinned"]
    listed = subprocess.run([*script, "--ids"], capture_output=True, text=True, check=True).stdout.splitlines()
    in_order = registry.ReadConfig(interleave_cycle_length=1)
    assert listed[:30] == list(registry.load_pin(there / LOCK)["across"].read(in_order).ids())
    capsys.readouterr()
    assert run(["pin", "verify", str(there / LOCK)]) == 0
    assert ages(registry.load_pin(there / LOCK)["across"].read()) == [*range(10, 40)]

    damage(there / "data/animals/1.0.0" / f"animals-train.{file_format}-00001-of-00003")
    for command in (script, [sys.executable, "-m", "registry", "pin", "verify", str(there / LOCK)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
        assert (done.returncode, "NOT as pinned, faults: 1, by" in done.stdout) == (5, command is script)


def test_a_restored_folder_holds_the_pinned_files(paper: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pin", "restore", LOCK, "--to", "copy"]) == 0
    shutil.rmtree(paper / "data")
    assert run(["pin", "verify", LOCK, "--data-dir", "copy"]) == 0
    assert "across: animals:1.0.0 train[10:40]: 30 records as pinned: every file" in capsys.readouterr().out


def test_other_files_with_the_pinned_records_are_accepted(paper: Path, file_format: str) -> None:
    """Records outside of the slice changed, or row groups have another length."""
    rows = animals(50)[:17]
    rewrite(shard(paper, file_format, 0), file_format, [{**rows[0], "age": 77}, *rows[1:]])
    pin = registry.load_pin(LOCK)["across"]
    report = pin.verify()
    assert (report.faults, report.proved_by) == ((), "records")
    assert [note.rpartition("; ")[2] for note in report.notes] == ["its pinned records are unchanged"]
    assert ages(pin.read()) == [*range(10, 40)]


def test_a_changed_record_is_named_with_its_feature(paper: Path, file_format: str) -> None:
    rows = animals(50)[17:34]
    rewrite(shard(paper, file_format, 1), file_format, [*rows[:5], {**rows[5], "age": 99}, *rows[6:]])
    pin = registry.load_pin(LOCK)["across"]
    of_file, of_record = pin.verify().faults
    assert (of_record.record, of_record.position, list(of_record.features)) == (5, 12, ["age"])
    name = shard(paper, file_format, 1).name
    assert of_file.filename == of_record.filename == name
    assert of_record.problem.startswith(
        f"{name}: record 5 (number 12 of train[10:40]) differs in feature age: sha256 mismatch: expected "
    )
    with pytest.raises(ShardMismatchError):
        list(pin.read())


def test_fewer_records_are_a_fault(paper: Path, file_format: str) -> None:
    rewrite(shard(paper, file_format, 2), file_format, animals(50)[34:38])
    *_, fault = registry.load_pin(LOCK)["across"].verify().faults
    assert "expected 16 records, found 4" in fault.problem


@pytest.mark.parametrize(
    ("change", "problem"), [(damage, "sha256 mismatch: expected"), (cut, r"expected \d+ bytes, found \d+")]
)
def test_a_damaged_file_is_named(paper: Path, file_format: str, change: Callable[[Path], None], problem: str) -> None:
    path = shard(paper, file_format, 1)
    change(path)
    report = registry.load_pin(LOCK)["across"].verify()
    assert {fault.filename for fault in report.faults} == {path.name}
    of_file, *others = report.faults
    assert re.search(problem, of_file.problem)
    assert others
    assert run(["pin", "verify", LOCK, "across"]) == 5


def reseal(path: Path, **changes: Any) -> None:
    """Change fields of the first pin of a file, as its author could."""
    content: dict[str, Any] = read_yaml(path.read_bytes(), "f").value
    content["pins"] = [content["pins"][0] | changes]
    content["digest"], content["finder"] = seal(content)
    path.write_text(write_yaml(content))


def test_a_pin_that_names_the_wrong_format_is_refused(paper: Path, file_format: str) -> None:
    path = paper / LOCK
    good = path.read_bytes()
    other = "parquet" if file_format == "array_record" else "array_record"
    reseal(path, file_format=other)
    with pytest.raises(PinFormatError, match="not the name of this shard"):
        registry.load_pin(path)
    path.write_bytes(good)
    splits = read_yaml(good, "f").value["pins"][0]["splits"]
    named = [{**split, "template": f"animals-{{SPLIT}}.{file_format}-{{SHARD_X_OF_Y}}"} for split in splits]
    reseal(path, file_format=other, splits=named)
    (fault,) = registry.load_pin(path)["across"].verify().faults
    name = "parquet" if other.startswith("parquet") else other
    assert fault.problem.endswith(f"{shard(paper, file_format, 0).name}: not a {name} file, or a damaged one")
    reseal(path, file_format="riegeli")
    with pytest.raises(PinFormatError, match="'tfrecord', 'array_record', 'parquet' or 'parquet_columns'"):
        registry.load_pin(path)


def test_a_pin_that_claims_too_many_records_is_refused_at_once(paper: Path, file_format: str) -> None:
    """A column can repeat a value a billion times in a few bytes, so the size of a file does not bound its records."""
    many, entry = 2**60, registry.load_pin(LOCK)["across"].entry
    path = shard(paper, file_format, 0)
    path = path.rename(path.with_name(path.name.replace("of-00003", "of-00001")))
    (file, *_), (split,) = entry.model_dump(mode="json")["files"], entry.model_dump(mode="json")["splits"]
    records = entry.records.model_dump(mode="json")
    for name, place in (("first", 0), ("middle", many // 2), ("last", many - 1)):
        records[name]["id"] = f"{path.name}__{place}"
    reseal(
        paper / LOCK,
        split="train",
        num_examples=many,
        records=records,
        ranges=[{"split": "train", "start": 0, "stop": many}],
        splits=[split | {"num_examples": many, "num_shards": 1}],
        files=[file | {"num_examples": many, "name": path.name}],
    )
    (fault,) = registry.load_pin(LOCK)["across"].verify().faults
    assert f"expected {many} records, found 17" in fault.problem
    with pytest.raises(ShardMismatchError, match=f"record {many - 1} was requested, but the file has 17 records"):
        registry.load_pin(LOCK)["across"].read()


HUGGING_FACE = (
    '{"info": {"features": {"kind": {"names": ["cat", "dog"], "_type": "ClassLabel"}, "picture": {"_type": "Image"}}}}'
)


def odd_columns(count: int) -> pa.Table:
    """Columns of every kind that section 4 of a bundle's README.txt names, with nulls."""
    rows = range(count)
    columns = {
        "n": pa.array([None if row % 3 == 1 else row - 5 for row in rows], pa.int64()),
        "half": pa.array([np.float16(row / 4) for row in rows], pa.float16()),
        "double": pa.array([row / 7 for row in rows], pa.float64()),
        "box": pa.array([[row / 7, 1.0] for row in rows], pa.list_(pa.float64(), 2)),
        "text": [None if row % 4 == 2 else "é" * (row % 300) for row in rows],
        "when": pa.array([row * 1000 for row in rows], pa.timestamp("ms")),
        "sure": [row % 2 == 0 for row in rows],
        "kind": pa.array([None if row == 3 else row % 2 for row in rows], pa.int64()),
        "tags": [["a", "b\0"][: row % 3] for row in rows],
        "grid": pa.array([[[row, -row], [], [7]][: row % 4] for row in rows], pa.list_(pa.list_(pa.int32()))),
        "part": [{"ä": row, "z": f"{row}"} for row in rows],
        "picture": [{"bytes": b"\x89P" + bytes([row % 256]), "path": f"{row}.bin"} for row in rows],
    }
    return pa.table(columns).replace_schema_metadata({"huggingface": HUGGING_FACE})


def record_of(row: dict[str, Any]) -> bytes:
    """The record of a row, as README.txt says, and without code of the registry."""
    numbers = {
        "when": [round(row["when"].replace(tzinfo=UTC).timestamp() * 1000)],
        "sure": [row["sure"]],
        "kind": [-1 if row["kind"] is None else row["kind"]],
        "grid/ragged_flat_values": [value for inner in row["grid"] for value in inner],
        "grid/ragged_row_lengths_0": list(map(len, row["grid"])),
        "part/ä": [row["part"]["ä"]],
    } | ({} if row["n"] is None else {"n": [row["n"]]})
    texts = {
        "double": [struct.pack("<d", row["double"])],
        "box": [struct.pack("<2d", *row["box"])],
        "tags": [tag.encode() for tag in row["tags"]],
        "part/z": [row["part"]["z"].encode()],
        "picture": [row["picture"]["bytes"]],
    } | ({} if row["text"] is None else {"text": [row["text"].encode()]})
    example = Example()
    for key, values in numbers.items():
        example.features.feature[key].int64_list.value.extend(map(int, values))
        example.features.feature[key].int64_list.SetInParent()
    for key, items in texts.items():
        example.features.feature[key].bytes_list.value.extend(items)
        example.features.feature[key].bytes_list.SetInParent()
    example.features.feature["half"].float_list.value.append(float(row["half"]))
    return example.SerializeToString(deterministic=True)


def test_a_row_of_typed_columns_is_the_record_that_the_readme_defines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, folder = 1400, tmp_path / "odd"
    folder.mkdir()
    for index in range(2):
        part = odd_columns(count).slice(index * 750, 750)
        parquet.write_table(part, folder / f"train-{index:05}-of-00002.parquet", row_group_size=400)
    rows = odd_columns(count).to_pylist()
    hashes = [hashlib.sha256(record_of(row)).digest() for row in rows[100:1300]]
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        with pytest.warns(NullLabelWarning):
            catalog.import_parquet(folder)  # in place: only the catalog knows the folder
        dataset = catalog.dataset("odd")
        assert [bytes(record) for record in dataset.read("train[:9]").records()] == list(map(record_of, rows[:9]))
        dataset.pin("train[100:1300]").save(tmp_path / LOCK)
    assert run(["pin", "restore", str(tmp_path / LOCK), "--data", str(folder), "--to", str(tmp_path / "copy")]) == 0
    entry = registry.load_pin(tmp_path / LOCK)["train"].entry
    assert entry.file_format == "parquet_columns"
    assert entry.records.ordered == f"sha256:{hashlib.sha256(b''.join(hashes)).hexdigest()}"
    monkeypatch.setenv("REGISTRY_CATALOG", "/dev/null/catalog.db")
    pin = registry.load_pin(tmp_path / LOCK, data_dir=tmp_path / "copy")["train"]
    for options in ({}, {"deep": True}, {"processes": 2}):
        assert pin.verify(**options).proved_by == "files"
    # The same rows in other row groups, encodings and Arrow types.
    for index in range(2):
        part = odd_columns(count).slice(index * 750, 750)
        part = part.set_column(4, "text", part["text"].cast(pa.large_string()).dictionary_encode())
        path = tmp_path / f"copy/odd/1.0.0/train-{index:05}-of-00002.parquet"
        parquet.write_table(part, path, row_group_size=77, compression="zstd", use_dictionary=index == 0)
    report = pin.verify(deep=True)
    assert (report.faults, report.proved_by, len(report.notes)) == ((), "records", 2)


def test_a_version_that_was_imported_in_place_is_compared_without_its_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folder has no dataset_info.json, so the catalog has to describe the other shards."""
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"age": range(30)})
    for name, shards in (("a/animals", 3), ("b/animals", 5), ("c/animals", 5)):
        (tmp_path / name).mkdir(parents=True)
        for index in range(shards):
            size = 30 // shards
            part = rows.slice(index * size, size) if name != "c/animals" else pa.table({"age": [7] * size})
            parquet.write_table(part, tmp_path / name / f"train-{index:05}-of-{shards:05}.parquet")
    options = ["--catalog", str(tmp_path / "catalog.db")]
    with registry.connect("catalog.db", create=True) as catalog:
        for folder, version in (("a", "1.0.0"), ("b", "1.0.1"), ("c", "2.0.0")):
            catalog.import_parquet(f"{folder}/animals", name="animals", version=version)
        catalog.dataset("animals:1.0.0").pin("train[5:25]").save(LOCK)
        other = catalog.dataset("animals:1.0.1")
        assert registry.load_pin(LOCK)["train"].verify(folder=other.folder, splits=other.splits).proved_by == "records"
    for version, code in (("1.0.0", 0), ("1.0.1", 0), ("2.0.0", 5)):
        assert run(["pin", "verify", LOCK, "--against", f"animals:{version}", *options]) == code
    out = capsys.readouterr().out
    assert "5 files with other shards hold the pinned records" in out
    assert "more than one record differs, in feature age" in out


@pytest.mark.parametrize("file_format", ["parquet", "parquet_columns"])
def test_versions_in_a_bucket_are_pinned_there(bucket: str, tmp_path: Path, file_format: str) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data", create=True) as catalog:
        catalog.publish(prepare_as(tmp_path / "1.0.0", file_format, counts=COUNTS))
        pins = catalog.dataset("animals").pin(SLICES, locations=[f"{bucket}/data/animals/1.0.0"])
    pins.save(tmp_path / "paper" / LOCK)
    local = registry.load_pin(tmp_path / "paper" / LOCK, data_dir=tmp_path / "here")
    there = registry.load_pin(tmp_path / "paper" / LOCK, fetch=True)
    assert [pin.verify().proved_by for pin in there.values()] == ["files"] * len(SLICES)
    assert ages(there["across"].read()) == [*range(10, 40)]
    restore(there, None, tmp_path / "here")
    assert [pin.verify(deep=True).proved_by for pin in local.values()] == ["files"] * len(SLICES)


def test_array_records_in_a_bucket_are_restored_and_then_read(bucket: str, tmp_path: Path) -> None:
    """The package reads files of this machine only."""
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data", create=True) as catalog:
        catalog.publish(prepare_as(tmp_path / "data/animals/1.0.0", "array_record"))
        pins = catalog.dataset("animals").pin("train[10:40]", locations=[f"{bucket}/animals"])
    pins.save(tmp_path / "paper" / LOCK)
    here, there = open_store(tmp_path / "data/animals/1.0.0"), open_store(f"{bucket}/animals")
    for name in here.list():
        there.create_from(name, here, name)
    fetched = registry.load_pin(tmp_path / "paper" / LOCK, fetch=True)
    with pytest.raises(StorageError, match="ArrayRecord files can be read on this machine only"):
        list(fetched["train"].read())
    (fault,) = fetched["train"].verify().faults
    assert fault.problem.endswith("ArrayRecord files can be read on this machine only")
    restore(fetched, None, tmp_path / "copy")
    pin = registry.load_pin(tmp_path / "paper" / LOCK, data_dir=tmp_path / "copy")["train"]
    assert (pin.verify().proved_by, ages(pin.read())) == ("files", [*range(10, 40)])
