"""What the command line says of values that a feature does not allow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.prepared_samples import prepare

from registry.features import ClassLabel, FeaturesDict, codec_of

Cli = Callable[..., Any]

FOUND = (
    "feature 'label' must be in 0..2, or -1 for no label: 1 of 4 records has other values in the split train; "
    "the first, record 3 (record 3 of pets-train.tfrecord-00000-of-00001), has 3"
)
VALUES = {
    "feature": "label",
    "limits": "in 0..2, or -1 for no label",
    "split": "train",
    "num_records": 1,
    "num_examples": 4,
    "first_record": 3,
    "filename": "pets-train.tfrecord-00000-of-00001",
    "record": 3,
    "value": "3",
}


@pytest.fixture
def folder(workspace: Path) -> Path:
    """pets:1.0.0 of TFDS with labels 0 to 3, of three classes."""
    codec = codec_of(FeaturesDict({"label": "int64"}))
    records = [codec.encode({"label": label}) for label in range(4)]
    features = FeaturesDict({"label": ClassLabel(num_classes=3)})
    return prepare(workspace / "tfds/pets/1.0.0", splits={"train": records}, features=features, name="pets")


def test_an_import_notes_them_and_verify_reports_them_without_calling_them_damage(cli: Cli, folder: Path) -> None:
    ran = cli("import", "tfds", str(folder))
    assert (ran.code, ran.err) == (0, f"note: pets:1.0.0: {FOUND}\n")
    ran = cli("verify", "pets", "--deep")
    assert ran.code == 0
    first, second = ran.out.splitlines()
    assert first.startswith("pets:1.0.0: 1 of 1 shards are as published (4 examples, ")
    assert second == f"  {FOUND}"
    data = cli("verify", "pets", "--deep", "--format", "json").json()["data"]
    assert (data["outside"], data["faults"]) == ([VALUES], [])
    assert cli("verify", "pets", "--format", "json").json()["data"]["outside"] == []
    ran = cli("verify", "--all", "--deep")
    assert ran.code == 0
    assert ran.out.splitlines()[1] == f"  {FOUND}"
    versions = cli("verify", "--all", "--deep", "--restart", "--format", "json").json()["data"]["versions"]
    assert [(one["outside"], one["is_sound"]) for one in versions] == [([VALUES], True)]


@pytest.mark.parametrize("command", [("import", "tfds"), ("publish",)])
def test_json_has_them_as_data_and_as_a_warning(cli: Cli, folder: Path, command: tuple[str, ...]) -> None:
    ran = cli(*command, str(folder), "--format", "json")
    assert ran.code == 0
    result = ran.json()
    assert result["warnings"] == [f"note: pets:1.0.0: {FOUND}"]
    data = result["data"] if command == ("publish",) else result["data"]["versions"][0]
    assert data["outside"] == [VALUES]


def test_add_in_place_refuses_them(cli: Cli, folder: Path) -> None:
    (folder / "dataset_info.json").unlink()
    ran = cli("add", str(folder), "--as", "pets", "--in-place", "--feature", "label=ClassLabel(a, b, c)")
    assert ran.code == 1
    assert ran.err == (
        f"error: records have values that the schema does not allow\n  {FOUND}\n"
        "hint: Correct the schema, or write the files again.\n"
    )
