"""A pin file and the shards, and nothing else: no catalog that can be opened, no socket, no home to write to."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import FOLDER, warm_python
from support.pinned_samples import unpack
from support.prepared_samples import animals, prepare

import registry
from registry.api import Catalog
from registry.errors import LockedError
from registry.pins.citation import Citation

SCRIPT = FOLDER / "pin_alone.py"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """animals 1.0.0: 200 records of train in 4 shards, 30 of test in 4."""
    folder = tmp_path_factory.mktemp("published")
    with registry.connect(folder / "catalog.db") as opened:
        prepare(folder / "datasets/animals/1.0.0", splits={"train": animals(200), "test": animals(30)}, shards=4)
        opened.publish(folder / "datasets/animals/1.0.0")
        yield opened


@pytest.fixture
def paper(catalog: Catalog, tmp_path: Path) -> Iterator[Path]:
    """A folder with dataset.lock.yaml, the read-only data directory ``shards``, and an invalid catalog.db."""
    pins = catalog.dataset("animals:1.*").pin({"train": "train[:80%]", "validation": "train[80%:]", "test": "test"})
    folder = tmp_path / "paper"
    folder.mkdir()
    pins.save(folder / "dataset.lock.yaml")
    catalog.dataset("animals:1.0.0").pin({"train": "train[:50%]"}).save(folder / "old.lock.yaml")
    shutil.copytree(catalog.data_dir, folder / "shards")
    (folder / "catalog.db").write_text("This is no database.\n")
    made = [folder / "shards", *(folder / "shards").rglob("*")]
    for path in made:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder
    for path in made:
        path.chmod(0o755 if path.is_dir() else 0o644)


def alone(
    paper: Path, *commands: Sequence[str], home: str = "/dev/null/home", **variables: str
) -> list[tuple[int, str, str]]:
    """Run commands in that isolated folder and return their exit codes and output."""
    environment = {"PATH": os.environ["PATH"], "HOME": home, "REGISTRY_CATALOG": str(paper / "catalog.db"), **variables}
    before = list_files(paper / "shards")
    done = warm_python.run(
        [sys.executable, str(SCRIPT), str(paper / "shards")],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=False,
        cwd=paper,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list_files(paper / "shards") == before
    return [(code, out, err) for code, out, err in json.loads(done.stdout)]


def list_files(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


def data_of(answers: list[tuple[int, str, str]]) -> list[Any]:
    """The JSON data printed by commands that succeeded."""
    assert [(code, err) for code, _, err in answers] == [(0, "")] * len(answers)
    return [json.loads(out)["data"] for _, out, _ in answers]


JSON = ("--format", "json")
LOCK = "dataset.lock.yaml"


@pytest.mark.parametrize("home", ["/dev/null/home", "missing"])
def test_every_verb_works(paper: Path, catalog: Catalog, tmp_path: Path, home: str) -> None:
    reference = registry.load_pin(paper / LOCK, data_dir=catalog.data_dir)
    cited = str(Citation.of(reference["validation"].entry))
    verified, deep, shown, explained, difference, found, restored, bundled, cites, *read = data_of(
        alone(
            paper,
            ["pin", "verify", LOCK, "--data-dir", "shards", *JSON],
            ["pin", "verify", LOCK, "--data-dir", "shards", "--deep", *JSON],
            ["pin", "show", LOCK, *JSON],
            ["pin", "explain", LOCK, *JSON],
            ["pin", "diff", "old.lock.yaml", LOCK, *JSON],
            ["pin", "from-citation", cited, "--in", LOCK, *JSON],
            ["pin", "restore", LOCK, "train", "--data-dir", "shards", "--to", "copy", *JSON],
            ["pin", "bundle", LOCK, "--data-dir", "shards", "-o", "bundle.tar", *JSON],
            ["pin", "cite", LOCK, "--bibtex", *JSON],
            *(["pin", "read", LOCK, name, "--data-dir", "shards", *JSON] for name in ("train", "validation", "test")),
            home=home if home.startswith("/") else str(tmp_path / home),
        )
    )
    assert [(pin["is_sound"], pin["proved_by"], pin["deep"]) for pin in verified["pins"]] == [
        (True, "files", False)
    ] * 3
    assert [(pin["is_sound"], pin["proved_by"], pin["deep"]) for pin in deep["pins"]] == [(True, "files", True)] * 3
    assert shown == json.loads(reference.to_json())
    assert list(explained) == ["train", "validation", "test"]
    assert [(one["name"], one["kind"]) for one in difference] == [
        ("train", "changed"),
        ("validation", "added"),
        ("test", "added"),
    ]
    assert found["pins"][0]["name"] == "validation"
    assert [Path(file["path"]).name for file in restored["files"]] == list(
        dict.fromkeys(file.filename for file in reference["train"].plan)
    )
    assert "@misc{animals-1.0.0-" in cites["text"]
    for answer, pin in zip(read, reference.values(), strict=True):
        assert [(one["name"], one["age"]) for one in answer["examples"]] == [
            (one["name"].decode() if isinstance(one["name"], bytes) else one["name"], int(one["age"]))
            for one in pin.read()
        ]
    unpack(paper / "bundle.tar", tmp_path / "unpacked")
    assert bundled["digest"] == reference.digest
    check = [sys.executable, "-I", "-S", str(tmp_path / "unpacked/bundle/verify.py")]
    assert subprocess.run(check, capture_output=True, check=False).returncode == 0


def test_files_are_found_by_folder_next_to_the_pin_and_by_variable(paper: Path) -> None:
    shutil.copytree(paper / "shards", paper / "data")
    verify = ["pin", "verify", LOCK, *JSON]
    folder = "shards/animals/1.0.0"
    (beside,) = data_of(alone(paper, verify))
    (named, by_folder) = data_of(alone(paper, [*verify, "--data-dir", "shards"], [*verify, "--data", folder]))
    shutil.rmtree(paper / "data")
    (by_variable,) = data_of(alone(paper, verify, REGISTRY_DATA_DIR=str(paper / "shards")))
    assert beside["pins"][0]["folder"] == f"file://{paper}/data/animals/1.0.0"
    for answer in (named, by_folder, by_variable):
        assert [(pin["folder"], pin["is_sound"]) for pin in answer["pins"]] == [(f"file://{paper}/{folder}", True)] * 3


PYTHON = """
import registry
from registry.errors import LockedError

