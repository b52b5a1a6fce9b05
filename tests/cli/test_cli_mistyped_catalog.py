"""A mistyped catalog: the message says what was looked for and where the value came from, and nothing is created."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import registry
from registry.errors import CatalogNotFoundError, NotACatalogError, StorageError, UsageError
from registry.features import FeaturesDict

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (1, ("add", "nope.csv")),
        (1, ("add", "rows.jsonl", "--feature", "a=ClassLabel(num_classes=1)")),
        (2, ("add", "rows.jsonl", "--as", "a/b/c")),
        (1, ("add", "nope", "--in-place", "--as", "rows")),
        (3, ("build", "nope")),
        (1, ("build", "test_cli_mistyped_catalog:FailingBuilder")),
        (1, ("import", "tfds", "nope")),
        (1, ("import", "parquet", "nope")),
        (1, ("import", "parquet", ".", "--copy")),
        (1, ("import", "earth-engine", "nope")),
        (1, ("publish", "nope")),
        (2, ("experiment", "add", "bad/name", "--description", "A flag.")),
        (2, ("config", "data-dir", "s3://key:secret@bucket")),
        (2, ("config", "protect", "a//b")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_command_that_fails_creates_no_catalog(
    cli: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch, code: int, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(workspace)
    Path("rows.jsonl").write_text('{"a": 1}\n')
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    ran = cli(*arguments)
    assert (ran.code, ran.err.splitlines()[0].partition(":")[0]) == (code, "error")
    assert not (workspace / "catalog.db").exists()


class FailingBuilder(registry.DatasetBuilder):
    """Fails after its first record."""

    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict({"a": "int64"})

    def splits(self) -> dict[str, Any]:
        return {"train": self.examples()}

    def examples(self) -> Iterator[tuple[int, dict[str, int]]]:
        yield 0, {"a": 1}
        raise ValueError("the source is damaged")


def test_the_default_catalog(cli: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGISTRY_CATALOG")
    monkeypatch.setenv("XDG_DATA_HOME", str(workspace))
    path = workspace / "shardbook/catalog.db"
    ran = cli("list")
    assert (ran.code, ran.err) == (
        3,
        f"error: no catalog at {path}: the folder {path.parent} does not exist\n"
        "hint: This is the default catalog. Start with: registry quickstart (or: registry add SOURCE). "
        "Or name another catalog with --catalog or REGISTRY_CATALOG.\n"
        f"To create a catalog there: registry db upgrade --catalog sqlite:///{path}\n",
    )
    with pytest.raises(CatalogNotFoundError, match="no catalog at"):
        registry.load("digits", split="train")
    assert list(workspace.iterdir()) == []


def test_a_reader_in_python_asks_for_an_existing_catalog(tmp_path: Path) -> None:
    with pytest.raises(CatalogNotFoundError) as caught:
        registry.connect(tmp_path / "catalog.db", create=False)
    assert caught.value.details == {"path": str(tmp_path / "catalog.db")}
    assert isinstance(caught.value, LookupError)
    assert list(tmp_path.iterdir()) == []
    registry.connect(tmp_path / "catalog.db", create=True).close()
    with registry.connect(tmp_path / "catalog.db", create=False) as catalog:
        assert catalog.datasets() == ()
    with pytest.raises(UsageError):
        registry.connect("", create=False)


def add_dry(catalog: registry.Catalog) -> object:
    return catalog.add([{"a": 1}], "rows", dry_run=True)


READS: dict[str, Callable[[registry.Catalog], object]] = {
    "aliases.list": lambda catalog: catalog.aliases.list(),
    "collect_garbage": lambda catalog: catalog.collect_garbage(),
    "copy": lambda catalog: catalog.copy(None, catalog),
    "dataset": lambda catalog: catalog.dataset("digits"),
    "datasets": lambda catalog: catalog.datasets(),
    "diff": lambda catalog: catalog.diff("digits:1.0.0", "digits:2.0.0"),
    "experiments.list": lambda catalog: catalog.experiments.list(),
    "experiments.retire": lambda catalog: catalog.experiments.retire("flag"),
    "lifecycle.unprotect": lambda catalog: catalog.lifecycle.unprotect(),
    "lifecycle.yank": lambda catalog: catalog.lifecycle.yank("digits:1.0.0", reason="x"),
    "log": lambda catalog: list(catalog.log()),
    "mirrors.list": lambda catalog: catalog.mirrors.list("digits:1.0.0"),
    "published_digest": lambda catalog: catalog.published_digest("digits:1.0.0"),
    "reservations.list": lambda catalog: catalog.reservations.list(),
    "search": lambda catalog: catalog.search("digits"),
    "standing": lambda catalog: catalog.standing("digits"),
    "tokens.list": lambda catalog: catalog.tokens.list(),
    "usage": lambda catalog: catalog.usage(),
    "verify_all": lambda catalog: catalog.verify_all(),
    "verify_log": lambda catalog: catalog.verify_log(),
    "versions": lambda catalog: catalog.versions("digits"),
}


@pytest.mark.parametrize("url", ["path", "sqlite"])
@pytest.mark.parametrize("name", READS)
def test_a_read_of_a_mistyped_path_in_python_creates_nothing(tmp_path: Path, name: str, url: str) -> None:
    (tmp_path / "catalog.db").write_bytes(b"")
    path = tmp_path / "catlog.db"
    with registry.connect(path if url == "path" else f"sqlite:///{path}") as catalog:
        if name == "copy":
            with registry.connect(tmp_path / "other.db") as other, pytest.raises(CatalogNotFoundError):
                catalog.copy(None, other)
        with pytest.raises((CatalogNotFoundError, UsageError) if name == "copy" else CatalogNotFoundError) as caught:
            READS[name](catalog)
    if name != "copy":
        assert caught.value.message == f"no catalog at {path}: no such file"
        hint = f"Did you mean {tmp_path}/catalog.db? To create a catalog there: registry db upgrade --catalog "
        assert caught.value.hint == f"{hint}sqlite:///{path}"
    assert [(one.name, one.stat().st_size) for one in tmp_path.iterdir()] == [("catalog.db", 0)]


DRY_RUNS: dict[str, Callable[[registry.Catalog], object]] = {
    "add": add_dry,
    "experiments.add": lambda catalog: catalog.experiments.add("flag", "A flag.", dry_run=True),
    "lifecycle.protect": lambda catalog: catalog.lifecycle.protect(dry_run=True),
    "plan_add": lambda catalog: catalog.plan_add([{"a": 1}], "rows"),
    "preview_build": lambda catalog: catalog.preview_build("digits"),
}


@pytest.mark.parametrize("name", DRY_RUNS)
def test_a_dry_run_in_python_finds_an_empty_catalog_and_creates_nothing(tmp_path: Path, name: str) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        assert DRY_RUNS[name](catalog)
        with pytest.raises(CatalogNotFoundError):
            catalog.datasets()
    assert not (tmp_path / "catalog.db").exists()


PUBLICATIONS: dict[str, Callable[[registry.Catalog], object]] = {
    "add": lambda catalog: catalog.add([{"a": 1}], "rows"),
    "experiments.add": lambda catalog: catalog.experiments.add("flag", "A flag."),
    "lifecycle.protect": lambda catalog: catalog.lifecycle.protect(),
    "plan_add": lambda catalog: catalog.plan_add([{"a": 1}], "rows").publish(),
    "build": lambda catalog: catalog.build("digits"),
}


@pytest.mark.parametrize("content", [None, b""], ids=["no file", "an empty file"])
@pytest.mark.parametrize("name", PUBLICATIONS)
def test_a_publication_in_python_creates_the_catalog(tmp_path: Path, name: str, content: bytes | None) -> None:
    path = tmp_path / "new folder/catalog.db"
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    with registry.connect(path) as catalog:
        assert PUBLICATIONS[name](catalog)
        actions = [event.action for event in catalog.log()]
    assert actions[actions[0] == "data-dir" :] != []
    with registry.connect(path, create=False) as again:
        assert [event.action for event in again.log()] == actions


FAILURES: dict[str, Callable[[registry.Catalog], object]] = {
    "add": lambda catalog: catalog.add("nonexist.csv"),
    "add of bad rows": lambda catalog: catalog.add([{"a": 1}, {"a": "x"}], "rows", features={"a": "int64"}),
    "add of a bad name": lambda catalog: catalog.add([{"a": 1}], "rows/a/b"),
    "build": lambda catalog: catalog.build("nope"),
    "publish": lambda catalog: catalog.publish("nope"),
    "import_tfds": lambda catalog: catalog.import_tfds("nope"),
    "import_parquet": lambda catalog: catalog.import_parquet("nope"),
    "set_data_dir": lambda catalog: catalog.set_data_dir("s3://key:secret@bucket"),
    "experiments.add": lambda catalog: catalog.experiments.add("bad/name", "A flag."),
    "experiments.add of an empty text": lambda catalog: catalog.experiments.add("flag", ""),
    "lifecycle.protect": lambda catalog: catalog.lifecycle.protect("a//b"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_publication_in_python_that_fails_creates_no_catalog(tmp_path: Path, name: str) -> None:
    with registry.connect(tmp_path / "typo.db") as catalog:
        with pytest.raises(registry.RegistryError):
            FAILURES[name](catalog)
        with pytest.raises(CatalogNotFoundError):
            catalog.datasets()
    assert not (tmp_path / "typo.db").exists()


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    reads: list[int] = []

    def rows() -> Iterator[dict[str, int]]:
        reads.append(1)
        yield {"a": 1}

    with registry.connect(tmp_path / "sub/catalog.db") as catalog:
        (tmp_path / "sub").touch()
        with pytest.raises(StorageError) as caught:
            catalog.add(rows, "rows")
    assert caught.value.message == f"cannot create the folder {tmp_path}/sub: File exists"
    assert not reads


def test_a_catalog_that_is_created_during_a_publication_is_respected(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"

    def rows() -> Iterator[dict[str, int]]:
        with registry.connect(path) as other:
            if not Path(path).exists():
                other.add([{"a": 1}], "rows")
        yield {"a": 2}

    with registry.connect(path) as catalog:
        assert str(catalog.add(rows, "rows").reference) == "rows:2.0.0"
        assert [str(one.version) for one in catalog.versions("rows")] == ["2.0.0", "1.0.0"]


def test_a_catalog_that_another_process_creates_is_read_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    with registry.connect(path) as catalog, registry.connect(path) as other:
        with pytest.raises(CatalogNotFoundError):
            catalog.datasets()
        other.add([{"a": 1}], "rows")
        assert [one.name for one in catalog.datasets()] == ["rows"]
        assert str(catalog.lifecycle.promote("rows:1.0.0").reference) == "rows:1.0.0"


def test_the_hint_says_which_variable_names_a_missing_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_CATALOG", str(tmp_path / "catalog.db"))
    with registry.connect() as catalog, pytest.raises(CatalogNotFoundError) as caught:
        catalog.dataset("digits")
    assert caught.value.hint.endswith("\nThe environment variable REGISTRY_CATALOG names this catalog.")


@pytest.mark.parametrize("name", ["a folder", "no database"])
def test_a_path_that_cannot_be_a_catalog_is_refused_at_once(tmp_path: Path, name: str) -> None:
    path = tmp_path / "catalog.db"
    path.mkdir() if name == "a folder" else path.write_bytes(b"text" * 100)
    with pytest.raises(NotACatalogError):
        registry.connect(path)
