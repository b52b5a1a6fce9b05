"""Verifies equal records in other files, which pass, and different records, which are named."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.prepared_samples import ANIMALS, animals, prepare

import registry
from registry.api import Catalog
from registry.cli.main import run
from registry.features import FeaturesDict, codec_of
from registry.features import Sequence as SequenceFeature
from registry.pins import PinFile
from registry.pins.verify import PinFault, PinReport
from registry.storage import open_store
from registry.tfrecord import RecordWriter, read_records

COUNT = 90
TRAIN, TEST = animals(COUNT), animals(12)


def sha256(record: bytes) -> str:
    return f"sha256:{hashlib.sha256(record).hexdigest()}"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with animals 1.0.0 in 4 plain shards, and 1.0.1: the same in 7 gzip files; and a pin file of 1.0.0."""
    folder = tmp_path_factory.mktemp("published")
    data = folder / "datasets/animals"
    with registry.connect(folder / "catalog.db") as catalog:
        catalog.publish(prepare(data / "1.0.0", splits={"train": TRAIN, "test": TEST}, shards=4))
        catalog.dataset("animals").pin({"train": "train[:80%]", "both": "train[80%:]+test"}).save(folder / "pin.yaml")
        catalog.publish(prepare(data / "1.0.1", "1.0.1", {"train": TRAIN, "test": TEST}, shards=7, compress=True))
    return folder


