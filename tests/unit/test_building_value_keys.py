"""Which values the key of shards and runs depends on."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from registry.building import value_keys
from registry.building.value_keys import key_of_values


@pytest.mark.parametrize("package", ["numpy", "pillow", "python", "zlib"])
def test_what_encodes_records_is_part_of_the_key(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of_values(["values"])
    if package == "python":
        monkeypatch.setattr(value_keys.platform, "python_version", lambda: "3.99.0")
    elif package == "zlib":
        monkeypatch.setattr(zlib, "ZLIB_RUNTIME_VERSION", "9.9")
    else:
        version = metadata.version
        monkeypatch.setattr(metadata, "version", lambda name: "99.0" if name == package else version(name))
    assert key_of_values(["values"]) not in (None, before)


def test_equal_values_have_one_key_although_they_share_no_objects() -> None:
    shared = "".join(["a", "b"])
    assert key_of_values([shared, shared]) == key_of_values(["".join(["a", "b"]), "".join(["a", "b"])])


@pytest.mark.parametrize("named", [lambda path: path, lambda path: [path, 3], lambda path: {"file": path}])
def test_the_name_of_a_file_is_part_of_the_key(named: Callable[[Path], Any]) -> None:
    keys = [key_of_values(named(Path(name))) for name in ("inputs/part.csv", "inputs/part.csv", "inputs/other.csv")]
    assert keys[0] == keys[1] != keys[2]
    assert key_of_values(Path("inputs/part.csv")) != key_of_values("inputs/part.csv")


def test_values_that_cannot_be_pickled_have_no_key() -> None:
    assert key_of_values([lambda: 1]) is None
