"""False pins with a valid seal, and files that only look right, are neither read nor verified."""

from __future__ import annotations

import copy
import hashlib
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.pinned_samples import publish_samples

import registry
from registry.api import Catalog
from registry.errors import (
    LockedError,
    NotStoredError,
    PinFormatError,
    RecordsMismatchError,
    ShardMismatchError,
    UsageError,
)
from registry.pins import PinFile, Places
from registry.pins.citation import Citation

THIRD = "animals-train.tfrecord-00002-of-00004"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """``animals:1.0.0`` with a train split of 40 records in four shards and a test split of 10 records."""
    with publish_samples(tmp_path) as opened:
        yield opened


def shards(catalog: Catalog) -> Path:
    return Path(catalog.data_dir) / "animals" / "1.0.0"


def forge(pins: PinFile, change: Callable[[dict[str, Any]], None]) -> PinFile:
    """The pins with a changed first pin, sealed again."""
    content = copy.deepcopy(dict(pins.content))
    change(content["pins"][0])
    return PinFile.of(content["pins"], created_by="a forger", places=pins.places)


def test_a_layout_that_shifts_the_records_is_seen(catalog: Catalog) -> None:
    def shift(entry: dict[str, Any]) -> None:
        entry["files"][0]["first_example"] -= 1
        for spot in ("first", "middle", "last"):
            before, _, record = entry["records"][spot]["id"].rpartition("__")
            entry["records"][spot]["id"] = f"{before}__{int(record) + 1}"

    pin = forge(catalog.dataset("animals").pin("train[22:26]"), shift)["train"]
    for quick in (False, True):
        report = pin.verify(quick=quick)
        assert report.faults, "the files are the pinned ones, and the records are others"
    with pytest.raises(RecordsMismatchError, match=r"animals:1\.0\.0 train\[22:26\] in .* differs from the pin"):
        pin.read()


def test_a_file_that_differs_from_the_catalog_cannot_be_pinned(catalog: Catalog) -> None:
    path = shards(catalog) / THIRD
    frames = list(split_frames(path.read_bytes()))
    promised = hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_bytes(b"".join([*frames[:2], frames[3], frames[2], *frames[4:]]))  # every checksum is right
    with pytest.raises(ShardMismatchError) as caught:
        catalog.dataset("animals").pin("train[22:26]")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    assert caught.value.message == f"{THIRD}: sha256 mismatch: the catalog has {promised}, found {found}"
    assert len(catalog.dataset("animals").pin("train[:20]")) == 1, "of other files nothing is asked"


def test_the_digest_of_a_paper_over_other_files_is_not_proved(catalog: Catalog) -> None:
    pins = catalog.dataset("animals").pin("train[22:26]")
    path = shards(catalog) / THIRD
    data = path.read_bytes()
    frames = list(split_frames(data))
    path.write_bytes(b"".join([*frames[:2], frames[3], frames[2], *frames[4:]]))

    def pass_off(entry: dict[str, Any]) -> None:
        entry["files"][0]["sha256"] = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"

    forged = forge(pins, pass_off)["train"]
    assert str(Citation.of(forged.entry)) == str(Citation.of(pins["train"].entry))
    (fault,) = forged.verify().faults
    assert fault.problem.startswith("all pinned records are present, but in another order")
    (seen,) = forged.verify(quick=True).faults
    assert seen.problem.startswith(f"{THIRD}: record 2 (number 0 of train[22:26]): sha256 mismatch: ")


def test_more_records_than_a_file_can_hold_are_refused(catalog: Catalog) -> None:
    def boast(entry: dict[str, Any]) -> None:
        entry["files"][-1]["num_examples"] = 2**50
        entry["splits"][0]["num_examples"] = 30 + 2**50

    with pytest.raises(PinFormatError, match=r"files\[0\]\.num_examples: a file of [0-9]+ bytes cannot contain [0-9]+"):
        forge(catalog.dataset("animals").pin("train[30:]"), boast)


