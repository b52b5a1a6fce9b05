from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.prepared_samples import prepare

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    root = tmp_path / "tfds"
    prepare(root / "animals/1.0.0", "1.0.0", shards=3)
    prepare(root / "animals/1.1.0", "1.1.0", shards=2)
    return root


def test_import_prints_a_line_for_each_version(cli: Cli, data_dir: Path) -> None:
    ran = cli("import", "tfds", str(data_dir))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "VERSION        OUTCOME   EXAMPLES  SHARDS  SIZE\n"
        "animals:1.0.0  imported        20       3  1.4 KiB\n"
        "animals:1.1.0  imported        20       2  1.4 KiB\n"
        "canonical: animals:1.1.0, the first\n"
    )
    assert cli("resolve", "animals:1.0.0", "train[:10%]", "--format", "json").json()["data"]["slicing"] == "tfds-4"
    assert "known" in cli("import", "tfds", str(data_dir)).out


def test_an_import_without_promotion_leaves_the_canonical_version(cli: Cli, data_dir: Path) -> None:
    higher = shutil.move(data_dir / "animals/1.1.0", data_dir.parent / "1.1.0")
    assert cli("import", "tfds", str(data_dir)).code == 0
    ran = cli("import", "tfds", str(higher), "--no-promote")
    assert ran.out.splitlines()[-1] == (
        "canonical: animals:1.0.0, as before, because 1.1.0 was published with --no-promote. "
        "To change it: registry promote animals:1.1.0"
    )
    assert cli("show", "animals", "--format", "json").json()["data"]["version"] == "1.0.0"


def test_what_is_refused_is_told_with_its_shards_and_the_exit_code(cli: Cli, data_dir: Path) -> None:
    (data_dir / "animals/1.1.0/animals-train.tfrecord-00000-of-00002").unlink()
    ran = cli("import", "tfds", str(data_dir))
    assert ran.code == 5
    assert [line.split()[:2] for line in ran.out.splitlines()[1:]] == [
        ["animals:1.0.0", "imported"],
        ["animals:1.1.0", "refused"],
        ["canonical:", "animals:1.0.0,"],
    ]
    first, shard, hint = ran.err.splitlines()
    folder = (data_dir / "animals/1.1.0").as_uri()
    assert first == f"refused animals:1.1.0: {folder}: 1 of 2 shards do not match their description"
    assert shard.startswith("  cannot read ")
    assert hint == "hint: Fetch or build these files again. Nothing was changed."


def test_a_folder_that_cannot_be_read_is_named_with_what_is_wrong(cli: Cli, data_dir: Path) -> None:
    (data_dir / "animals/1.1.0/dataset_info.json").write_text("{")
    ran = cli("import", "tfds", str(data_dir))
    assert ran.code == 1
    assert ran.err.splitlines()[0] == (
        f"refused {data_dir}/animals/1.1.0: dataset_info.json: invalid JSON: "
        "Expecting property name enclosed in double quotes in line 1, column 2"
    )


def test_show_says_that_records_are_kept_in_their_order(cli: Cli, tmp_path: Path) -> None:
    prepare(tmp_path / "tfds/animals/1.0.0", "1.0.0", disable_shuffling=True)
    prepare(tmp_path / "tfds/animals/1.1.0", "1.1.0")
    cli("import", "tfds", str(tmp_path / "tfds"))
    assert "order        as generated (TFDS's disable_shuffling)\n" in cli("show", "animals:1.0.0").out
    assert "\norder " not in cli("show", "animals:1.1.0").out


def test_programs_get_every_outcome_with_its_error(cli: Cli, data_dir: Path) -> None:
    shutil.rmtree(data_dir / "animals/1.0.0")
    (data_dir / "animals/1.1.0/features.json").unlink()
    ran = cli("import", "tfds", str(data_dir), "--format", "json")
    assert ran.code == 1
    answer = ran.json()
    assert answer["schema"] == "registry.import.tfds/1"
    (version,) = answer["data"]["versions"]
    assert version["folder"] == str(data_dir / "animals/1.1.0")
    assert (version["dataset"], version["version"], version["outcome"]) == (None, None, "refused")
    assert version["error"]["code"] == "prepared_format"
    assert version["error"]["details"]["missing"] == ["features.json"]


