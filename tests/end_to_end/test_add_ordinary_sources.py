"""Files as other programs write them: each is added as its maker meant it, or refused with a way that works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import registry
from registry.errors import RegistryError


@pytest.fixture
def catalog(tmp_path: Path) -> registry.Catalog:
    return registry.connect(f"sqlite:///{tmp_path}/catalog.db", data_dir=tmp_path / "data")


def refuse(catalog: registry.Catalog, source: Any, **options: Any) -> tuple[str, str | None]:
    with pytest.raises(RegistryError) as caught:
        catalog.add(source, "x", **options)
    return caught.value.message, caught.value.hint


def read(catalog: registry.Catalog, column: str) -> list[Any]:
    values = [row[column] for row in catalog.dataset("x").read("train")]
    return sorted(value.decode() if isinstance(value, bytes) else value for value in values)


def test_a_csv_that_escapes_quotes_with_backslashes_is_read_with_pandas(
    catalog: registry.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow's parser would make it ``he said \\hi\\", ok"``."""
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text('id,text\n1,"he said \\"hi\\", ok"\n2,plain\n')
    message, hint = refuse(catalog, "a.csv")
    assert message == "1 row or file cannot be used\n  a.csv:2: text follows the closing quote of a field"
    assert hint == (
        "Correct them, or leave them out: skip_bad=1. If quotes are text: quotes=False. If a backslash escapes quotes: "
        "registry.add(pandas.read_csv('a.csv', escapechar='\\\\'), 'NAME')"
    )
    catalog.add(pandas.read_csv("a.csv", escapechar="\\"), "x")
    assert read(catalog, "text") == ['he said "hi", ok', "plain"]


def test_quotes_that_are_text_stay_so_in_the_next_version(catalog: registry.Catalog, tmp_path: Path) -> None:
    source = tmp_path / "spoken.tsv"
    source.write_text('id\ttext\n1\t"Well" he said\n2\t"open\n')
    assert catalog.add(source, "x", quotes=False).outcome == "published"
    assert read(catalog, "text") == ['"Well" he said', '"open']
    source.write_text(source.read_text() + '3\tsaid "he"\n')
    assert catalog.add(source, "x").outcome == "published"
    assert read(catalog, "text") == ['"Well" he said', '"open', 'said "he"']


def test_a_first_quote_that_is_never_closed_may_be_text(catalog: registry.Catalog, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"a\n"b\n')
    assert refuse(catalog, tmp_path / "a.csv")[1] == "Add the missing quote. If quotes are text: quotes=False"
    catalog.add(tmp_path / "a.csv", "x", quotes=False)
    assert read(catalog, '"a') == ['"b']