def test_a_wrong_checksum_around_right_bytes_is_a_fault(catalog: Catalog) -> None:
    pin = catalog.dataset("animals").pin("train[22:26]")["train"]
    path = shards(catalog) / THIRD
    frames = list(split_frames(path.read_bytes()))
    path.write_bytes(b"".join([*frames[:3], frames[3][:-1] + bytes([frames[3][-1] ^ 1]), *frames[4:]]))
    for deep in (False, True):
        problems = [fault.problem for fault in pin.verify(deep=deep).faults]
        assert len(problems) == 2
        assert problems[0].startswith(f"{THIRD}: sha256 mismatch: ")
        assert f"{THIRD}: record 3 at byte " in problems[1]


def test_files_of_the_same_sizes_with_records_in_another_order_are_not_read(catalog: Catalog) -> None:
    pins = catalog.dataset("animals").pin("train[22:26]")
    path = shards(catalog) / THIRD
    frames = list(split_frames(path.read_bytes()))
    path.write_bytes(b"".join([*frames[:2], frames[3], frames[2], *frames[4:]]))
    with pytest.raises(RecordsMismatchError, match="record 2"):
        pins["train"].read()
    with (
        registry.locked(pins),
        pytest.raises(RecordsMismatchError, match="record 2"),
    ):
        registry.load("animals", split="train[23:24]")


def test_quick_verification_notes_what_it_did_not_check(catalog: Catalog) -> None:
    pin = catalog.dataset("animals").pin("train")["train"]
    report = pin.verify(quick=True)
    assert (report.faults, report.proved_by) == ((), "files")
    assert report.notes == ("only three records were checked; for the digest over all records, the pin is trusted",)
    with pytest.raises(UsageError, match="deep and quick cannot be combined"):
        pin.verify(quick=True, deep=True)


def test_a_lock_keeps_the_split_rule_of_the_version_with_any_rule_of_its_pins(catalog: Catalog) -> None:
    animals = catalog.dataset("animals")
    expected = list(animals.read("test[:25%]").ids())  # of 10 records
    assert (len(expected), animals.resolve("test[:25%]", slicing="tfds-4").num_examples) == (3, 2)
    pins = animals.pin({"a": "test"}, slicing="tfds-4")
    pins = animals.pin({"b": "test[:50%]"}, into=pins)
    with registry.locked(pins):
        assert registry.connect(catalog.url).dataset("animals").slicing == animals.slicing
        assert list(registry.load("animals", split="test[:25%]").ids()) == expected


def test_a_lock_tells_the_status_of_when_it_was_pinned(catalog: Catalog) -> None:
    pins = catalog.dataset("animals").pin("train[:5]")
    for status in ("canonical", "supported", "experimental", "deprecated"):
        reported = forge(pins, lambda entry, status=status: entry.update(status=status))
        with registry.locked(reported):
            assert registry.connect(catalog.url).dataset("animals").status == status


def test_a_folder_with_a_file_of_another_size_is_passed_over(catalog: Catalog, tmp_path: Path) -> None:
    pins = catalog.dataset("animals").pin("train[22:26]")
    path = shards(catalog) / THIRD
    (tmp_path / "paper" / "data" / "animals" / "1.0.0").mkdir(parents=True)
    (tmp_path / "paper" / "data" / "animals" / "1.0.0" / THIRD).write_bytes(path.read_bytes()[:-1])
    saved = pins.save(tmp_path / "paper" / "dataset.lock.yaml")
    opened = PinFile.load(saved, places=Places(beside=str(tmp_path / "paper"), data_dirs=(catalog.data_dir,)))
    assert opened["train"].store().local_root == shards(catalog)
    assert len(list(opened["train"].read())) == 4


