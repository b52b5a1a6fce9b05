"""``registry add hf://org/name``: a repository of the Hugging Face Hub, from a server that answers as the hub does."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
from support.golden import check_errors
from support.hub_server import Hub, serve

from registry.api import Catalog
from registry.cli.main import run
from registry.errors import RegistryWarning, SourceError, StorageError
from registry.intake.hub import repository_of
from registry.intake.listing import name_of_path, place_of

GOLDEN = Path(__file__).with_name("golden")


CARD = b"""---
license: mit
configs:
- config_name: default
  data_files:
  - {split: train, path: data/train.csv}
  - {split: test, path: data/test.csv}
---
Flowers.
"""
FILES = {
    ".gitattributes": b"*.csv lfs\n",
    "README.md": CARD,
    "load.py": b"raise SystemExit('nothing of a repository is run')\n",
    "data/train.csv": b"id,name\n" + b"".join(b"%d,rose\n" % number for number in range(40)),
    "data/test.csv": b"id,name\n100,iris\n",
}
TOKEN = "hf_" + "x" * 30


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    made = Hub({"ann/flowers": [FILES], "squad": [{"data.csv": b"n\n1\n"}]})
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serve(made) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        yield made


def test_a_repository_is_added_with_its_commit_and_digests(hub: Hub, catalog: Catalog) -> None:
    report = catalog.add("hf://ann/flowers")
    assert (str(report.reference), dict(report.splits)) == ("flowers:1.0.0", {"train": 40, "test": 1})
    dataset = catalog.dataset("flowers")
    assert dataset.metadata.license == "MIT"
    origins = {one.url: one for one in report.plan.source.origins}
    url = f"hf://datasets/ann/flowers@{hub.sha_of(0)}/data/train.csv"
    assert origins[url].num_bytes == len(FILES["data/train.csv"])
    assert dataset.metadata.extra["downloadChecksums"][url]["checksum"] == origins[url].sha256  # type: ignore[index]


def test_a_new_revision_is_a_new_version_and_the_same_one_is_none(hub: Hub, catalog: Catalog) -> None:
    catalog.add("hf://ann/flowers")
    assert catalog.add("hf://datasets/ann/flowers@main").outcome == "unchanged"
    hub.commits["ann/flowers"].append(FILES | {"data/test.csv": b"id,name\n100,iris\n101,lily\n"})
    report = catalog.add("hf://ann/flowers")
    assert (str(report.reference), dict(report.splits)) == ("flowers:2.0.0", {"train": 40, "test": 2})
    first = catalog.add("hf://ann/flowers@v1", "first")
    assert dict(first.splits) == {"train": 40, "test": 1}
    assert catalog.add(f"hf://ann/flowers@{hub.sha_of(0)}", "first").outcome == "unchanged"


def test_what_is_in_the_cache_needs_no_connection(hub: Hub, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.add("hf://ann/flowers")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    with pytest.warns(RegistryWarning, match="the hub does not answer, so hf://ann/flowers was read from the cache"):
        assert catalog.add("hf://ann/flowers").outcome == "unchanged"
    with pytest.raises(StorageError, match=r"hf://squad cannot be downloaded, and is not in the cache: ") as caught:
        catalog.add("hf://squad")
    assert caught.value.hint.startswith("Check the connection and the disk. HF_HUB_OFFLINE=1 allows no request")
    assert hub.requests == []


def test_only_the_files_of_a_config_are_downloaded(hub: Hub, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    card = b"""---
configs:
- {config_name: de, data_files: "de/[ab]*.csv"}
- {config_name: en, data_files: {train: "en/**", test: test.csv}}
---
"""
    data = {f"{name}.csv": b"n\n1\n" for name in ("de/a[1]", "de/c", "en/x/y", "test")}
    hub.commits["ann/texts"] = [{"README.md": card, **data}]
    assert dict(catalog.add("hf://ann/texts", config="de").splits) == {"train": 1}
    assert [one for one in hub.requests if one.startswith("GET") and one.endswith("csv")] == [
        f"GET /datasets/ann/texts/resolve/{hub.sha_of(0)}/de/a[1].csv"
    ]
    assert dict(catalog.add("hf://ann/texts", rename_configs={"en": "english"}).splits) == {"train": 1, "test": 1}
    with pytest.raises(SourceError, match="the dataset card has no config 'fr'"):
        catalog.add("hf://ann/texts", config="fr")
    hub.commits["ann/texts"].append({"README.md": card, **data, "de/b.csv": b"n\n2\n"})
    assert dict(catalog.add("hf://ann/texts", config="de").splits) == {"train": 2}


def test_a_branch_that_moves_while_a_config_is_downloaded_is_an_error(hub: Hub, catalog: Catalog) -> None:
    card = b"---\nconfigs:\n- {config_name: de, data_files: de.csv}\n- {config_name: en, data_files: en.csv}\n---\n"
    first = {"README.md": card, "de.csv": b"n\n1\n", "en.csv": b"n\n2\n"}
    hub.commits["ann/moving"] = [first]

    def move(url: str) -> None:
        if url.endswith("/README.md") and len(hub.commits["ann/moving"]) == 1:
            hub.commits["ann/moving"].append(first | {"de.csv": b"n\n3\n"})

    hub.on_request = move
    with pytest.raises(StorageError, match="hf://ann/moving changed during the download"):
        catalog.add("hf://ann/moving", config="de")
    assert dict(catalog.add("hf://ann/moving", config="de").splits) == {"train": 1}


def test_a_cache_that_others_filled_in_part_is_not_taken_for_all_in_silence(
    hub: Hub, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.commits["ann/parts"] = [{"a.csv": b"n\n1\n", "b.csv": b"n\n2\n"}]
    huggingface_hub.hf_hub_download("ann/parts", "a.csv", repo_type="dataset", endpoint=os.environ["HF_ENDPOINT"])
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.warns(RegistryWarning, match="files that were never downloaded are missing"):
        assert dict(catalog.add("hf://ann/parts").splits) == {"train": 1}


def test_a_damaged_file_of_the_cache_is_named(hub: Hub, catalog: Catalog, tmp_path: Path) -> None:
    catalog.add("hf://ann/flowers")
    (blob,) = [path.resolve() for path in (tmp_path / "cache").rglob("train.csv")]
    blob.write_bytes(blob.read_bytes().replace(b"rose", b"r0se"))
    with pytest.raises(SourceError, match=r"data/train\.csv is damaged in the cache: expected the sha256 ") as caught:
        catalog.add("hf://ann/flowers")
    assert caught.value.hint == f"Remove it, and add the repository again: rm {blob}"


def test_a_link_that_leads_out_of_the_cache_is_refused(hub: Hub, catalog: Catalog, tmp_path: Path) -> None:
    catalog.add("hf://squad")
    (snapshot,) = (tmp_path / "cache" / "datasets--squad" / "snapshots").iterdir()
    (tmp_path / "secret.csv").write_text("n\n9\n")
    (snapshot / "other.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(SourceError, match=r"other\.csv leads out of the cache, to ") as caught:
        catalog.add("hf://squad")
    assert caught.value.hint == f"Remove it: rm {snapshot / 'other.csv'}"


@pytest.mark.parametrize("is_other_disk", [False, True])
def test_the_cache_stays_as_it_is(
    hub: Hub, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_other_disk: bool
) -> None:
    link = os.link

    def refuse(source: Any, target: Any) -> None:
        if (tmp_path / "cache") in Path(source).parents:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        link(source, target)

    if is_other_disk:
        monkeypatch.setattr("os.link", refuse)
    catalog.add("hf://ann/flowers")
    found = {path.name: path.read_bytes() for path in (tmp_path / "cache").rglob("*.csv")}
    assert found == {"train.csv": FILES["data/train.csv"], "test.csv": FILES["data/test.csv"]}


def test_faults_say_what_to_do(hub: Hub, catalog: Catalog) -> None:
    hub.commits["ann/gated"] = [FILES]
    hub.refused["ann/gated"] = "GatedRepo"
    paths = ["ann/trees", "ann/flowers@v9", "ann/gated", "ann/flowers/train", "../etc", ""]
    check_errors(GOLDEN / "add_from_the_hub.txt", (partial(catalog.add, f"hf://{path}", "x") for path in paths))


def test_a_token_is_used_and_shown_nowhere(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.token = TOKEN
    options = ["--catalog", str(tmp_path / "catalog.db"), "--data-dir", str(tmp_path / "data")]
    assert run(["add", "hf://ann/flowers", *options]) != 0
    assert "If it is private: Log in with `hf auth login`, or set HF_TOKEN." in capfd.readouterr().err
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert run(["add", "hf://ann/flowers", *options]) == 0
    shown = capfd.readouterr()
    assert "published flowers:1.0.0" in shown.out
    assert TOKEN not in shown.out + shown.err
    assert not any(
        TOKEN.encode() in path.read_bytes()
        for folder in (tmp_path / "data", tmp_path)
        for path in folder.glob("**/*")
        if path.is_file()
    )


def test_the_name_and_the_place_of_a_repository_have_no_revision() -> None:
    assert repository_of("hf://datasets/org/Flowers@refs/pr/1") == ("org/Flowers", "refs/pr/1")
    assert (name_of_path("hf://org/Flowers@v1.0"), place_of("hf://org/Flowers@v1.0")) == ("flowers", "hf://org/Flowers")
