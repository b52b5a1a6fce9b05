"""Laws of backups: restoring gives the same catalog, and a file with any damage is refused."""

from __future__ import annotations

import gzip
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.catalog_backups import answers, fill, lines_of, opener, packed
from support.catalog_samples import publish

from registry.catalog import CatalogBackend, open_catalog
from registry.catalog.restore import check_backup, restore_backup
from registry.errors import BackupFormatError, RegistryError, SchemaAheadError
from registry.model import DatasetMetadata, Reference

NAMES = st.sampled_from(["mnist", "mnist/plain", "words/de", "words/en", "numbers"])
VERSIONS = st.sampled_from(["1.0.0", "1.0.1", "1.1.0", "2.0.0"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
LENGTHS = st.dictionaries(
    st.sampled_from(["train", "test"]), st.lists(st.integers(0, 2**40), min_size=1, max_size=5), min_size=1
)
ACTIONS = st.one_of(
    st.tuples(st.just("publish"), NAMES, VERSIONS, TEXTS, LENGTHS),
    st.tuples(st.sampled_from(["yank", "drop", "deprecate", "promote", "alias", "protect"]), NAMES, VERSIONS, TEXTS),
)


def act(catalog: CatalogBackend, action: str, name: str, version: str, text: str, lengths: Any = None) -> None:
    """Do one thing to a catalog; refusals do nothing."""
    wanted = Reference.parse(f"{name}:{version}")
    try:
        match action:
            case "publish":
                metadata = DatasetMetadata(description=text, custom={"note": text})
                publish(catalog, str(wanted), lengths=lengths, content=text, metadata=metadata, promote=None)
            case "alias":
                catalog.aliases.set("paper", wanted, expect=None, message=text, actor=text or "ann")
            case "protect":
                catalog.configs.set_protection(Reference.parse(name), protect=True, actor="ann")
            case "promote":
                catalog.lifecycle.promote(wanted, actor="ann")
            case _:
                getattr(catalog.lifecycle, action)(wanted, text or "because", actor="ann")
    except (RegistryError, AssertionError):  # a number that is used, a version that is withdrawn, nothing to change
        return


@contextmanager
def new_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
@given(actions=st.lists(ACTIONS, max_size=8))
def test_a_restored_catalog_is_the_same_catalog(
    request: pytest.FixtureRequest, sqlite_template: Path, kind: str, actions: list[Any]
) -> None:
    server = request.getfixturevalue("postgres_server") if kind == "postgresql" else None
    with new_folder() as folder:
        with open_catalog(shutil.copy(sqlite_template, folder / "catalog.db")) as catalog:
            for action in actions:
                act(catalog, *action)
            backup, expected = packed(catalog.backup()), answers(catalog)

        target = shutil.copy(sqlite_template, folder / "restored.db") if server is None else server.take_catalog()
        restore_backup(str(target), opener(backup), shown="backup.gz")

        with open_catalog(target) as catalog:
            assert answers(catalog) == expected
            assert lines_of(packed(catalog.backup()))[:-1] == lines_of(backup)[:-1]
        if server is not None:
            server.give_back(target)


@pytest.fixture(scope="module")
def backup(sqlite_template: Path) -> bytes:
    with new_folder() as folder, open_catalog(shutil.copy(sqlite_template, folder / "catalog.db")) as catalog:
        fill(catalog)
        return packed(catalog.backup())


@given(data=st.data())
def test_a_file_that_was_cut_off_is_refused(backup: bytes, data: st.DataObject) -> None:
    kept = data.draw(st.integers(0, len(backup) - 1))
    with pytest.raises(BackupFormatError):
        check_backup(opener(backup[:kept])(), shown="backup.gz")


@given(data=st.data())
def test_a_file_with_a_changed_byte_is_refused_or_reads_the_same(backup: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(backup) - 1))
    damaged = bytearray(backup)
    damaged[place] ^= data.draw(st.integers(1, 255))
    try:
        found = check_backup(opener(bytes(damaged))(), shown="backup.gz")
    except BackupFormatError:
        return
    assert place < 10  # the time and the system in gzip's header
    assert found == check_backup(opener(backup)(), shown="backup.gz")


@given(data=st.data())
def test_changed_lines_are_refused_even_if_they_were_compressed_again(backup: bytes, data: st.DataObject) -> None:
    text = bytearray(gzip.decompress(backup))
    place = data.draw(st.integers(0, text.rindex(b'{"end"') - 1))
    text[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises((BackupFormatError, SchemaAheadError)):
        check_backup(opener(packed([bytes(text)]))(), shown="backup.gz")
