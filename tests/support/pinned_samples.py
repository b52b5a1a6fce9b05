"""A catalog with a few small datasets, and pin files of them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import registry
from registry.api import Catalog
from registry.model import Reference, tfds_id
from registry.order import ReadConfig
from registry.pins import PinFile, PinSource, Places, make_entry
from support.prepared_samples import animals, prepare
from support.ready_catalogs import copy_built


def publish_samples(folder: Path) -> Catalog:
    """``animals:1.0.0`` in four plain shards, and ``beasts/wild:1.0.0`` in gzip files, with two splits each."""
    copy_built(_publish_samples, folder)
    return registry.connect(folder / "catalog.db")


def _publish_samples(folder: Path) -> None:
    with registry.connect(folder / "catalog.db") as catalog:
        data = Path(str(catalog.data_dir))
        splits = {"train": animals(40), "test": animals(10)}
        prepare(data / "animals/1.0.0", splits=splits, shards=4)
        catalog.publish(data / "animals/1.0.0")
        prepare(data / "beasts/wild/1.0.0", splits=splits, shards=2, name="beasts", config="wild", compress=True)
        catalog.publish(data / "beasts/wild/1.0.0")


def pin(
    catalog: Catalog,
    wanted: Mapping[str, tuple[str, str]],
    *,
    places: Places | None = None,
    locations: Sequence[str] = (),
    file_locations: Sequence[str] = (),
) -> PinFile:
    """Pins by name, each given as (reference, split expression); ``file_locations`` are folders of single files."""
    entries = []
    for name, (reference, expression) in wanted.items():
        dataset = catalog.dataset(reference)
        source = PinSource(
            readable=dataset.readable,
            request=Reference.parse(reference),
            why=dataset.why,
            shards=lambda split, dataset=dataset: dataset.shards(split),
        )
        entry = make_entry(source, name, dataset.resolve(expression), locations=locations)
        for file in entry["files"]:
            file["locations"] = [f"{folder}/{file['name']}" for folder in file_locations]
        entries.append(entry)
    return PinFile.of(entries, created_by="shardbook 0", places=places or Places(data_dirs=(catalog.data_dir,)))


def stored_ids(pin_file: PinFile, name: str) -> list[str]:
    """The TFDS ids of a pin's records in stored order, as the reader knows them."""
    plan = pin_file[name].plan
    order = plan.order(ReadConfig(interleave_cycle_length=1))
    return [tfds_id(plan[run.instruction].filename, run.first + at) for run in order for at in range(run.count)]


def read_all(pin_file: PinFile, name: str) -> list[dict[str, Any]]:
    """The examples of a pin."""
    return list(_plain(pin_file[name].read()))


def _plain(reader: Any) -> Iterator[dict[str, Any]]:
    for example in reader:
        yield {"name": example["name"], "kind": int(example["kind"]), "age": int(example["age"])}


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar as its reader does."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "xf", str(archive), "-C", str(folder)], check=True)