pins = registry.load_pin("dataset.lock.yaml", data_dir="shards")
ages = [int(example["age"]) for example in pins["validation"].read()]
assert all(pin.verify(deep=True, processes=1).is_sound for pin in pins.values())
with registry.locked("dataset.lock.yaml", data_dir="shards"):
    again = [int(one["age"]) for one in registry.load("animals", split="train[80%:]")]
    within = [int(one["age"]) for one in registry.load("animals:1.*", split="train[-5:]")]
    every = registry.load("animals:1.0.0")
    refused = []
    for reference, split in (("animals:2.*", "train"), ("mnist", "train"), ("animals", "all"), ("animals", "nope")):
        try:
            registry.load(reference, split=split)
        except LockedError as error:
            refused.append(error.message)
print(__import__("json").dumps([ages, again, within, {name: len(reader) for name, reader in every.items()}, refused]))
"""


def test_the_python_interface_works(paper: Path) -> None:
    ((code, out, err),) = alone(paper, ["python", PYTHON])
    assert (code, err) == (0, "")
    ages, again, within, every, refused = json.loads(out)
    assert ages == again
    assert sorted(ages) == list(range(160, 200))
    assert sorted(within) == list(range(195, 200))
    assert every == {"train": 160, "validation": 40, "test": 30}
    assert refused == [
        "animals:2.*.* is not pinned, and look-ups are locked to a pin file",
        "mnist is not pinned, and look-ups are locked to a pin file",
        "animals:1.0.0 all is not pinned: its records depend on splits or shards that are not pinned",
        "animals:1.0.0 nope is not pinned: no split 'nope'",
    ]


def test_a_locked_program_reads_on_the_command_line(paper: Path) -> None:
    commands = (
        ["read", "animals:1.*", "train[80%:]", "--ids"],
        ["resolve", "animals", "train[:10]", *JSON],
        ["read", "animals:2.*", "train"],
    )
    variables = {"REGISTRY_LOCKED": LOCK, "REGISTRY_DATA_DIR": str(paper / "shards")}
    read, resolved, refused = alone(paper, *commands, **variables)
    assert (read[0], read[1].count("\n"), read[2]) == (0, 40, "")
    assert json.loads(resolved[1])["data"]["num_examples"] == 10
    assert (refused[0], refused[2].splitlines()[0]) == (
        6,
        "error: animals:2.*.* is not pinned, and look-ups are locked to a pin file",
    )


def test_the_watch_sees_a_catalog_and_a_socket(paper: Path) -> None:
    for line in ("import registry; registry.connect()", "import socket; socket.socket()"):
        done = warm_python.run(
            [sys.executable, str(SCRIPT), str(paper / "shards")],
            input=json.dumps([["python", line]]),
            capture_output=True,
            text=True,
            check=False,
            cwd=paper,
            env={"PATH": os.environ["PATH"], "HOME": "/dev/null/home", "REGISTRY_CATALOG": str(paper / "catalog.db")},
        )
        assert (done.returncode, done.stderr[:9]) == (99, "refused: ")


def test_the_dataset_of_a_pin_file_is_verified_pinned_and_exported_without_a_catalog(
    paper: Path, tmp_path: Path
) -> None:
    with registry.locked(paper / "dataset.lock.yaml", data_dir=paper / "shards"):
        whole = registry.connect(tmp_path / "nothing.db").dataset("animals:1.*")
    report = whole.verify(deep=True)
    assert (report.num_shards, report.num_examples, report.faults) == (8, 230, ())
    again = whole.pin("train[10:20]", read_config=registry.ReadConfig(shuffle="global", seed=3))
    (entry,) = [pin.entry for pin in again.values()]
    recorded = registry.load_pin(paper / "dataset.lock.yaml")["train"].entry
    assert (entry.num_examples, entry.why, entry.provenance) == (10, recorded.why, recorded.provenance)
    assert again["train"].verify().is_sound
    assert [one["age"] for one in again["train"].read()] == [
        one["age"] for one in whole.read("train[10:20]", registry.ReadConfig(shuffle="global", seed=3))
    ]
    assert whole.pin("train[:80%]")["train"].entry.order == recorded.order
    exported = whole.export_tfds(tmp_path / "exported")
    assert (exported.newly, len(list((tmp_path / "exported/animals/1.0.0").glob("*.tfrecord*")))) == (True, 8)
    assert [one["name"] for one in whole.croissant()["recordSet"]][-1:] != []
    assert not (tmp_path / "nothing.db").exists()


def test_a_pin_of_some_shards_verifies_those_and_exports_nothing(paper: Path, tmp_path: Path) -> None:
    with registry.locked(paper / "old.lock.yaml", data_dir=paper / "shards"):
        half = registry.connect(tmp_path / "nothing.db").dataset("animals")
    assert half.verify().num_shards == 2  # the folder is found here
    with pytest.raises(LockedError) as caught:
        half.export_tfds(tmp_path / "exported")
    assert caught.value.message == (
        "animals:1.0.0 was found in a pin file that does not name every shard of the version"
    )
    with pytest.raises(LockedError):
        half.croissant()
    target = paper / "shards/animals/1.0.0/animals-train.tfrecord-00000-of-00004"
    target.parent.chmod(0o755), target.chmod(0o644)
    target.write_bytes(target.read_bytes()[:-1])
    (fault,) = half.verify().faults
    assert (fault.filename, fault.code) == (target.name, "corrupt_record")
