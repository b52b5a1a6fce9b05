"""``registry mirror`` and ``registry relocate``."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
    assert ran.out == f"{reference}: {copy} is already a location of it\n"

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
