"""The page of a version says what it is and how to use it; nothing that people wrote about it leaves its place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.page_elements import XSS, Elements

import registry
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import NotFoundError, RegistryWarning
from registry.features import ClassLabel, FeaturesDict, Image, Scalar, Text
from registry.images import decode_picture, read_picture
from registry.pages import Media, Page, Visit, answer, json_of, render
from registry.pages.dataset import older

CARD = f"""# Title

Some *words*, [a link](https://example.org/), [bad](javascript:alert(1)), ![picture](https://example.org/x.png)

<b onclick=alert(1)>bold</b> {XSS}

| a | b |
|---|---|
| 1 | 2 |
"""


class Hostile(registry.DatasetBuilder):
    VERSION = "1.1.0"
    RELEASE_NOTES = {"1.1.0": XSS}

    def features(self) -> FeaturesDict:
        return FeaturesDict(
            {
                XSS.replace("/", "-"): Text(),
                "label": ClassLabel(names=[XSS, "b"]),
                "nested": {"price": Scalar("float32"), "deep": {"x": Scalar("int64")}},
            }
        )

    def splits(self) -> Any:
        row = {XSS.replace("/", "-"): XSS, "label": 0, "nested": {"price": 1.5, "deep": {"x": 1}}}
        return {"train": [(i, row) for i in range(3)]}


class Few(registry.DatasetBuilder):
    """Has fewer records than a strip of pictures, and masks before its pictures."""

    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict({"a_mask": Image(shape=(8, 8, 1)), "image": Image(shape=(5, 10, 3))})

    def splits(self) -> Any:
        mask = np.zeros((8, 8, 1), np.uint8)
        return {"train": [(i, {"a_mask": mask, "image": np.full((5, 10, 3), 40 + i, np.uint8)}) for i in range(3)]}


def test_a_strip_shows_every_picture_of_a_small_dataset(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.build(Few)
        page, html = page_of(catalog, "datasets", "few", "1.0.0")
        assert 'src="preview.png"' in html
        media = answer(Visit(catalog=catalog, path=page.values["preview"]))
        with pytest.raises(NotFoundError, match=r"has no page 'preview\.png/more'"):
            page_of(catalog, *page.values["preview"], "more")
    assert isinstance(media, Media)
    assert (media.content_type, media.is_final) == ("image/png", True)
    strip = decode_picture(read_picture(media.content), channels=None, wide=False)
    assert strip.shape == (56, 3 * 60, 4)
    for place in range(3):
        tile = strip[:, 60 * place : 60 * (place + 1)]
        assert (tile[14:42, :56] == [40 + place] * 3 + [255]).all()
        assert not tile[:14].any()
        assert not tile[42:].any()
        assert not tile[:, 56:].any()


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Catalog]:
    with registry.connect(tmp_path_factory.mktemp("pages") / "my catalog.db", create=True) as catalog:
        catalog.build(Hostile)
        with pytest.warns(RegistryWarning, match="the licence"):
            catalog.describe(
                "hostile:1.1.0", description=CARD, citation=f"@misc{{x, title={{{XSS}}}}}", tags=[XSS], license=XSS
            )
        yield catalog


def page_of(catalog: registry.Catalog, *path: str, is_live: bool = True) -> tuple[Page, str]:
    visit = Visit(catalog=catalog, path=path, is_live=is_live)
    page = answer(visit)
    assert isinstance(page, Page)
    return page, render(page, visit)[0]


def test_the_changes_of_old_versions_are_compared_once_they_have_fingerprints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry.connect(tmp_path / "c.db", create=True) as catalog:
        for numbers in ([1, 2], [1, 2, 3]):
            catalog.add({"x": np.array(numbers)}, "old", show=0)
        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, "fingerprints", lambda *_: {})
            page, _ = page_of(catalog, "datasets", "old")
            assert "was not compared" in page.values["versions"][0]["changes"]
        for _ in range(2):  # the second one is remembered
            page, _ = page_of(catalog, "datasets", "old")
            assert page.values["versions"][0]["changes"] == "MAJOR: train has 3 records, had 2"


@pytest.mark.parametrize("is_live", [True, False], ids=["live", "site"])
def test_nothing_hostile_leaves_its_place(catalog: registry.Catalog, is_live: bool) -> None:
    for path in [(), ("datasets", "hostile"), ("datasets", "hostile", "1.1.0")]:
        _, text = page_of(catalog, *path, is_live=is_live)
        elements = Elements(text)
        for tag, attributes in elements.found:
            assert tag not in ("iframe", "object", "embed", "base", "style")
            assert not [name for name in attributes if name.startswith("on") or name == "style"]
            if tag == "script":
                assert attributes.get("src", "").endswith("static/enhance.js") or attributes == {
                    "type": "application/ld+json"
                }
            if tag == "img":
                assert (attributes["src"] or "").endswith("preview.png")
            if tag == "a" and "href" in attributes:
                assert not (attributes["href"] or "").lower().lstrip().startswith(("javascript:", "data:"))
        assert "alert(1)" in text or not path  # it is shown, as text


def test_the_card_is_markdown(catalog: registry.Catalog) -> None:
    _, text = page_of(catalog, "datasets", "hostile", "1.1.0")
    assert "<em>words</em>" in text
    assert 'href="https://example.org/"' in text
    assert "<td>1</td>" in text
    assert "&lt;b onclick=alert(1)&gt;bold" in text
    assert "example.org/x.png" in text
    assert [it["src"] for tag, it in Elements(text).found if tag == "img"] == ["preview.png"]


def test_a_page_is_json_too(catalog: registry.Catalog) -> None:
    page, _ = page_of(catalog, "datasets", "hostile", "1.1.0")
    document = json.loads(json_of(page))
    assert document["schema"] == "registry.page.dataset/1"
    assert document["data"]["reference"] == "hostile:1.1.0"
    assert document["data"]["splits"][0].items() >= {"name": "train", "num_examples": 3, "num_shards": 1}.items()
    depths = {row["path"]: row["depth"] for row in document["data"]["features"]}
    assert depths.items() >= {"nested": 0, "nested/deep": 1, "nested/deep/x": 2, "nested/price": 1}.items()
    assert document["data"]["code"]["Python"].count('"hostile:1.1.0"') == 1


def test_states_and_aliases_are_shown(tmp_path: Path) -> None:
    class Steps(registry.DatasetBuilder):
        VERSION = "1.0.0"
        RELEASE_NOTES = {"1.0.0": "Begins"}

        def features(self) -> FeaturesDict:
            return FeaturesDict({"x": Scalar("int64")})

        def splits(self) -> Any:
            return {"train": [(i, {"x": i}) for i in range(int(str(self.VERSION)[0]))]}

    class Next(Steps):
        name = "steps"
        VERSION = "2.0.0"

    with registry.connect(tmp_path / "c.db", create=True) as catalog:
        catalog.build(Steps)
        catalog.build(Next)
        catalog.aliases.set("paper", "steps:1.0.0")
        catalog.lifecycle.yank("steps:1.0.0", reason="wrong labels")
        page, text = page_of(catalog, "datasets", "steps", "1.0.0")
        assert page.values["aliases"] == ["paper"]
        assert "wrong labels" in text
        assert 'class="banner yanked"' in text
        assert [(str(row["version"]), row["step"], str(row["before"])) for row in page.values["versions"]] == [
            ("2.0.0", "major", "1.0.0"),
            ("1.0.0", "first", "None"),
        ]
        assert [row["changes"] for row in page.values["versions"]] == ["MAJOR: train has 2 records, had 1", ""]
        assert '<p class="muted">MAJOR: train has 2 records, had 1</p>' in text
        row = page.values["versions"][1]
        assert (row["note"], row["reason"]) == ("Begins", "wrong labels")
        assert "<p>yanked: wrong labels</p>" in text
        assert '<p class="muted">Begins</p>' in text
        visit = Visit(catalog=catalog, path=("datasets", "steps", "1.0.0"), is_live=False)
        text = render(older(visit, visit.path), visit)[0]
        assert '<p class="banner yanked" role="note">yanked: wrong labels</p>' in text
        assert "This is the first version. Begins</p>" in text
        catalog.lifecycle.drop("steps:1.0.0", reason="gone")
        page, text = page_of(catalog, "datasets", "steps")
        assert str(page.values["version"]) == "2.0.0"
        assert 'href="1.0.0/"' not in text  # a dropped version has no page


def test_code_opens_the_catalog_that_is_shown(
    catalog: registry.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = catalog.backend.file
    assert file is not None
    page, _ = page_of(catalog, "datasets", "hostile", "1.1.0")
    assert f"connect({json.dumps(str(file.absolute()))})" in page.values["code"]["Python"]
    (tmp_path / "code.sh").write_text(page.values["code"]["SQL"])
    done = subprocess.run(["sh", "code.sh"], cwd=tmp_path, capture_output=True, text=True, env=commands(), check=True)
    assert done.stdout.split() == ["count_star()", "3"]
    monkeypatch.setenv("REGISTRY_CATALOG", str(file))
    page, _ = page_of(catalog, "datasets", "hostile", "1.1.0")
    assert "registry.connect().dataset" in page.values["code"]["Python"]
    assert "--catalog" not in page.values["code"]["Shell"]


def commands() -> dict[str, str]:
    """The environment, with the commands of this installation on its PATH."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def test_a_version_says_where_it_comes_from_without_paths_for_others(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n")
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.build(Few)
        catalog.add(tmp_path / "rows.csv", name="table")
        with registry.connect(tmp_path / "other.db", create=True) as other:
            catalog.copy("few", other)

            def origins(name: str, at: registry.Catalog, *, is_live: bool) -> Any:
                page = answer(Visit(catalog=at, path=("datasets", name, "1.0.0"), is_live=is_live))
                assert isinstance(page, Page)
                html, _ = render(page, Visit(catalog=at, path=("datasets", name, "1.0.0"), is_live=is_live))
                assert page.values["origin"] in html
                return page.values["origin"]

            assert origins("few", catalog, is_live=True) == "a builder"
            assert origins("table", catalog, is_live=True) == f"{tmp_path}/rows.csv (csv)"
            assert origins("table", catalog, is_live=False) == "added data (csv)"
            assert origins("few", other, is_live=True) == "a copy from another catalog"