@pytest.fixture
def paper(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of all that, which is the current folder."""
    shutil.copytree(published, tmp_path / "paper")
    monkeypatch.chdir(tmp_path / "paper")
    monkeypatch.setenv("REGISTRY_CATALOG", "catalog.db")
    return tmp_path / "paper"


@pytest.fixture
def pins(paper: Path) -> PinFile:
    return registry.load_pin("pin.yaml")


@pytest.fixture
def catalog(paper: Path) -> Iterator[Catalog]:
    with registry.connect() as opened:
        yield opened


def test_the_schema_is_read_only_to_decode(pins: PinFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> FeaturesDict:
        raise AssertionError

    monkeypatch.setattr("registry.pins.verify.features_of", refuse)
    pins["train"].verify().require_sound()
    with pytest.raises(AssertionError):
        pins["train"].verify(deep=True)


def rewrite(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Rewrite the records of a file as returned by ``change``, with valid checksums, and with gzip if it was gzip."""
    store = open_store(path.parent)
    records = change(list(read_records(store, path.name)))
    compressed = path.read_bytes()[:2] == b"\x1f\x8b"
    target = io.BytesIO()
    writer = RecordWriter(target)
    for record in records:
        writer.write(record)
    path.write_bytes(gzip.compress(target.getvalue(), 1, mtime=0) if compressed else target.getvalue())


def change_record(path: Path, index: int, old: bytes, new: bytes) -> tuple[str, str]:
    """Replace bytes in one record, with its checksum; the sha256 of the record before and after."""
    digests: list[str] = []

    def change(records: list[bytes]) -> list[bytes]:
        assert records[index].count(old) == 1
        assert len(old) == len(new)
        digests.append(sha256(records[index]))
        records[index] = records[index].replace(old, new)
        digests.append(sha256(records[index]))
        return records

    rewrite(path, change)
    return digests[0], digests[1]


def damage_record(path: Path, index: int, old: bytes, new: bytes) -> tuple[str, str]:
    """As ``change_record``, but the checksum remains that of the old record."""
    records = list(read_records(open_store(path.parent), path.name))
    raw = path.read_bytes()
    compressed = raw[:2] == b"\x1f\x8b"
    plain = gzip.decompress(raw) if compressed else raw
    start = sum(len(record) + 16 for record in records[:index]) + 12
    changed = records[index].replace(old, new)
    plain = plain[:start] + changed + plain[start + len(changed) :]
    path.write_bytes(gzip.compress(plain, 1, mtime=0) if compressed else plain)
    return sha256(records[index]), sha256(changed)


def faults(report: PinReport, *, of_records: bool = True) -> list[PinFault]:
    assert not report.is_sound
    assert report.proved_by == ""
    return [fault for fault in report.faults if not of_records or fault.record is not None]


def test_other_shards_hold_the_same_records(paper: Path, pins: PinFile, catalog: Catalog) -> None:
    folder = paper / "datasets/animals/1.0.1"
    for pin in pins.values():
        report = pin.verify(folder=folder, deep=True)
        assert (report.is_sound, report.proved_by, report.deep) == (True, "records", True)
    again = catalog.dataset("animals:1.0.1").pin({"train": "train[:80%]", "both": "train[80%:]+test"})
    for name, pin in pins.items():
        old, new = pin.entry, again[name].entry
        assert (old.records.ordered, old.records.unordered) == (new.records.ordered, new.records.unordered)
        assert old.records.features == new.records.features
        assert old.ranges == new.ranges
        assert {file.sha256 for file in old.files}.isdisjoint(file.sha256 for file in new.files)


def test_the_command_line_says_so(paper: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = (
        "train: animals:1.0.0 train[:80%]: 72 records as pinned: the records match the pin "
        f"(6 files, SIZE in {paper}/datasets/animals/1.0.1)\n  6 files with other shards hold the pinned records\n"
    )
    for option in (["--against", "animals:1.0.1"], ["--data-dir", "datasets/animals/1.0.1"]):
        assert run(["pin", "verify", "pin.yaml", "train", *option]) == 0
        out = capsys.readouterr().out
        size = out.partition("files, ")[2].partition(" in ")[0]
        assert out == line.replace("SIZE", size)


@pytest.mark.parametrize("version", ["1.0.0", "1.0.1"])
@pytest.mark.parametrize("change", [change_record, damage_record])
def test_one_changed_byte_is_named(
    paper: Path,
    capsys: pytest.CaptureFixture[str],
    version: str,
    change: Callable[[Path, int, bytes, bytes], tuple[str, str]],
) -> None:
    folder = paper / "datasets/animals" / version
    lengths = [len(list(read_records(open_store(folder), path.name))) for path in sorted(folder.glob("*train*"))]
    shard, record = 2, 5
    number = sum(lengths[:shard]) + record
    path = sorted(folder.glob("*train*"))[shard]
    text = f"animal {number}".encode()
    before, after = change(path, record, text, text[:-1] + b"X")
    assert run(["pin", "verify", "pin.yaml", "train", "--data-dir", str(folder)]) == 5
    out = capsys.readouterr().out
    problem = (
        f"  {path.name}: record {record} (number {number} of train[:80%]) differs in feature name: "
        f"sha256 mismatch: expected {before[7:]}, found {after[7:]}"
    )
    lines = out.splitlines()
    assert lines[0] == f"train: animals:1.0.0 train[:80%] in {folder} differs from the pin"
    assert [line.removesuffix("; its checksum is wrong too") for line in lines if "record " in line] == [problem]
    assert lines[-2].endswith("; its checksum is wrong too") == (change is damage_record)
    assert lines[-1].startswith("    name: pinned sha256:")
    (fault,) = faults(registry.load_pin("pin.yaml")["train"].verify(folder=folder))
    assert (fault.filename, fault.record, fault.position) == (path.name, record, number)
    assert (fault.pinned, fault.found, list(fault.features)) == (before, after, ["name"])
    other = registry.load_pin("pin.yaml")["both"].verify(folder=folder)
    assert other.is_sound, "its records are others"


def test_a_record_beyond_the_slice_changes_the_file_and_not_the_proof(paper: Path, pins: PinFile) -> None:
    folder = paper / "datasets/animals/1.0.0"
    path = sorted(folder.glob("*train*"))[3]
    change_record(path, 20, b"animal 88", b"animal XX")
    report = pins["train"].verify()
    assert (report.is_sound, report.proved_by) == (True, "records")
    (note,) = report.notes
    assert note.startswith(f"{path.name}: sha256 mismatch: ")
    assert note.endswith("; its pinned records are unchanged")
    assert not pins["both"].verify().is_sound


def swap(records: list[bytes]) -> list[bytes]:
    return [records[3], *records[1:3], records[0], *records[4:]]


def test_reordered_records_are_reported_as_reordered(paper: Path, pins: PinFile) -> None:
    path = min((paper / "datasets/animals/1.0.0").glob("*train*"))
    rewrite(path, swap)
    *files, fault = faults(pins["train"].verify(), of_records=False)
    assert [file.filename for file in files] == [path.name]
    assert fault.problem.startswith("all pinned records are present, but in another order: digest over all ")
    assert fault.problem.endswith(" (the middle and the last record are right)")
    assert (fault.pinned, fault.record) == (pins["train"].entry.records.ordered, None)
    assert pins["both"].verify().is_sound
    backwards = prepare(paper / "backwards", "1.0.2", {"train": TRAIN[:72][::-1] + TRAIN[72:], "test": TEST}, shards=5)
    (fault,) = faults(pins["train"].verify(folder=backwards), of_records=False)
    assert fault.problem.startswith("all pinned records are present, but in another order: ")


NEW = {"name": "another", "kind": 1, "age": 3}
OTHER_NUMBERS: dict[str, tuple[Sequence[Any], str]] = {
    "one too few": (TRAIN[:-1], "expected records 0..90 of train, which has 89 records here"),
    "one too few in the middle": (
        TRAIN[:40] + TRAIN[41:],
        "expected records 0..90 of train, which has 89 records here",
    ),
    "one too many in the middle": ([*TRAIN[:40], NEW, *TRAIN[40:]], "more than one record differs, in features "),
    "none": ([], "expected records 0..90 of train, which has 0 records here"),
    "one in place of another": ([*TRAIN[:40], NEW, *TRAIN[41:]], "record 10 (number 40 of train) differs in features "),
    "two in place of others": ([NEW, *TRAIN[1:40], NEW, *TRAIN[41:]], "more than one record differs, in features "),
}


@pytest.mark.parametrize(("train", "problem"), OTHER_NUMBERS.values(), ids=OTHER_NUMBERS)
def test_a_record_too_many_or_too_few(paper: Path, catalog: Catalog, train: Sequence[Any], problem: str) -> None:
    pin = catalog.dataset("animals:1.0.0").pin("train")["train"]
    folder = prepare(paper / "other", "1.0.2", {"train": train, "test": TEST}, shards=3)
    (fault,) = faults(pin.verify(folder=folder), of_records=False)
    assert problem in fault.problem


def test_records_behind_the_pinned_ones_are_noted(paper: Path, catalog: Catalog) -> None:
    pin = catalog.dataset("animals:1.0.0").pin("train")["train"]
    folder = prepare(paper / "more", "2.0.0", {"train": [*TRAIN, NEW], "test": TEST}, shards=3)
    report = pin.verify(folder=folder)
    assert (report.is_sound, report.proved_by) == (True, "records")
    assert report.notes == (
        "3 files with other shards hold the pinned records",
        "train has 91 records here; it had 90 when it was pinned",
    )
    single = prepare(paper / "single", "1.0.2", {"train": TRAIN, "test": TEST}, shards=1)
    assert pin.verify(folder=single).notes == ("1 file with other shards holds the pinned records",)


@pytest.mark.parametrize(
    ("change", "held"),
    [(lambda records: records[:-1], "22"), (lambda records: [*records, records[0]], "more than 23")],
    ids=["fewer", "more"],
)
def test_a_file_with_another_number_of_records(
    paper: Path, pins: PinFile, change: Callable[[list[bytes]], list[bytes]], held: str
) -> None:
    path = sorted((paper / "datasets/animals/1.0.0").glob("*train*"))[1]
    before = path.stat().st_size
    rewrite(path, change)
    size, number = faults(pins["train"].verify(), of_records=False)
    assert size.problem == f"{path.name}: expected {before} bytes, found {path.stat().st_size}"
    assert number.problem == f"{path.resolve()}: expected 23 records, found {held}"
    assert (size.filename, number.filename) == (path.name, path.name)


def entries_of(record: bytes) -> list[bytes]:
    """The entries of a short Example, each with its tag and length."""
    assert record[0] == 0x0A
    assert record[1] == len(record) - 2 < 128
    entries, at = [], 2
    while at < len(record):
        assert record[at] == 0x0A
        entries.append(record[at : at + 2 + record[at + 1]])
        at += 2 + record[at + 1]
    return entries


def test_records_that_are_not_all_of_one_form(paper: Path, catalog: Catalog) -> None:
    features = FeaturesDict({**ANIMALS, "legs": SequenceFeature("int64")})
    records: list[bytes] = []
    for number, example in enumerate(animals(60)):
        entries = entries_of(codec_of(features).encode({**example, "legs": [1] * (number % 3)}))
        if number % 3 == 0:  # an absent key is an empty list
            entries = [entry for entry in entries if b"legs" not in entry]
        turn = number % len(entries)
        content = b"".join(entries[turn:] + entries[:turn])
        records.append(bytes([0x0A, len(content)]) + content)
    odd = prepare(paper / "odd/1.0.0", splits={"train": records}, features=features, shards=4, name="odd")
    catalog.publish(odd)
    pin = catalog.dataset("odd").pin("train")["train"]
    assert sorted(pin.entry.records.features) == ["age", "kind", "legs", "name"]
    assert [len(example["legs"]) for example in pin.read(registry.ReadConfig(interleave_cycle_length=1))] == [
        number % 3 for number in range(60)
    ]
    assert pin.verify(deep=True).is_sound
    same = prepare(paper / "same", "1.0.1", {"train": records}, features=features, shards=7, compress=True, name="odd")
    assert pin.verify(folder=same, deep=True).proved_by == "records"
    turned = list(records)
    entries = entries_of(records[31])
    content = b"".join(entries[1:] + entries[:1])
    turned[31] = bytes([0x0A, len(content)]) + content
    assert turned[31] != records[31]
    folder = prepare(paper / "turned", "1.0.1", {"train": turned}, features=features, shards=1, name="odd")
    (fault,) = faults(pin.verify(folder=folder))
    assert (fault.record, fault.features) == (31, {})
    assert "has the same values in another serialization: sha256 mismatch: " in fault.problem
    given = list(records)
    absent = next(number for number in range(30, 60) if number % 3 == 0)
    given[absent] = codec_of(features).encode({**animals(60)[absent], "legs": [4]})
    folder = prepare(paper / "given", "1.0.1", {"train": given}, features=features, shards=2, name="odd")
    (fault,) = faults(pin.verify(folder=folder))
    assert (fault.position, list(fault.features)) == (absent, ["legs"])
    assert "differs in feature legs: sha256 mismatch: " in fault.problem


def test_a_pin_that_was_read_finds_its_files_where_they_were_moved_to(
    pins: PinFile, paper: Path, catalog: Catalog
) -> None:
    with registry.locked(pins):
        dataset = catalog.dataset("animals:1.0.0")
    read = [example["age"] for example in pins["train"].read()]
    assert [example["age"] for example in dataset.read("train[:80%]")] == read
    (paper / "datasets").rename(paper / "data")
    assert [example["age"] for example in pins["train"].read()] == read
    assert [example["age"] for example in dataset.read("train[:80%]")] == read