def test_a_dry_run_and_believed_lengths(cli: Cli, data_dir: Path) -> None:
    dry = cli("import", "tfds", str(data_dir), "--dry-run", "--format", "json").json()["data"]
    assert dry["dry_run"]
    assert [version["outcome"] for version in dry["versions"]] == ["found", "found"]
    assert cli("list").code == 3  # not even a catalog was created
    assert cli("import", "tfds", str(data_dir), "--trust-lengths", "--copy").code == 0
    assert cli("verify", "animals", "--deep").code == 0


def test_a_pin_of_an_imported_version_is_verified_where_the_named_catalog_reads_it(
    cli: Cli, data_dir: Path, tmp_path: Path
) -> None:
    cli("import", "tfds", str(data_dir))
    pin = str(tmp_path / "paper.lock.yaml")
    assert cli("pin", "create", "animals", "train[:5]", "-o", pin).code == 0
    assert cli("pin", "verify", pin).code == 1
    assert cli("pin", "verify", pin, "--catalog", os.environ["REGISTRY_CATALOG"]).code == 0
    assert cli("pin", "audit", pin).code == 0


def test_export_says_how_to_load_what_it_wrote(cli: Cli, data_dir: Path, tmp_path: Path) -> None:
    cli("import", "tfds", str(data_dir))
    ran = cli("export", "tfds", "animals:1.0.0", str(tmp_path / "out"))
    folder = tmp_path / "out/animals/1.0.0"
    assert ran.out == (
        f"exported animals:1.0.0, 1.4 KiB: {folder}\nload it with: tfds.builder_from_directory({str(folder)!r})\n"
    )
    again = cli("export", "tfds", "animals:1.0.0", str(tmp_path / "out"), "--format", "json").json()["data"]
    assert (again["newly"], again["folder"]) == (False, str(folder))
    (folder / "features.json").unlink()
    assert cli("export", "tfds", "animals:1.0.0", str(tmp_path / "out")).code == 4


def test_a_warning_of_the_library_is_a_note(cli: Cli, data_dir: Path) -> None:
    schema = data_dir / "animals/1.0.0/features.json"
    schema.write_text(schema.read_text().replace("tensorflow_datasets.core.features.text_feature.Text", "lab.Lidar"))
    note = "the class of feature 'name' (lab.Lidar) is unknown: its stored values are returned unchanged"
    ran = cli("import", "tfds", str(data_dir / "animals/1.0.0"))
    assert (ran.code, ran.err) == (0, f"note: animals:1.0.0: {note}\n")
    ran = cli("read", "animals", "train[:1]")
    assert (ran.code, ran.err) == (0, f"note: animals:1.0.0: {note}\n")
    assert ran.out == '{"age": 0, "kind": 0, "name": ["animal 0"]}\n'


def test_the_gravest_refusal_decides_the_exit_code(cli: Cli, data_dir: Path) -> None:
    (data_dir / "animals/1.0.0/features.json").unlink()
    assert cli("import", "tfds", str(data_dir)).code == 1
    (data_dir / "animals/1.1.0/animals-train.tfrecord-00000-of-00002").unlink()
    prepare(data_dir / "pets/1.0.0", "1.0.0", name="pets")
    assert cli("import", "tfds", str(data_dir)).code == 5


def test_a_pin_of_a_version_in_a_place_of_its_own_says_where_to_verify_it(
    cli: Cli, data_dir: Path, tmp_path: Path
) -> None:
    cli("import", "tfds", str(data_dir / "animals/1.0.0"))
    pin = str(tmp_path / "paper.lock.yaml")
    folder = data_dir / "animals/1.0.0"
    made = cli("pin", "create", "animals", "train", "-o", pin)
    assert made.err == (
        f"note: the files are in {folder}, which the pin does not name; to verify it, add --data-dir {folder}\n"
    )
    assert cli("pin", "verify", pin, "--data-dir", str(folder)).code == 0
    assert cli("pin", "verify", pin, "--data-dir", str(data_dir)).code == 0
