"""What people keep of a dataset works after it was renamed: pins, open datasets, saved positions, files and copies."""

from __future__ import annotations

import json
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import registry
from registry.cli.main import run
from registry.errors import ConflictError, DatasetRenamedError, VersionExistsError
from registry.publishing.publish import Publication, Target

ROWS = [{"number": number, "text": f"row {number}"} for number in range(200)]


@pytest.fixture
def catalog(tmp_path: Path) -> registry.Catalog:
    catalog = registry.connect(str(tmp_path / "catalog.db"), data_dir=str(tmp_path / "data"))
    catalog.add(pa.Table.from_pylist(ROWS), "rain")
    return catalog


def numbers(reader: registry.Reader) -> list[int]:
    return [int(row["number"]) for row in reader]


@pytest.mark.parametrize(
    "config",
    [
        registry.ReadConfig(shuffle_files=True, shuffle_seed=7),
        registry.ReadConfig(shuffle="global", seed=3),
        registry.ReadConfig(),
    ],
    ids=["files", "global", "stored"],
)
def test_a_saved_position_goes_on_under_the_new_name_in_the_same_order(
    catalog: registry.Catalog, config: registry.ReadConfig
) -> None:
    whole = numbers(catalog.dataset("rain").read("train", config))
    reader = catalog.dataset("rain").read("train", config)
    rows = iter(reader)
    begin = [int(row["number"]) for row in islice(rows, 70)]
    state = reader.state()

    catalog.rename("rain", "weather")

    assert begin + [int(row["number"]) for row in rows] == whole  # an open reader does not notice it
    for name in ("rain", "weather"):
        assert begin + numbers(catalog.dataset(name).read("train", config, state=state)) == whole
        assert numbers(catalog.dataset(name).read("train", config)) == whole


def test_a_dataset_that_was_looked_up_before_goes_on_working(catalog: registry.Catalog) -> None:
    dataset = catalog.dataset("rain")
    catalog.rename("rain", "weather")
    assert numbers(dataset.read("train[:3]")) == numbers(catalog.dataset("weather").read("train[:3]"))
    assert dataset.statistics["train"]["number"].max == 199
    assert dataset.verify().faults == ()
    assert dataset.pin("train[:3]")["train"].verify().is_sound
    assert [note.split(" ")[0] for note in catalog.dataset("rain").notes] == ["rain"]


def test_pins_of_both_names_read_the_same_records(catalog: registry.Catalog, tmp_path: Path) -> None:
    before = catalog.dataset("rain").pin("train[:5]")
    catalog.rename("rain", "weather")
    after = catalog.dataset("rain").pin("train[:5]")
    assert (str(before["train"].reference), str(after["train"].reference)) == ("rain:1.0.0", "weather:1.0.0")
    expected = numbers(catalog.dataset("weather").read("train[:5]"))
    for name, pins in (("before", before), ("after", after)):
        path = tmp_path / f"{name}.yaml"
        pins.save(path)
        assert numbers(pins["train"].read()) == expected
        assert pins["train"].verify().is_sound
        loaded = registry.load_pin(path, data_dir=catalog.data_dir)  # no catalog is opened
        assert numbers(loaded["train"].read()) == expected
        assert loaded["train"].verify().is_sound


@pytest.mark.usefixtures("own_temporary_folder")
def test_in_place_versions_keep_their_attachments(tmp_path: Path) -> None:
    catalog = registry.connect(str(tmp_path / "catalog.db"), data_dir=str(tmp_path / "data"))
    (tmp_path / "rain").mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rain" / "train.parquet")
    catalog.add(tmp_path / "rain", in_place=True)
    catalog.dataset("rain").compute_statistics()
    catalog.rename("rain", "weather")
    assert catalog.dataset("weather").statistics["train"]["number"].max == 199
    assert catalog.dataset("weather").verify().faults == ()
    assert list(catalog.collect_garbage()) == []


