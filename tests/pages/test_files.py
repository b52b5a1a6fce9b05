"""The page of a version's files lists them by 200, with digests, attachments and commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.prepared_samples import animals, prepare

import registry
from registry.errors import NotFoundError
from registry.pages import Page, Visit, answer, render


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Catalog]:
    folder = tmp_path_factory.mktemp("files")
    prepared = prepare(folder / "first", "1.0.0", {"train": animals(30), "test": animals(5)}, shards=10)
    with registry.connect(folder / "catalog.db", create=True) as catalog:
        catalog.publish(prepared)
        yield catalog


@pytest.fixture(autouse=True)
def _short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("registry.pages.files._PAGE", 4)
    monkeypatch.setattr("registry.pages.files._MOST_ROWS", 6)


def page_of(catalog: registry.Catalog, *rest: str, is_live: bool = True) -> tuple[Page, str]:
    visit = Visit(catalog=catalog, path=("datasets", "animals", "1.0.0", "files", *rest), is_live=is_live)
    page = answer(visit)
    assert isinstance(page, Page)
    return page, render(page, visit)[0]


@pytest.mark.parametrize("is_live", [True, False])
def test_pages_lead_to_every_file(catalog: registry.Catalog, is_live: bool) -> None:
    page, _ = page_of(catalog, is_live=is_live)
    facts = catalog.dataset("animals:1.0.0").facts
    assert [split["num_shards"] for split in page.values["splits"]] == [split.num_shards for split in facts.splits]
    names: list[str] = []
    split = page.values["splits"][0]
    while True:
        names += [file["name"] for file in split["files"]]
        if split["after"] is None:
            break
        page, html = page_of(catalog, split["name"], str(split["after"]), is_live=is_live)
        (split,) = page.values["splits"]
        assert html.count('<th scope="row">') == len(split["files"])
    assert names == list(facts.splits[0].filenames)
    assert page.values["splits"][0]["before"] == 4


def test_digests_are_those_of_the_files(catalog: registry.Catalog) -> None:
    import hashlib

    page, html = page_of(catalog)
    dataset = catalog.dataset("animals:1.0.0")
    file = page.values["splits"][0]["files"][3]
    content = Path(str(dataset.local_folder), file["name"]).read_bytes()
    assert (file["sha256"], file["num_bytes"]) == (hashlib.sha256(content).hexdigest(), len(content))
    assert file["sha256"] in html
    assert "registry verify animals:1.0.0" in html


def test_only_the_owner_sees_where_files_are(catalog: registry.Catalog) -> None:
    folder = str(catalog.dataset("animals:1.0.0").local_folder)
    assert folder in page_of(catalog)[1]
    page, html = page_of(catalog, is_live=False)
    assert folder not in html
    assert page.values["locations"] == []


@pytest.mark.parametrize(
    "rest", [("train",), ("train", "1"), ("train", "600"), ("train", "²"), ("x", "0"), ("train", "0", "0")]
)
def test_other_pages_do_not_exist(catalog: registry.Catalog, rest: tuple[str, ...]) -> None:
    with pytest.raises(NotFoundError, match="has no page"):
        page_of(catalog, *rest)
