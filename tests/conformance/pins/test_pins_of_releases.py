"""A pin file of lock_version 1 is read, proved and made again, by this release as by the one that wrote it."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

import registry
from registry.pins.yaml_text import read_yaml

FOLDER = Path(__file__).parent
PREPARED = FOLDER.parent / "prepared"
FORMATS = FOLDER.parent / "formats"
FILE = FOLDER / "lab.lock.yaml"
FORMATS_FILE = FOLDER / "formats.lock.yaml"


def make_pins(folder: Path) -> registry.PinFile:
    """The pins of the file, from a catalog that holds the sets that TFDS prepared."""
    for version in ("lab_mnist/3.0.1", "lab_text/1.0.0"):
        shutil.copytree(PREPARED / version, folder / "datasets" / version)
    with registry.connect(folder / "catalog.db") as catalog:
        mnist = catalog.publish(folder / "datasets/lab_mnist/3.0.1").version.reference
        catalog.publish(folder / "datasets/lab_text/1.0.0")
        shuffled = registry.ReadConfig(shuffle_files=True, shuffle_seed=42)
        pins = catalog.dataset("lab_mnist:3.*").pin({"train": "train[10%:60%]"}, read_config=shuffled)
        pins = catalog.dataset(mnist).pin(
            {"test": "test+train[-3:]"}, into=pins, locations=["https://example.org/lab_mnist/3.0.1"]
        )
        return catalog.dataset("lab_text").pin({"text": "train[:1shard]"}, into=pins)


def test_a_file_of_the_first_release_is_read_and_written_byte_for_byte() -> None:
    assert registry.load_pin(FILE).to_yaml() == FILE.read_text(encoding="utf-8")


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("name", ["train", "test", "text"])
def test_the_pinned_records_equal_those_that_tfds_stored(name: str, deep: bool) -> None:
    report = registry.load_pin(FILE, data_dir=PREPARED)[name].verify(deep=deep)
    assert (report.faults, report.proved_by, report.deep) == ((), "files", deep)


def test_the_pinned_orders_equal_those_of_that_release() -> None:
    pins = registry.load_pin(FILE, data_dir=PREPARED)
    ids = {name: hashlib.sha256("\n".join(pin.read().ids()).encode()).hexdigest()[:16] for name, pin in pins.items()}
    assert ids == {"train": "070a48ca8da873ad", "test": "e6b1b9525e60ffdd", "text": "d66abf70b68c9755"}


def stable_fields(text: str) -> list[dict[str, Any]]:
    pins: list[dict[str, Any]] = read_yaml(text.encode(), "f").value["pins"]
    return [{**pin, "provenance": None, "why": None} for pin in pins]  # they name the release, and are prose


def test_the_same_pins_are_made_again(tmp_path: Path) -> None:
    assert stable_fields(make_pins(tmp_path).to_yaml()) == stable_fields(FILE.read_text(encoding="utf-8"))


def make_pins_of_formats(folder: Path) -> registry.PinFile:
    """The pins of ``FORMATS_FILE``: of files that TFDS and Hugging Face wrote."""
    pins = None
    with registry.connect(folder / "catalog.db", create=True) as catalog:
        for name in ("lab_array", "lab_parquet"):
            catalog.publish(FORMATS / name / "1.0.0")
        catalog.import_parquet(FORMATS / "hugging_face/animals")
        for name in ("lab_array", "lab_parquet", "animals"):
            pins = catalog.dataset(name).pin({name: "train[1:]", f"{name} test": "test"}, into=pins)
    assert pins is not None
    return pins


def test_pins_of_other_formats_are_read_proved_and_made_again(tmp_path: Path) -> None:
    """A new release of pyarrow, or of this package, must not change a digest."""
    text = FORMATS_FILE.read_text(encoding="utf-8")
    pins = registry.load_pin(FORMATS_FILE, data_dir=FORMATS)
    assert pins.to_yaml() == text
    assert [pin.entry.file_format for pin in pins.values()] == [
        *["array_record"] * 2,
        *["parquet"] * 2,
        *["parquet_columns"] * 2,
    ]
    for pin in pins.values():
        folder = FORMATS / "hugging_face/animals" if pin.entry.dataset == "animals" else None
        report = pin.verify(folder=folder, deep=True)
        assert (report.faults, report.proved_by) == ((), "files")
    assert stable_fields(make_pins_of_formats(tmp_path).to_yaml()) == stable_fields(text)
