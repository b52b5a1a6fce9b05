"""docs/pages.md has the fields of every page; they do not depend on what the page shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.prepared_samples import animals, prepare

import registry
from registry.pages import Page, Visit, answer
from registry.pages.routes import CATALOG_PAGES, VERSION_PAGES

ROOT = Path(__file__).resolve().parents[2]
TABLE = (ROOT / "docs/pages.md").read_text(encoding="utf-8").partition("<!-- schemas -->")[2]
ROWS = {
    name: (address, re.findall(r"`(\w+)`", fields))
    for name, address, fields in re.findall(r"^\| `(\w+)` \| `([^`]+)` \| (.*) \|$", TABLE, flags=re.MULTILINE)
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Catalog]:
    folder = tmp_path_factory.mktemp("schemas")
    prepare(folder / "data/animals/1.0.0", splits={"train": animals(10)})
    with registry.connect(folder / "catalog.db", data_dir=folder / "data") as catalog:
        catalog.import_tfds(folder / "data")
        catalog.dataset("animals").compute_statistics()
        yield catalog


def test_every_page_is_in_the_table() -> None:
    parts = {name.partition(":")[0].rstrip("s") for name in {**CATALOG_PAGES, **VERSION_PAGES}.values()}
    assert parts - {name.rstrip("s") for name in ROWS} <= {"media", "preview", "home", "version", "sign_in"}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("is_live", [True, False], ids=["live", "site"])
def test_a_page_has_the_fields_of_the_table(catalog: registry.Catalog, name: str, is_live: bool) -> None:
    address, fields = ROWS[name]
    address = re.sub(r"\[[^\]]*\]", "", address).replace("NAME", "animals").replace("VERSION", "1.0.0")
    path = address.replace("SPLIT", "train").replace("INDEX", "3")
    has_split = is_live and name in ("records", "splits")
    for query in [{}, {"split": "train[:5]"}, {"split": "train["}] if has_split else [{}]:
        visit = Visit(catalog=catalog, path=tuple(filter(None, path.split("/"))), query=query, is_live=is_live)
        page = answer(visit)
        assert isinstance(page, Page)
        assert (page.name, sorted(page.values)) == (name, fields)
