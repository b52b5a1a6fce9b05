"""docs/troubleshooting.md quotes messages, codes and exit codes as people meet them: each is provoked here."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from support.sites import make_site, snapshot, truncated, web_server

import registry
from registry import DatasetBuilder, errors
from registry.catalog import schema
from registry.errors import MissingExtraError, RegistryError
from registry.features import FeaturesDict

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^### `([^\n]+)`\n\n(.+?)(?=^#|\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
ELSEWHERE = {"… refuses it: permission denied …"}  # its end is PostgreSQL's; provoked in test_deployment.py
OF_OTHERS = {  # messages of other software
    "stack expects each tensor to be equal size",
    "Trying to resize storage that is not resizable",
}


class Rain(DatasetBuilder):
    VERSION = "1.0.0"
    SUPPORTED_VERSIONS = ("1.0.1", "1.1.0", "2.0.0", "3.0.0")

    def features(self) -> FeaturesDict:
        return FeaturesDict({"day": "int64"})

    def splits(self) -> Mapping[str, Any]:
        return {"train": [(day, {"day": day}) for day in range(10 * self.version.major)]}


class Other(Rain):
    """Other records under the same numbers."""

    name = "rain"

    def splits(self) -> Mapping[str, Any]:
        return {"train": [(day, {"day": 7}) for day in range(10)]}


class Empty(DatasetBuilder):
    VERSION = "1.0.0"


class Failing(Rain):
    VERSION = "1.0.0"

    def splits(self) -> Mapping[str, Any]:
        return {"train": ((day, {"day": 1 // 0}) for day in range(2))}


class Misfit(Rain):
    VERSION = "1.0.0"

    def splits(self) -> Mapping[str, Any]:
        return {"train": [(1, {"day": "monday"})]}


class Twice(Rain):
    VERSION = "1.0.0"

    def splits(self) -> Mapping[str, Any]:
        return {"train": [(1, {"day": 1}), (1, {"day": 2})]}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with three versions, one of them yanked, and a pin file."""
    folder = tmp_path_factory.mktemp("world")
    with registry.connect(folder / "catalog.db") as catalog:
        for version in ("1.0.0", "1.1.0", "2.0.0"):
            catalog.build(Rain(version=version))
        catalog.lifecycle.yank("rain:1.1.0", reason="wrong gauge")
        catalog.dataset("rain:2.0.0").pin({"train": "train[:50%]"}).save(folder / "pins.yaml")
    return folder


