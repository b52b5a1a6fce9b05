"""A reference in a data directory: found by the rule of look-ups, or refused with a list of existing versions."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from support.golden import check_errors

from registry.errors import (
    StorageError,
    VersionNotFoundError,
)
from registry.model import Reference
from registry.prepared import default_config, find_prepared, iter_prepared
from registry.storage import Store, open_store

GOLDEN = Path(__file__).with_name("golden")


def prepare(data_dir: Path, *folders: str, without: str = "") -> None:
    for folder in folders:
        (data_dir / folder).mkdir(parents=True)
        for name in ("dataset_info.json", "features.json"):
            if name != without:
                (data_dir / folder / name).write_text("{}")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    prepare(tmp_path, "mnist/1.0.0", "mnist/2.0.0", "mnist/10.0.0", "mnist/incomplete.0a1b2c3d_11.0.0", "mnist/junk")
    prepare(tmp_path, "mnist/12.0.0", without="features.json")
    prepare(tmp_path, "mnist/13.0.0", without="dataset_info.json")
    prepare(tmp_path, "wiki/de/1.0.0", "wiki/en/1.0.0", "wiki/en/2.0.0")
    (tmp_path / "mnist" / "14.0.0").write_text("a file, not a folder")
    (tmp_path / "empty").mkdir()
    return open_store(tmp_path)


@pytest.mark.parametrize(
    ("reference", "folder"),
    [
        ("mnist", "mnist/10.0.0"),
        ("mnist:*", "mnist/10.0.0"),
        ("mnist:>2", "mnist/10.0.0"),
        ("mnist:1.*", "mnist/1.0.0"),
        ("mnist:2.0.0", "mnist/2.0.0"),
        ("wiki/en", "wiki/en/2.0.0"),
        ("wiki/config=de,version=1.*.*", "wiki/de/1.0.0"),
    ],
)
def test_the_highest_prepared_version_that_is_allowed_is_found(store: Store, reference: str, folder: str) -> None:
    assert find_prepared(store, Reference.parse(reference)) == folder


@pytest.mark.parametrize(
    ("reference", "folder"),
    [
        ("gained", "gained/en/2.0.0"),
        ("gained:*", "gained/en/2.0.0"),
        ("gained:0.1.0", "gained/0.1.0"),
        ("gained:1.0.0", "gained/1.0.0"),  # although gained/en/1.0.0 exists, as in TFDS
        ("gained:2.0.0", "gained/en/2.0.0"),
        ("gained:0.*", None),
        ("gained/en:1.0.0", "gained/en/1.0.0"),
        ("gained/en:0.1.0", None),
    ],
)
def test_an_exact_version_from_before_a_dataset_had_configs_is_found(
    tmp_path: Path, reference: str, folder: str | None
) -> None:
    prepare(tmp_path, "gained/0.1.0", "gained/1.0.0", "gained/en/1.0.0", "gained/en/2.0.0", "gained/.config")
    (tmp_path / "gained/.config/metadata.json").write_text('{"default_config_name": "en"}')
    if folder is None:
        with pytest.raises(VersionNotFoundError):
            find_prepared(open_store(tmp_path), Reference.parse(reference))
    else:
        assert find_prepared(open_store(tmp_path), Reference.parse(reference)) == folder


def test_all_prepared_versions_are_listed_the_highest_first(store: Store) -> None:
    assert [str(version) for version in iter_prepared(store, "mnist")] == ["10.0.0", "2.0.0", "1.0.0"]
    assert list(iter_prepared(store, "nowhere")) == []


def test_the_default_config_is_the_one_that_tfds_wrote_down(store: Store, tmp_path: Path) -> None:
    assert default_config(store, "wiki") is None
    (tmp_path / "wiki" / ".config").mkdir()
    (tmp_path / "wiki" / ".config" / "metadata.json").write_text(json.dumps({"default_config_name": "de", "other": 1}))
    assert default_config(store, "wiki") == "de"
    assert find_prepared(store, Reference.parse("wiki")) == "wiki/de/1.0.0"
    assert find_prepared(store, Reference.parse("wiki/en")) == "wiki/en/2.0.0"


def test_a_missing_dataset_is_reported_with_the_existing_ones(store: Store) -> None:
    check_errors(
        GOLDEN / "prepared_data_dir" / "a_missing_dataset_is_reported_with_the_existing_ones.txt",
        (
            partial(lambda reference: find_prepared(store, Reference.parse(reference)), reference)
            for reference in ["mnist:3", "mnist:12.0.0", "wiki", "wiki/em", "mnits", "empty", "mnist@paper"]
        ),
        folder=store.url,
    )


def test_a_malformed_default_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "wiki" / ".config").mkdir()

    def find(content: bytes) -> None:
        (tmp_path / "wiki" / ".config" / "metadata.json").write_bytes(content)
        find_prepared(store, Reference.parse("wiki"))

    contents = [b"{", b"[]", b"\xff", b'{"default_config_name": 3}', b'{"default_config_name": "../x"}']
    check_errors(GOLDEN / "prepared_data_dir" / "defaults.txt", (partial(find, content) for content in contents))


def test_a_default_of_megabytes_is_not_read(store: Store, tmp_path: Path) -> None:
    (tmp_path / "wiki" / ".config").mkdir()
    (tmp_path / "wiki" / ".config" / "metadata.json").write_bytes(b" " * (2**20 + 1))
    with pytest.raises(StorageError):
        find_prepared(store, Reference.parse("wiki"))
