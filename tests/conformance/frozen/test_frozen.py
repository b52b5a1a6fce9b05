"""Catalogs, shards and pins that an earlier release wrote are read now as that release read them."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conformance.frozen.frozen_commands import CATALOG, PINS, UPGRADED, conformance_data, outputs
from support.catalog_server import PostgresServer

import registry
from registry.catalog import schema
from registry.cli import main

FOLDER = Path(__file__).parent
EXPECTED: dict[str, Any] = json.loads(gzip.decompress((FOLDER / "expected.json.gz").read_bytes()))


def run(words: Sequence[str]) -> int:
    """Run a command, and ask for the pixels that the release printed: later releases describe files unless asked."""
    reads = words[0] == "read" or words[:2] == ["pin", "read"]
    return main.run([*words, "--pixels"] if reads else words)


def unpack(name: str, folder: Path) -> Path:
    with tarfile.open(FOLDER / name) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(folder, filter="data")
        else:  # before Python 3.11.4
            tar.extractall(folder)  # noqa: S202 - our own files
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory: shards of that release, and those of other tools that it cataloged in place."""
    folder = unpack("data.tar.xz", tmp_path_factory.mktemp("frozen") / "data")
    for place, source in conformance_data(FOLDER.parent).items():
        shutil.copytree(source, folder / place)
    return folder


@pytest.fixture(scope="module")
def catalogs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("catalogs.tar.xz", tmp_path_factory.mktemp("catalogs"))


def check(answers: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare command by command: all of it at once is too long to read."""
    for command, answer in expected.items():
        expected_now = as_later_releases_say(command, answer)
        assert (command, known_fields(answers[command], expected_now)) == (command, expected_now)
    assert answers.keys() == expected.keys()


def as_later_releases_say(command: str, answer: Any) -> Any:
    """``answer``, except for what was changed on purpose since that release."""
    if command == "list" or command.startswith("search "):  # a dataset without a version to read is hidden
        return answer | {"out": [row for row in answer["out"] if row["dataset"] != "away"]}
    if command.startswith("diff "):  # a class has its name, and not its number; a split "has" values
        classes = {f'"{number}"': f"\"'{name}'\"" for number, name in enumerate(("cat", "dog", "owl"))}
        text = json.dumps(answer).replace("holds other values", "has other values")
        return json.loads(re.sub(r'"label": {[^}]*}', lambda label: _replace(label[0], classes), text))
    if command.startswith("pin cite "):  # other sentences
        return answer | {"out": {name: value for name, value in answer["out"].items() if name != "text"}}
    return answer


def _replace(text: str, words: dict[str, str]) -> str:
    return re.sub("|".join(map(re.escape, words)), lambda word: words[word[0]], text)


def known_fields(value: Any, frozen: Any) -> Any:
    """``value`` without the fields that the release did not print: later releases add fields, and remove none."""
    if isinstance(value, dict) and isinstance(frozen, dict):
        return {name: known_fields(value[name], frozen[name]) for name in frozen if name in value}
    if isinstance(value, list) and isinstance(frozen, list) and len(value) == len(frozen):
        return [known_fields(item, before) for item, before in zip(value, frozen, strict=True)]
    return value


def check_catalog(url: str, data: Path, name: str, commands: list[str]) -> None:
    schema.upgrade(url)  # what a user does with a later release; nothing where the schema is the same
    places = {"data": str(data), "catalog": url, **EXPECTED[name]["moments"]}
    check(outputs(run, commands, places, ["--catalog", url, "--data-dir", str(data)]), EXPECTED[name]["commands"])


def test_a_frozen_sqlite_catalog_answers_as_before(catalogs: Path, data: Path) -> None:
    check_catalog(str(catalogs / "catalog.db"), data, "sqlite", CATALOG)


def test_the_schema_of_a_frozen_catalog_is_behind_until_it_is_upgraded_and_can_be_taken_back(
    catalogs: Path, tmp_path: Path
) -> None:
    url = shutil.copyfile(catalogs / "catalog.db", tmp_path / "catalog.db")  # other tests may have upgraded theirs
    assert schema.upgrade(url)[1] == schema.HEAD
    assert schema.check(url) == []
    assert schema.downgrade(url, "0008") == (schema.HEAD, "0008")
    with pytest.raises(registry.RegistryError) as caught:
        registry.connect(url)
    assert caught.value.code == "schema_behind"
    assert schema.upgrade(url) == ("0008", schema.HEAD)
    assert schema.check(url) == []


def test_a_frozen_postgresql_catalog_answers_as_before(
    catalogs: Path, data: Path, postgres_server: PostgresServer
) -> None:
    import psycopg

    url = postgres_server.create_database()
    dump = (catalogs / "postgresql.sql").read_text(encoding="utf-8")
    with psycopg.connect(url) as connection:  # lines that begin with a backslash are for psql
        connection.execute("\n".join(line for line in dump.splitlines() if not line.startswith("\\")).encode())
    check_catalog(url, data, "postgresql", CATALOG)


@pytest.mark.parametrize("revision", ["0001", "0002", "0003", "0004", "0005", "0006", "0007"])
def test_a_catalog_of_an_earlier_schema_answers_as_before_once_it_is_upgraded(
    catalogs: Path, data: Path, revision: str
) -> None:
    url = str(catalogs / f"catalog-{revision}.db")
    with pytest.raises(registry.RegistryError) as caught:
        registry.connect(url)
    assert (caught.value.code, caught.value.exit_code) == ("schema_behind", 8)
    check_catalog(url, data, revision, UPGRADED)


def test_frozen_pins_are_read_and_proved_as_before(tmp_path: Path, data: Path) -> None:
    (top,) = unpack("pins/bundle.tar.gz", tmp_path / "bundle").iterdir()
    places = {"data": str(data), "pins": str(FOLDER / "pins"), "bundle": str(top)}
    check(outputs(run, PINS, places), EXPECTED["pins"])


@pytest.mark.parametrize("path", sorted((FOLDER / "pins").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_frozen_pin_file_is_written_byte_for_byte(path: Path) -> None:
    assert registry.load_pin(path).to_yaml() == path.read_text(encoding="utf-8")


def test_the_frozen_pins_can_be_made_again_from_the_frozen_catalog(
    catalogs: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.1.0")  # a pin names the release that made it
    url = shutil.copyfile(catalogs / "catalog.db", tmp_path / "catalog.db")
    schema.upgrade(url)
    with registry.connect(url, data_dir=data) as catalog:
        made = catalog.dataset("lab/small:1.*").pin({"train": "train[:60%]"})
    assert made.to_yaml() == (FOLDER / "pins/one.lock.yaml").read_text(encoding="utf-8")
