"""``registry mirror`` and ``registry relocate``."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from registry.errors import MirrorWarning
from registry.shards import mirrored, proved

Cli = Callable[..., Any]
FILE = "digits-train.tfrecord-00000-of-00004"


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrored, "_troubles", mirrored._Troubles())
    monkeypatch.setattr(proved, "_proofs", proved._Proofs())


@pytest.fixture
def home(digits: Cli, workspace: Path) -> Path:
    return next((workspace / "datasets/digits").glob("[0-9]*"))


@pytest.fixture
def copy(home: Path, workspace: Path) -> Path:
    return Path(shutil.copytree(home, workspace / "copy"))


def test_a_mirror_is_added_listed_checked_and_removed(digits: Cli, home: Path, copy: Path) -> None:
    reference = f"digits:{home.name}"
    ran = digits("mirror", "add", "digits", str(copy), "--dry-run")
    assert (ran.code, ran.out) == (0, f"{reference} would be read from {home}, then {copy}\n")
    ran = digits("mirror", "add", "digits", str(copy))
    assert (ran.code, ran.out) == (0, f"{reference} is read from {home}, then {copy}\n")
    ran = digits("mirror", "add", "digits", str(copy))
    assert ran.out == f"{reference}: {copy} is a location of it already\n"

    data = digits("mirror", "list", "digits", "--format", "json").json()["data"]
    moments = [one.pop("added_at") for one in data["locations"]]
    events = digits("log", "--format", "json").json()["data"]
    told = {one["action"]: one for one in events}
    assert moments[0] <= told["publish"]["at"] < moments[1] == told["mirror-add"]["at"]
    by = [told[action]["actor"] for action in ("publish", "mirror-add")]
    assert data == {
        "dataset": "digits",
        "version": home.name,
        "locations": [
            {"location": f"digits/{home.name}", "url": str(home), "is_published": True, "added_by": by[0]},
            {"location": str(copy), "url": str(copy), "is_published": False, "added_by": by[1]},
        ],
    }
    listed = [line.split() for line in digits("mirror", "list", "digits").out.splitlines()]
    assert listed[0] == ["LOCATION", "RECORDED", "WHEN", "(UTC)", "BY"]
    assert [(line[0], line[1], line[-1]) for line in listed[1:]] == [
        (str(home), "published", by[0]),
        (str(copy), "later", by[1]),
    ]
    every = digits("mirror", "list", "--format", "json").json()
    assert every["schema"] == "registry.mirror.list.all/1"
    assert [(one["dataset"], len(one["locations"])) for one in every["data"]["versions"]] == [("digits", 2)]
    listed = [line.split() for line in digits("mirror", "list").out.splitlines()]
    assert [line[:2] for line in listed] == [["VERSION", "LOCATION"], [reference, str(home)], [reference, str(copy)]]

    (copy / FILE).unlink()
    ran = digits("mirror", "check", "digits")
    assert ran.code == 5
    assert ran.out.splitlines()[0].startswith(f"{home}: 4 of 4 files as published (")
    assert ran.out.splitlines()[1].startswith(f"{copy}: 3 of 4 files as published (")
    assert f"cannot read {copy / FILE}" in ran.out.splitlines()[2]
    checked = digits("mirror", "check", "digits", str(copy), "--format", "json").json()["data"]["locations"]
    assert [(one["url"], one["is_sound"], [fault["filename"] for fault in one["faults"]]) for one in checked] == [
        (str(copy), False, [FILE])
    ]

    ran = digits("mirror", "remove", "digits", str(copy))
    assert (ran.code, ran.out) == (0, f"{reference} is read from {home}\n")
    ran = digits("mirror", "remove", "digits", str(copy), "--format", "json")
    assert (ran.code, ran.error()["code"]) == (3, "not_found")
    ran = digits("mirror", "remove", "digits", f"digits/{home.name}")
    assert (ran.code, f"digits/{home.name} is the only location of {reference}" in ran.err) == (4, True)


def test_a_mirror_with_a_wrong_file_is_refused(digits: Cli, copy: Path) -> None:
    (copy / FILE).write_bytes(b"other")
    ran = digits("mirror", "add", "digits", str(copy), "--format", "json")
    assert (ran.code, ran.error()["code"]) == (5, "shard_mismatch")
    assert len(digits("mirror", "list", "digits", "--format", "json").json()["data"]["locations"]) == 1


def test_reading_notes_that_a_location_failed(digits: Cli, home: Path, copy: Path) -> None:
    digits("mirror", "add", "digits", str(copy))
    (home / FILE).unlink()
    ran = digits("read", "digits", "train", "--take", "1")
    assert ran.code == 0
    assert f"note: digits:{home.name}: the location {home} failed" in ran.err
    assert f"reading from {copy} instead" in ran.err
    assert issubclass(MirrorWarning, UserWarning)


def test_a_moved_folder_is_relocated(digits: Cli, home: Path, workspace: Path) -> None:
    moved = home.rename(workspace / "moved")
    assert digits("read", "digits", "train", "--take", "1").code == 1
    ran = digits("relocate", "digits", str(workspace / "nowhere"))
    assert ran.code == 5
    ran = digits("relocate", "digits", str(moved))
    assert ran.out == f"digits:{home.name} is read from {moved}\n{home} is no longer read\n"
    assert ran.code == 0
    (found,) = digits("mirror", "list", "digits", "--format", "json").json()["data"]["locations"]
    (event,) = digits("log", "--action", "relocate", "--format", "json").json()["data"]
    assert (found["added_at"], found["added_by"]) == (event["at"], event["actor"])
    assert digits("mirror", "list").err == "No version has mirrors.\n"
    assert digits("read", "digits", "train", "--take", "1").code == 0
    assert digits("log", "verify").code == 0
    ran = digits("log", "--action", "relocate")
    assert f"digits/{home.name} -> {moved}" in ran.out

    moved.rename(workspace / "again")
    ran = digits("relocate", "--from", str(moved), "--to", str(workspace / "again"), "--dry-run", "--format", "json")
    assert ran.json()["data"]["locations"] == [
        {
            "dataset": "digits",
            "version": home.name,
            "before": str(moved),
            "after": str(workspace / "again"),
            "error": None,
        }
    ]
    ran = digits("relocate", "--from", str(moved), "--to", str(workspace / "wrong"))
    assert (ran.code, f"digits:{home.name}: not relocated: {workspace}/wrong is not a copy of" in ran.out) == (5, True)
    ran = digits("relocate", "--from", str(moved), "--to", str(workspace / "again"))
    assert (ran.code, ran.out) == (0, f"relocated digits:{home.name} from {moved} to {workspace}/again\n")
    ran = digits("relocate", "--from", str(moved), "--to", str(workspace / "again"))
    assert (ran.code, ran.out) == (0, "")
    assert f"No location begins with {moved}." in ran.err


def test_each_location_of_a_version_is_relocated_once(digits: Cli, home: Path, copy: Path, workspace: Path) -> None:
    assert digits("mirror", "add", "digits", str(copy)).code == 0
    moved = Path(shutil.copytree(home.parent, workspace / "archive")) / home.name
    ran = digits("relocate", "--from", str(home.parent), "--to", str(workspace / "archive"))
    assert (ran.code, ran.out) == (0, f"relocated digits:{home.name} from {home} to {moved}\n")
    found = digits("mirror", "list", "digits", "--format", "json").json()["data"]["locations"]
    assert [one["location"] for one in found] == [str(moved), str(copy)]


def test_places_below_the_data_directory_are_named_as_mirror_list_prints_them(
    digits: Cli, home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "elsewhere").mkdir()
    monkeypatch.chdir(workspace / "elsewhere")  # here is no digits/1.0.0
    reference = f"digits:{home.name}"
    moved = Path(shutil.copytree(home.parent, workspace / "archive")) / home.name
    ran = digits("relocate", "--from", str(home.parent), "--to", str(workspace / "archive"))
    assert (ran.code, ran.out) == (0, f"relocated {reference} from {home} to {moved}\n")
    ran = digits("relocate", "digits", f"digits/{home.name}")
    assert (ran.code, ran.out) == (0, f"{reference} is read from {home}\n{moved} is no longer read\n")
    ran = digits("relocate", "digits", f"digits/{home.name}")
    assert ran.out == f"{reference}: {home} is its first location already\n"
    (location,) = digits("mirror", "list", "digits", "--format", "json").json()["data"]["locations"]
    assert location["location"] == f"digits/{home.name}"  # still relative to the data directory


@pytest.mark.parametrize(
    "arguments",
    [[], ["digits"], ["digits", "x", "--from", "y"], ["--from", "x"], ["digits", "--from", "x", "--to", "y"]],
)
def test_relocate_takes_one_version_or_two_prefixes(digits: Cli, arguments: list[str]) -> None:
    ran = digits("relocate", *arguments)
    assert ran.code == 2
    assert "name one version and its new place, or --from and --to" in ran.err