def test_exports_and_copies_name_the_files_as_they_are(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.rename("rain", "weather")
    dataset = catalog.dataset("weather")
    dataset.export_tfds(tmp_path / "tfds")
    other = registry.connect(str(tmp_path / "other.db"), data_dir=str(tmp_path / "others"))
    other.import_tfds(tmp_path / "tfds")
    third = registry.connect(str(tmp_path / "third.db"), data_dir=str(tmp_path / "thirds"))
    catalog.copy("rain", third).require_all()
    for copied in (other, third):
        found = copied.dataset("weather")
        assert numbers(found.read("train")) == numbers(dataset.read("train"))
        assert found.verify().faults == ()
        assert copied.verify_log().is_sound


def test_a_source_with_the_old_name_is_refused_before_it_is_read(catalog: registry.Catalog) -> None:
    catalog.rename("rain", "weather")
    with pytest.raises(DatasetRenamedError, match="the dataset rain was renamed: it is weather now"):
        catalog.add(pa.Table.from_pylist(ROWS[:3]), "rain")
    with pytest.raises(DatasetRenamedError):
        catalog.add(pa.Table.from_pylist(ROWS[:3]), "rain", dry_run=True)
    report = catalog.add(pa.Table.from_pylist([*ROWS, {"number": 200, "text": "more"}]), "weather")
    assert str(report.reference) == "weather:2.0.0"
    assert catalog.dataset("rain").version == registry.Version(2, 0, 0)
    assert catalog.verify_log().is_sound


@pytest.mark.parametrize("later", ["fresh", "rain"])
def test_a_renaming_may_take_a_new_name_while_its_folder_gets_its_place(
    catalog: registry.Catalog, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    """The name of the dataset is free when the number is chosen, and that of another one when the row is written."""
    write_row = Target.write_row

    def rename_first(*arguments: Any, **options: Any) -> Publication:
        monkeypatch.setattr(Target, "write_row", write_row)
        catalog.rename("rain", "fresh")
        catalog.rename("fresh", later)
        return write_row(*arguments, **options)

    monkeypatch.setattr(Target, "write_row", rename_first)
    rows = pa.Table.from_pylist(ROWS[:3])
    if later == "fresh":  # as if it had been renamed before the addition
        assert str(catalog.add(rows, "fresh").reference) == "fresh:2.0.0"
        folders = ["fresh", "fresh/2.0.0", "rain", "rain/1.0.0"]
    else:
        with pytest.raises(DatasetRenamedError, match="the dataset fresh was renamed: it is rain now"):
            catalog.add(rows, "fresh")
        folders = ["rain", "rain/1.0.0"]
    data = Path(catalog.data_dir)
    assert sorted(str(path.relative_to(data)) for path in [*data.glob("*"), *data.glob("*/*")]) == folders
    assert catalog.dataset(f"{later}:1.0.0").verify().faults == ()
    assert catalog.verify_log().is_sound


def test_a_copy_takes_the_events_under_the_former_name(catalog: registry.Catalog, tmp_path: Path) -> None:
    catalog.describe("rain:1.0.0", license="MIT")
    catalog.rename("rain", "weather")
    other = registry.connect(str(tmp_path / "other.db"), data_dir=str(tmp_path / "others"))
    catalog.copy("rain", other).require_all()
    imported = [event.details["event"]["action"] for event in other.log(actions=["imported"])]
    assert imported[:2] == ["publish", "describe"]
    assert other.verify_log().is_sound


def test_a_copy_makes_no_second_dataset(catalog: registry.Catalog, tmp_path: Path) -> None:
    other = registry.connect(str(tmp_path / "other.db"), data_dir=str(tmp_path / "others"))
    catalog.add(pa.Table.from_pylist(ROWS[:7]), "sunshine")
    catalog.copy(None, other).require_all()
    catalog.rename("rain", "weather")
    catalog.add(pa.Table.from_pylist(ROWS[:9]), "weather")
    report = catalog.copy(None, other)
    assert [copied.outcome.value for copied in report] == ["known", "refused", "refused"]
    error = report.failed[0].error
    assert isinstance(error, DatasetRenamedError)
    assert error.message == "the other catalog has rain, which is named weather in this catalog"
    other.rename("rain", "weather")
    assert [copied.outcome.value for copied in catalog.copy(None, other)] == ["known", "known", "copied"]
    # The other way round: a catalog that knows nothing of the renaming.
    third = registry.connect(str(tmp_path / "third.db"), data_dir=str(tmp_path / "thirds"))
    third.add(pa.Table.from_pylist(ROWS), "rain")
    third.add(pa.Table.from_pylist(ROWS[:4]), "rain")
    third.add(pa.Table.from_pylist(ROWS[:5]), "snow")
    outcomes = {str(copied.reference): copied.outcome.value for copied in third.copy(None, other)}
    assert outcomes == {"rain:1.0.0": "known", "rain:2.0.0": "refused", "snow:1.0.0": "copied"}
    assert third.copy("rain:1.0.0", other)[0].notes == ("rain is named weather in the other catalog",)


def test_removed_files_do_not_come_back_under_the_former_name(catalog: registry.Catalog, tmp_path: Path) -> None:
    shutil.copytree(Path(catalog.data_dir) / "rain" / "1.0.0", tmp_path / "kept")
    catalog.lifecycle.drop("rain:1.0.0", reason="its licence ended")
    catalog.remove("rain:1.0.0", now=True).require_all()
    catalog.rename("rain", "weather")
    with pytest.raises(VersionExistsError, match=r"is dropped: its licence ended"):
        catalog.publish(tmp_path / "kept")
    assert [path for path in Path(catalog.data_dir).rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def test_lost_files_are_restored_where_they_were_and_nowhere_else(catalog: registry.Catalog, tmp_path: Path) -> None:
    place = Path(catalog.data_dir) / "rain" / "1.0.0"
    shutil.copytree(place, tmp_path / "kept")
    catalog.rename("rain", "weather")
    catalog.dataset("weather").export_tfds(tmp_path / "out")
    again = catalog.publish(tmp_path / "kept")
    assert (str(again.version.reference), again.notes) == ("weather:1.0.0", ("rain was renamed to weather",))
    assert not catalog.publish(tmp_path / "out" / "weather" / "1.0.0").newly  # all is there: nothing is written
    assert not (Path(catalog.data_dir) / "weather").exists()
    next(place.glob("*.tfrecord-*")).unlink()
    with pytest.raises(ConflictError, match=r"weather:1\.0\.0 is published with its files in .*/rain/1\.0\.0, which"):
        catalog.publish(tmp_path / "out" / "weather" / "1.0.0")
    assert not (Path(catalog.data_dir) / "weather").exists()
    assert not catalog.publish(tmp_path / "kept").newly
    assert catalog.dataset("weather").verify().faults == ()
    assert [entry.name for entry in Path(catalog.data_dir).iterdir() if entry.is_dir()] == ["rain"]


def test_the_default_config_for_tfds_is_right_in_the_folder_of_each_name(tmp_path: Path) -> None:
    catalog = registry.connect(str(tmp_path / "catalog.db"), data_dir=str(tmp_path / "data"))
    for config in ("day", "hour"):
        catalog.add(pa.Table.from_pylist(ROWS[: len(config)]), "rain", config=config)

    def defaults() -> dict[str, str]:
        files = (tmp_path / "data").glob("*/.config/metadata.json")
        return {file.parts[-3]: json.loads(file.read_text())["default_config_name"] for file in files}

    catalog.lifecycle.set_default_config("rain/hour")
    catalog.rename("rain", "weather")
    catalog.add(pa.Table.from_pylist(ROWS[:9]), "weather", config="hour")
    assert defaults() == {"rain": "hour", "weather": "hour"}
    catalog.lifecycle.set_default_config("rain/day")  # its only version is in the folder of the former name
    assert defaults() == {"rain": "day"}
    catalog.add(pa.Table.from_pylist(ROWS[:9]), "weather", config="day")
    assert defaults() == {"rain": "day", "weather": "day"}


@pytest.mark.parametrize(
    "command",
    [
        ["show", "rain"],
        ["diff", "rain:1.0.0", "rain:1.0.0"],
        ["versions", "rain"],
        ["log", "--dataset", "rain"],
        ["describe", "rain:1.0.0", "--license", "MIT"],
        ["config", "list", "rain"],
        ["alias", "list", "rain"],
        ["alias", "set", "paper", "rain:1.0.0"],
        ["promote", "rain:1.0.0"],
        ["yank", "rain:1.0.0", "--reason", "wrong"],
        ["remove", "rain:1.0.0", "--dry-run", "--force"],
        ["du", "rain"],
        ["rename", "rain", "snow", "--dry-run"],
    ],
    ids=" ".join,
)
def test_every_command_notes_a_former_name_and_none_a_present_one(
    catalog: registry.Catalog, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    catalog.rename("rain", "weather")
    if command[0] == "remove":
        catalog.lifecycle.drop("rain:1.0.0", reason="old")
    note = "note: rain was renamed to weather\n"
    for name in ("rain", "weather"):
        words = [word.replace("rain", name) for word in command]
        assert run([*words, "--catalog", catalog.url, "--data-dir", catalog.data_dir]) == 0
        assert capsys.readouterr().err.count(note) == (name == "rain") * (2 if command[0] == "diff" else 1)