@pytest.fixture
def world(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    folder = tmp_path / "world"
    shutil.copytree(template, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("REGISTRY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("REGISTRY_TRIES", "1")
    with registry.connect("catalog.db") as catalog:
        yield SimpleNamespace(catalog=catalog, folder=folder, setenv=monkeypatch.setenv)


def _shard(world: SimpleNamespace) -> Path:
    (path,) = (world.folder / "datasets/rain/1.0.0").glob("*.tfrecord*")
    path.chmod(0o644)
    return path


def _locked_look_up(world: SimpleNamespace) -> None:
    with registry.locked():
        world.catalog.dataset("rain:1.*")


def _read_after(change: Callable[[Path], object]) -> Callable[[SimpleNamespace], object]:
    def read(world: SimpleNamespace) -> object:
        change(_shard(world))
        return list(world.catalog.dataset("rain:1.0.0").read("train"))

    return read


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[20] ^= 255
    path.write_bytes(data)


def _read_from_s3(world: SimpleNamespace) -> None:
    for name, value in {"ENDPOINT_URL": "http://127.0.0.1:1", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
        world.setenv(f"AWS_{name}", value)
    with registry.connect("remote.db", create=True, data_dir="s3://bucket/data") as catalog:
        catalog.build(Rain(version="3.0.0"))


def _publish_protected(world: SimpleNamespace) -> None:
    world.catalog.lifecycle.protect("rain")
    world.catalog.build(Rain(version="3.0.0"), promote=True)


def _import_half(world: SimpleNamespace) -> None:
    (world.folder / "half").mkdir()
    parquet.write_table(pa.table({"a": [1]}), "half/train-00000-of-00002.parquet")
    world.catalog.import_parquet("half")


def _add(text: str, name: str = "days.csv", **options: Any) -> Callable[[SimpleNamespace], object]:
    def add(world: SimpleNamespace) -> object:
        (world.folder / name).write_text(text)
        return world.catalog.add(name, "days", **options)

    return add


def _add_too_small_a_step(world: SimpleNamespace) -> None:
    _add("day\n1\n")(world)
    _add("day\n2\n", bump="minor")(world)


def _write_while_locked(world: SimpleNamespace) -> None:
    world.setenv("REGISTRY_LOCK_TIMEOUT", "0.1")
    with (
        closing(sqlite3.connect("catalog.db", isolation_level=None)) as other,
        registry.connect("catalog.db") as catalog,
    ):
        other.execute("BEGIN IMMEDIATE")
        catalog.aliases.set("paper", "rain:1.0.0")


def _open_older(world: SimpleNamespace) -> None:
    schema.downgrade("catalog.db", "0006")
    registry.connect("catalog.db")


def _execute(*statements: str) -> None:
    with closing(sqlite3.connect("catalog.db", isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def _open_newer(world: SimpleNamespace) -> None:
    _execute("UPDATE alembic_version SET version_num = '9999'")
    registry.connect("catalog.db")


def _verify_tampered(world: SimpleNamespace) -> None:
    _execute("DROP TRIGGER event_no_update", "UPDATE event SET actor = 'eve' WHERE id = 1")
    world.catalog.verify_log().require_sound()


def _restore_over_rows(world: SimpleNamespace) -> None:
    world.catalog.backup("catalog.gz")
    registry.restore("catalog.gz", "catalog.db")


def _restore_a_part(world: SimpleNamespace) -> None:
    world.catalog.backup("catalog.gz")
    Path("part.gz").write_bytes(Path("catalog.gz").read_bytes()[:-20])
    registry.restore("part.gz", "restored.db")


def _open_text(world: SimpleNamespace) -> None:
    (world.folder / "notes.db").write_text("hello " * 1000)
    registry.connect("notes.db")


def _open_with_bad_limit(world: SimpleNamespace) -> None:
    world.setenv("REGISTRY_TRIES", "many")
    registry.connect("catalog.db")


def _load_edited_pins(world: SimpleNamespace) -> None:
    text = Path("pins.yaml").read_text()
    Path("pins.yaml").write_text(text.replace("num_examples: 10", "num_examples: 11", 1))
    registry.load_pin("pins.yaml")


def _read_lost_pins(world: SimpleNamespace) -> None:
    Path("datasets").rename("away")
    world.setenv("REGISTRY_DATA_DIR", "away/none")
    registry.load_pin("pins.yaml")["train"].read()


def _without_extra(_: SimpleNamespace) -> None:
    raise MissingExtraError(package="torch", extra="torch", needed_for="a read into torch")


def _open_site(world: SimpleNamespace, change: Callable[[bytes], dict[str, bytes]]) -> None:
    world.setenv("XDG_DATA_HOME", str(Path("home").absolute()))
    content = snapshot(Path("catalog.db"))
    with web_server() as server:
        server.files = make_site(content)
        registry.connect(server.url).datasets()
        server.files = change(content)
        registry.connect(server.url).datasets()


PROVOKED: dict[str, Callable[[SimpleNamespace], object]] = {
    "no dataset '…' in the catalog": lambda it: it.catalog.dataset("rian"),
    "no config '…' in …": lambda it: it.catalog.dataset("rain/de"),
    "no version '…' in …": lambda it: it.catalog.dataset("rain:3.*"),
    "no version '…' of … can be read: …": lambda it: it.catalog.dataset("rain:1.1.*"),
    "no alias '…' in …": lambda it: it.catalog.dataset("rain@paper"),
    "invalid version request '…'": lambda it: it.catalog.dataset("rain:latest"),
    "… does not name one version exactly, and look-ups are locked": _locked_look_up,
    "no split '…'": lambda it: it.catalog.dataset("rain").read("tran"),
    "expected a digit, '%', 'shard' or ']' here": lambda it: it.catalog.dataset("rain").resolve("train[:1O%]"),
    "… is out of range: … is outside split '…' with … records": lambda it: it.catalog.dataset("rain").read(
        "train[:99]"
    ),
    "…: expected … records, found …": _read_after(lambda path: path.write_bytes(2 * path.read_bytes())),
    "…: record … at byte …: …": _read_after(_flip),
    "cannot read …: No such file or directory": _read_after(Path.unlink),
    "cannot … …: the server cannot be reached": _read_from_s3,
    "… needs the package '…', which is not installed": _without_extra,
    "no builder '…' in the installed packages": lambda it: it.catalog.build("no_such"),
    "… does not define features() and splits() …": lambda it: it.catalog.build(Empty),
    "split '…': the generator failed: …": lambda it: it.catalog.build(Failing(version="1.0.0")),
    "split '…', example with key …: feature '…': …": lambda it: it.catalog.build(Misfit(version="1.0.0")),
    "split '…': the key … is used twice, by examples … and …": lambda it: it.catalog.build(Twice(version="1.0.0")),
    "… is published with other content: …": lambda it: it.catalog.build(Other(version="1.0.0"), rebuild=True),
    "… is too small a number: …": lambda it: it.catalog.build(Other(version="1.0.1")),
    "… cannot be made canonical by publishing it: … is protected": _publish_protected,
    "the Parquet files cannot be read as one dataset": _import_half,
    "no file or folder '…'": lambda it: it.catalog.add("dais.csv"),
    "… the kind of … is unknown": _add("1 2 3", "days.dat"),
    "… rows or files cannot be used": _add("day,rain\n1\n2\n"),
    "split '…': two records have the same key: … and …": _add("day,rain\n1,2\n1,3\n", key="day"),
    "…: there is no such column": _add("day\n1\n", key="date"),
    "the glob … of the split … matches none of …": _add("day\n1\n", splits={"train": "train/*"}),
    "… is too small a step from …: the changes exceed it": _add_too_small_a_step,
    "… cannot be reached: …": lambda _: registry.connect("postgresql://127.0.0.1:1/data"),
    "… is locked": _write_while_locked,
    "… has the schema …, this registry needs …": _open_older,
    "… has the schema …, made by a newer registry than this one (…)": _open_newer,
    "… is not a database": _open_text,
    "… is '…': expected a positive number": _open_with_bad_limit,
    "the catalog does not match its event log: …": _verify_tampered,
    "… is not empty: it has rows in the table …": _restore_over_rows,
    "…: line …: the file is truncated": _restore_a_part,
    "the event log of … was rolled back to event …: …": lambda it: _open_site(
        it, lambda content: make_site(truncated(content, 1))
    ),
    "the catalog of … has another sha256: …": lambda it: _open_site(
        it, lambda content: make_site(content, sha256="1" * 64)
    ),
    "…: this was changed since the file was written: its digest does not match its content": _load_edited_pins,
    "the files of … are not in any folder that was searched": _read_lost_pins,
    "no pin file at …": lambda _: registry.load_pin("absent.yaml"),
}


@pytest.mark.parametrize("message", PROVOKED)
def test_a_provoked_error_has_the_message_and_code_of_the_page(world: SimpleNamespace, message: str) -> None:
    (text,) = (text for heading, text in ENTRIES if heading == message)
    with pytest.raises(RegistryError) as caught:
        PROVOKED[message](world)
    error = caught.value
    pattern = ".+".join(map(re.escape, message.split("…")))
    assert re.search(pattern, error.message.splitlines()[0])
    assert text.startswith(f"`{error.code}`, exit code {error.exit_code}"), error.code


def test_every_entry_has_a_code_and_exit_code_of_the_code() -> None:
    codes = {kind.code: kind.exit_code for kind in _kinds(RegistryError)}
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "registry").rglob("*.py"))
    assert len(ENTRIES) >= 30
    assert PROVOKED.keys() <= {heading for heading, _ in ENTRIES}
    for heading, text in ENTRIES:
        if heading in OF_OTHERS:
            continue
        named = re.findall(r"`(\w+)`, exit code (\d+)", text.split(". ")[0])
        assert named, heading
        assert {code: codes.get(code) for code, _ in named} == {code: int(number) for code, number in named}
        if heading not in PROVOKED.keys() | ELSEWHERE:
            assert all(part in sources for part in (one.strip(" :") for one in heading.split("…")) if part), heading


def _kinds(kind: type[RegistryError]) -> list[type[RegistryError]]:
    return [
        kind,
        *(deeper for one in kind.__subclasses__() for deeper in _kinds(one) if one.__module__ == errors.__name__),
    ]