def test_the_event_of_an_alias_is_the_one_that_held_at_the_moment(catalog: Catalog) -> None:
    catalog.aliases.set("paper", "animals:1.0.0", reason="first")
    then = datetime.now(UTC)
    catalog.aliases.remove("animals@paper")
    catalog.aliases.set("paper", "animals:1.0.0", reason="second")
    for at, message in ((then, "first"), (None, "second")):
        entry = catalog.dataset("animals@paper", at=at).pin("train[:5]")["train"].entry
        assert entry.alias.message == message


def test_what_a_lock_does_not_know_it_does_not_answer(catalog: Catalog) -> None:
    animals = catalog.dataset("animals")
    pins = animals.pin("train[22:26]")
    with registry.locked(pins):
        pinned = registry.connect(catalog.url).dataset("animals")
        assert pinned.explain("train[23:25]").plan.ranges == animals.resolve("train[23:25]").ranges
        for ask in ("all", "train[:10]", "train[2shard:]"):
            with pytest.raises(LockedError, match="is not pinned"):
                pinned.explain(ask)
        lengths = pinned.splits["train"].shard_lengths
        assert (len(lengths), lengths.num_examples, lengths[2], lengths.start(2)) == (4, 40, 10, 20)
        for wrong in (lambda: lengths[0], lambda: list(lengths), lambda: lengths.shard_of(3), lambda: lengths.start(1)):
            with pytest.raises(UsageError, match=r"shard [01] is not pinned"):
                wrong()
        with pytest.raises(UsageError, match="is not pinned"):
            registry.resolve("train[1shard]", pinned.splits)


def test_a_slice_under_a_lock_needs_only_the_files_of_its_own_pins(catalog: Catalog) -> None:
    animals = catalog.dataset("animals")
    pins = animals.pin({"a": "train[:20]", "b": "train[20:]", "c": "test"})
    expected = list(animals.read("train[15:25]").ids())
    for path in shards(catalog).glob("animals-test.*"):
        path.unlink()
    with registry.locked(pins):
        assert list(registry.load("animals", split="train[15:25]").ids()) == expected
        assert len(list(registry.load("animals", split="train[3:7]"))) == 4
        with pytest.raises(NotStoredError):
            registry.load("animals", split="test[:5]")


def test_two_orders_of_one_slice_are_ambiguous_under_a_lock(catalog: Catalog) -> None:
    animals = catalog.dataset("animals")
    shuffled = registry.ReadConfig(shuffle="global", seed=7)
    pins = animals.pin({"a": "train"})
    pins = animals.pin({"b": "train"}, into=pins, read_config=shuffled)
    with registry.locked(pins):
        with pytest.raises(LockedError, match=r"animals:1\.0\.0 train is pinned in several orders: a, b"):
            registry.load("animals", split="train")
        chosen = registry.load("animals", split="train", read_config=shuffled)
        assert list(chosen.ids()) == list(animals.read("train", shuffled).ids())


def test_a_split_that_is_called_after_shards_can_be_sliced_under_a_lock(catalog: Catalog) -> None:
    pins = catalog.dataset("animals").pin("train")
    content = copy.deepcopy(dict(pins.content))
    entry = content["pins"][0]
    for place in (entry["ranges"][0], entry["splits"][0]):
        place["split" if "split" in place else "name"] = "reshard"
    entry["split"] = "reshard"
    for file in entry["files"]:
        file["split"], file["name"] = "reshard", file["name"].replace("-train.", "-reshard.")
        data = (shards(catalog) / file["name"].replace("reshard", "train")).read_bytes()
        (shards(catalog) / file["name"]).write_bytes(data)
    for spot in ("first", "middle", "last"):
        entry["records"][spot]["id"] = entry["records"][spot]["id"].replace("-train.", "-reshard.")
    with registry.locked(PinFile.of([entry], created_by="a test", places=pins.places)):
        assert len(registry.load("animals", split="reshard[:5]")) == 5


def split_frames(data: bytes) -> Iterator[bytes]:
    """The framed records of a plain shard."""
    place = 0
    while place < len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        yield data[place : place + length + 16]
        place += length + 16
