"""No public call leaks an exception that is not ours, whatever path it receives, and none waits for ever."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from support.odd_paths import ODD, make_others, without_waiting

import registry
from registry.api import Catalog
from registry.errors import RegistryError, StorageError, UsageError, WrongTypeError
from registry.prepared import PreparedDataset, read_prepared
from registry.storage import Store, open_store

FOLDER: Final = Path(__file__).parents[1] / "conformance/prepared/lab_mnist/3.0.1"
ROWS: Final = [{"a": 1}]

CALLS: Final[dict[str, Callable[[Catalog, str], object]]] = {
    "Catalog.add.source": lambda catalog, path: catalog.add(path),
    "Catalog.add.source of a name": lambda catalog, path: catalog.add(path, "other"),
    "Catalog.add.source of a kind": lambda catalog, path: catalog.add(path, "other", kind="csv"),
    "Catalog.add.source in place": lambda catalog, path: catalog.add(path, "other", in_place=True),
    "Catalog.add.source of a split": lambda catalog, path: catalog.add({"train": path}, "other"),
    "Catalog.add.schema": lambda catalog, path: catalog.add(ROWS, "other", schema=path),
    "Catalog.backup.path": lambda catalog, path: catalog.backup(path),
    "Catalog.import_parquet.folder": lambda catalog, path: catalog.import_parquet(path, name="other"),
    "Catalog.import_tfds.folder": lambda catalog, path: catalog.import_tfds(path),
    "Catalog.plan_add.source": lambda catalog, path: catalog.plan_add(path),
    "Catalog.plan_add.schema": lambda catalog, path: catalog.plan_add(ROWS, "other", schema=path),
    "Catalog.preview.folder": lambda catalog, path: catalog.preview(path),
    "Catalog.preview_parquet.folder": lambda catalog, path: catalog.preview_parquet(path, name="other"),
    "Catalog.publish.folder": lambda catalog, path: catalog.publish(path),
    "Catalog.publish_prepared.place": lambda catalog, path: catalog.publish_prepared(
        *_prepared(), place=path, is_derived=True
    ),
    "Catalog.require_same_source.place": lambda catalog, path: catalog.require_same_source(_prepared()[1], path),
    "Catalog.set_data_dir.data_dir": lambda catalog, path: catalog.set_data_dir(path),
    "Catalog.verify_all.state": lambda catalog, path: catalog.verify_all(state=path),
    "Dataset.export.dest": lambda catalog, path: catalog.dataset("rows").export("csv", path),
    "Dataset.export_tfds.data_dir": lambda catalog, path: catalog.dataset("rows").export_tfds(path),
    "Dataset.to_hf.cache_dir": lambda catalog, path: catalog.dataset("rows").to_hf("train", cache_dir=path),
    "Pin.verify.folder": lambda catalog, path: catalog.dataset("rows").pin("train")["train"].verify(folder=path),
    "PinFile.add_to.path": lambda catalog, path: catalog.dataset("rows").pin("train").add_to(path, _pins(catalog)),
    "PinFile.load.path": lambda _, path: registry.PinFile.load(path),
    "PinFile.save.path": lambda catalog, path: _pins(catalog).save(path),
    "add.source": lambda catalog, path: registry.add(path, catalog=catalog.url),
    "add.schema": lambda catalog, path: registry.add(ROWS, "other", schema=path, catalog=catalog.url),
    "add.data_dir": lambda catalog, path: registry.add(ROWS, "other", data_dir=path, catalog=catalog.url),
    "builder.data_dir": lambda _, path: registry.builder("digits", data_dir=path),
    "connect.url": lambda _, path: registry.connect(path),
    "connect.url to create": lambda _, path: registry.connect(path, create=True),
    "connect.data_dir": lambda catalog, path: registry.connect(catalog.url, data_dir=path),
    "connect.key": lambda _, path: registry.connect("http://127.0.0.1:1/site/", key=path),
    "load.data_dir": lambda catalog, path: registry.load("rows", split="train", data_dir=path, catalog=catalog.url),
    "load_pin.path": lambda _, path: registry.load_pin(path),
    "load_pin.data_dir": lambda _, path: list(registry.load_pin("pins.yaml", data_dir=path)["train"].read()),
    "locked.pins": lambda _, path: registry.locked(path).__enter__(),  # type: ignore[attr-defined] # a context
    "locked.data_dir": lambda _, path: registry.locked("pins.yaml", data_dir=path).__enter__(),  # type: ignore[attr-defined] # a context
    "restore.path": lambda _, path: registry.restore(path, "new.db"),
    "restore.url": lambda _, path: registry.restore("backup.json", path),
}


def _prepared() -> tuple[Store, PreparedDataset]:
    store = open_store(FOLDER)
    return store, read_prepared(store)


def _pins(catalog: Catalog) -> registry.PinFile:
    return catalog.dataset("rows").pin("train")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    with registry.connect(folder / "catalog.db", create=True) as catalog:
        catalog.add(ROWS, "rows")
        _pins(catalog).save(folder / "pins.yaml")
        catalog.backup(folder / "backup.json")
    return folder


@pytest.fixture
def catalog(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    shutil.copytree(published, tmp_path / "here")
    make_others(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    with registry.connect("catalog.db") as opened:
        yield opened


def test_every_path_of_a_public_call_is_tried() -> None:
    """A new call, or a new argument, has to be added to ``CALLS``."""
    takers = {"add.source", "Catalog.add.source", "Catalog.plan_add.source"}  # annotated with Any
    classes = {"Catalog": Catalog, "Dataset": registry.Dataset, "Pin": registry.Pin, "PinFile": registry.PinFile}
    calls = {name: getattr(registry, name) for name in registry.__all__ if inspect.isfunction(getattr(registry, name))}
    for owner, kind in classes.items():
        calls |= {f"{owner}.{name}": one for name, one in inspect.getmembers(kind) if not name.startswith("_")}
    for name, call in calls.items():
        if callable(call):
            parameters = inspect.signature(call).parameters.items()
            takers |= {f"{name}.{one}" for one, parameter in parameters if "os.PathLike" in str(parameter.annotation)}
    assert takers == {name.partition(" ")[0] for name in CALLS}


@pytest.mark.parametrize("call", CALLS)
def test_every_path_is_used_or_refused(catalog: Catalog, call: str) -> None:
    for what, path in ODD.items():
        with without_waiting():
            try:
                CALLS[call](catalog, path)
            except RegistryError:
                continue
            except Exception as error:
                raise AssertionError(f"{call} of {what}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("add", ["add", "plan_add"])
@pytest.mark.parametrize("path", ["a\0b.csv", "\ud800.csv"])
def test_a_source_that_no_file_can_be_called_is_refused_by_its_text(catalog: Catalog, add: str, path: str) -> None:
    with pytest.raises(UsageError) as caught:
        getattr(catalog, add)(path)
    assert caught.value.message == f"source is not a valid path: {path!r}"


def test_the_home_of_an_unknown_user_is_a_file_name_as_in_a_shell(catalog: Catalog) -> None:
    folder = Path("~nobody-has-this-name")
    with pytest.raises(StorageError) as caught:
        catalog.add("~nobody-has-this-name/sales.csv")
    assert caught.value.message == "no file or folder '~nobody-has-this-name/sales.csv'"
    folder.mkdir()
    (folder / "sales.csv").write_text("a\n1\n")
    assert str(catalog.add("~nobody-has-this-name/sales.csv").reference) == "sales:1.0.0"
    assert catalog.dataset("sales").export("csv", f"{folder}/copy.csv")
    assert (folder / "copy.csv").read_text() == '"a"\n1\n'


def test_a_path_of_bytes_is_refused(catalog: Catalog) -> None:
    class Bytes(os.PathLike[Any]):
        def __fspath__(self) -> bytes:
            return b"a.csv"

    for call in (catalog.add, catalog.publish):
        with pytest.raises(WrongTypeError, match="must be a path of str, not bytes"):
            call(Bytes())


def test_folders_that_are_nested_deeply_are_used_or_refused(catalog: Catalog) -> None:
    top = tempfile.mkdtemp()  # not tmp_path, which pytest could not remove
    here = Path.cwd()
    try:
        os.chdir(top)
        for _ in range(1100):
            Path("x").mkdir()
            os.chdir("x")
        Path("a.csv").write_text("a\n1\n")
        os.chdir(here)
        for call in (lambda: catalog.add(top, "deep"), lambda: catalog.import_parquet(top, name="deep")):
            with suppress(RegistryError):  # and not RecursionError, which os.walk raises before Python 3.12
                call()
    finally:
        os.chdir(here)
        subprocess.run(["rm", "-rf", top], check=True)
