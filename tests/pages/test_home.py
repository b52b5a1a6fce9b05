"""The home page: filters in the address select what brute force selects, and a change is seen at once."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.attached_folds import attach_nothing
from support.catalog_samples import sample
from support.golden import check_errors
from support.prepared_samples import animals, prepare

import registry
from registry.api import Catalog
from registry.errors import NotFoundError, StorageUnavailableError, UsageError
from registry.features import Audio, ClassLabel, Feature, FeaturesDict, Image, Scalar, Text
from registry.features.schema import features_to_json
from registry.images import decode_picture, read_picture
from registry.model import DatasetMetadata
from registry.pages import Media, Page, Visit, answer, home, json_of, render
from registry.statistics import distribution

GOLDEN = Path(__file__).with_name("golden")


XSS = "<script>alert('\"1\"')</script>"
KINDS: dict[str, dict[str, Feature]] = {
    "image": {"image": Image(shape=(8, 8, 1)), "label": ClassLabel(num_classes=3)},
    "audio": {"sound": Audio(), "words": Text()},
    "text": {"words": Text()},
    "table": {"image": Scalar("int64"), "Audio": Scalar("float32")},
}
LICENSES = ("", "mit", XSS)
SIZES = {"below 1 MB": 5000, "1 MB to 1 GB": 10**6, "1 GB or more": 10**9}


def publish(
    catalog: Catalog, reference: str, kind: str = "table", license_: str = "", size: int = 5000, **more: Any
) -> None:
    version, shards = sample(reference, {"train": [3]}, content=reference)
    splits = tuple(dataclasses.replace(split, num_bytes=size) for split in version.splits)
    features = features_to_json(FeaturesDict(KINDS[kind]))
    metadata = DatasetMetadata(description=f"{XSS} of {reference}", license=license_, **more)
    changed = dataclasses.replace(version, splits=splits, features_json=features, metadata=metadata)
    catalog.backend.publish(changed, shards, promote=True, actor="test")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    folder = tmp_path_factory.mktemp("home")
    with registry.connect(folder / "catalog.db", data_dir=folder / "data", create=True) as opened:
        for place, kind in enumerate(KINDS):
            for license_ in LICENSES:
                for number, size in enumerate(SIZES.values()):
                    tags = ("even" if number % 2 == 0 else XSS,)
                    name = f"{kind}_{LICENSES.index(license_)}_{number}"
                    publish(opened, f"{name}:1.{place}.0", kind, license_, size, config_tags=tags)
        yield opened


def page_of(catalog: Catalog, *path: str, is_live: bool = True, **query: str) -> tuple[Page, str]:
    visit = Visit(catalog=catalog, path=path, query=query, is_live=is_live)
    page = answer(visit)
    assert isinstance(page, Page)
    json.loads(json_of(page))
    return page, render(page, visit)[0]


def names_of(catalog: Catalog, **query: str) -> list[str]:
    """The names on all pages that follow each other."""
    names: list[str] = []
    after: dict[str, str] = {}
    while True:
        values = page_of(catalog, **query, **after)[0].values
        assert len(values["datasets"]) <= 24
        names += [card["dataset"] for card in values["datasets"]]
        assert values["first"] + len(values["datasets"]) == len(names)
        if values["after"] is None:
            assert len(names) == values["num_datasets"]
            return names
        after = {"after": values["after"]}


@pytest.mark.parametrize("kind", ["", *KINDS])
def test_filters_select_what_brute_force_selects(catalog: Catalog, kind: str) -> None:
    every = sorted(f"{kind}_{place}_{number}" for kind in KINDS for place in range(3) for number in range(3))
    for license_, size, tag in itertools.product(LICENSES, ["", *SIZES], ["", "even", XSS]):
        chosen = [
            name
            for name in every
            if (not kind or kind in (name.split("_")[0], "text" if name.startswith("audio") else ""))
            and (not license_ or LICENSES[int(name.split("_")[1])] == license_)
            and (not size or list(SIZES)[int(name[-1])] == size)
            and (not tag or (int(name[-1]) % 2 == 0) == (tag == "even"))
        ]
        assert names_of(catalog, kind=kind, license=license_, size=size, tag=tag) == chosen


def test_the_form_offers_the_values_that_datasets_have(catalog: Catalog) -> None:
    page, html = page_of(catalog, kind="image", license=XSS, sort="size")
    assert page.values["choices"]["license"] == [XSS, "mit"]
    assert page.values["choices"]["tag"] == [XSS, "even"]
    assert [card["num_bytes"] for card in page.values["datasets"]] == [10**9, 10**6, 5000]
    assert "<script>alert" not in html
    assert '<option value="image" selected>' in html
    nothing, words = page_of(catalog, tag="video")
    assert (nothing.values["num_datasets"], "No dataset meets these conditions." in words) == (0, True)


def test_what_an_address_cannot_ask_for_is_an_error(catalog: Catalog) -> None:
    queries = [{"sort": "nme"}, {"kind": "video"}, {"size": "1 MB"}, {"state": "good"}, {"page": "2"}]
    queries.append({"after": "nobody"})
    check_errors(GOLDEN / "home.txt", (partial(page_of, catalog, **query) for query in queries))
    for query in queries:
        page_of(catalog, is_live=False, **query)  # in a site, nobody reads it


def test_a_search_is_ranked_and_filtered(catalog: Catalog) -> None:
    hits = [hit.dataset for hit in catalog.search("audio_1", limit=100)]
    assert names_of(catalog, q="audio_1", size="below 1 MB") == [name for name in hits if name.endswith("_0")]
    with pytest.raises(UsageError, match="no word to search for"):
        page_of(catalog, q="!!")


@pytest.mark.parametrize("is_live", [True, False])
def test_all_datasets_are_listed_without_a_query(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, is_live: bool
) -> None:
    monkeypatch.setattr(home, "_LISTED", 15)
    first = page_of(catalog, is_live=False)[0].values
    assert (len(first["datasets"]), first["next_page"]) == (15, ("list", "from-15"))
    page, html = page_of(catalog, "list", "from-30", is_live=is_live)
    assert (len(page.values["datasets"]), page.values["next_page"]) == (6, None)
    assert ("<form" in html) is is_live
    for path in (("list",), ("list", "from-x"), ("list", "from-36"), ("list", "from-15", "more")):
        with pytest.raises(NotFoundError, match="there is no page"):
            page_of(catalog, *path, is_live=is_live)


def test_a_change_is_seen_at_once(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data", create=True) as catalog:
        assert page_of(catalog)[0].values["num_datasets"] == 0
        publish(catalog, "first:1.0.0")
        publish(catalog, "second:1.0.0")
        assert names_of(catalog) == ["first", "second"]
        catalog.lifecycle.deprecate("first:1.0.0", reason="old")
        assert names_of(catalog, state="deprecated") == ["first"]
        assert names_of(catalog, state="supported") == ["second"]
        catalog.lifecycle.yank("second:1.0.0", reason="wrong")
        assert names_of(catalog) == ["first"]
        assert names_of(catalog, state="yanked") == ["second"]


def test_a_list_that_follows_events_is_what_a_new_one_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data", create=True) as catalog:
        for name in ("a", "a_b", "b/x", "b/y", "c"):
            publish(catalog, f"{name}:1.0.0")
        visit, listings, every = Visit(catalog=catalog), list[str | None](), Catalog.datasets

        def count(self: Catalog, **conditions: Any) -> Any:
            listings.append(conditions.get("like"))
            return every(self, **conditions)

        monkeypatch.setattr(Catalog, "datasets", count)
        changes: list[tuple[Callable[[], Any], set[str | None]]] = [
            (lambda: None, {None}),
            (lambda: None, set()),
            (lambda: publish(catalog, "a:1.1.0", license_="mit", config_tags=("new",)), {"a*"}),
            (lambda: publish(catalog, "b/z:1.0.0"), {"b*"}),
            (lambda: publish(catalog, "aa:1.0.0"), {"aa*"}),
            (lambda: catalog.lifecycle.set_default_config("b/y"), {"b*"}),
            (lambda: catalog.lifecycle.yank("c:1.0.0", reason="wrong"), {"c*"}),
            (lambda: catalog.describe("a_b:1.0.0", tags=["x"]), {"a_b*"}),
            (lambda: catalog.rename("a", "z"), {"a*", "z*"}),
            (lambda: [publish(catalog, f"d:1.0.{number}") for number in range(50)], {"d*"}),
            (lambda: [publish(catalog, f"d:1.1.{number}") for number in range(51)], {None}),
            (lambda: catalog.lifecycle.protect(None), {None}),
        ]
        for change, conditions in changes:
            change()
            listings.clear()
            shelf = home.shelf_of(visit)
            assert set(listings) == conditions
            new = home._make_shelf(catalog, None, None)
            assert (tuple(shelf.datasets), shelf.tags, shelf.licenses) == (new.datasets, new.tags, new.licenses)


def preview_of(catalog: Catalog) -> Media:
    """The picture at the address that the only card has."""
    page, html = page_of(catalog)
    (card,) = page.values["datasets"]
    assert f'src="{"/".join(card["preview"])}"' in html
    media = answer(Visit(catalog=catalog, path=card["preview"]))
    assert isinstance(media, Media)
    assert media.content_type == "image/png"
    return media


def assert_shows(media: Media, counts: Sequence[int]) -> None:
    """Require that a preview has bars of these counts."""
    bars = decode_picture(read_picture(media.content), channels=None, wide=False)
    heights = (bars[..., 3] > 0).sum(0)
    assert heights[:: bars.shape[1] // len(counts)].tolist() == [
        max(bool(count), 56 * count // max(counts)) for count in counts
    ]


@pytest.mark.parametrize(("features", "column"), [({}, "n"), ({"kind": "ClassLabel"}, "kind")])
def test_a_preview_shows_classes_or_numbers_rather_than_keys(
    tmp_path: Path, features: dict[str, str], column: str
) -> None:
    rows = [{"id": n, "kind": "abc"[n % 3 * n % 3] * (n + 1), "n": n % 4 // 3} for n in range(9)]
    rows = [{**row, "kind": str(row["kind"])[0]} for row in rows] if features else rows
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.add(rows, "rows", features=features)
        assert_shows(preview_of(catalog), distribution(catalog.dataset("rows").statistics["train"][column]))


def test_a_preview_appears_when_statistics_are_attached(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data", create=True) as catalog:
        with pytest.MonkeyPatch.context() as patch:
            attach_nothing(patch)
            catalog.publish(prepare(tmp_path / "animals", splits={"train": animals(12)}))
        for _ in range(2):
            media = preview_of(catalog)
            assert not media.is_final
            assert decode_picture(read_picture(media.content), channels=None, wide=False).shape == (1, 1, 4)
        catalog.dataset("animals").compute_statistics()
        media = preview_of(catalog)
        assert media.is_final
        assert_shows(media, distribution(catalog.dataset("animals").statistics["train"]["age"]))
        catalog.lifecycle.drop("animals:1.0.0", reason="gone")
        assert page_of(catalog)[0].values["datasets"] == []


def test_a_list_of_cards_reads_no_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data", create=True) as catalog:
        catalog.publish(prepare(tmp_path / "animals", splits={"train": animals(14)}))
        catalog.describe("animals:1.0.0", license="MIT")

        def fail(_catalog: Catalog, _reference: Any) -> Any:
            raise StorageUnavailableError("silent")

        monkeypatch.setattr(Catalog, "look_up", fail)
        (card,) = page_of(catalog)[0].values["datasets"]
        assert (card["license"], card["path"]) == ("MIT", ("datasets", "animals", "1.0.0"))


def test_versions_are_on_pages_by_their_numbers(tmp_path: Path) -> None:
    features = features_to_json(FeaturesDict(KINDS["text"]))
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data", create=True) as catalog:
        for number in range(120):
            version, shards = sample(f"many:1.{number}.0", {"train": [3]}, content=str(number))
            changed = dataclasses.replace(version, features_json=features)
            catalog.backend.publish(changed, shards, promote=True, actor="test")
        for is_live in (True, False):
            page, html = page_of(catalog, "datasets", "many", "1.7.0", is_live=is_live)
            numbers = [str(it["version"]) for it in page.values["versions"]]
            assert numbers == [f"1.{number}.0" for number in range(119, 19, -1)]
            assert page.values["versions"][-1]["step"] == "minor"
            assert "versions/below-1.20.0/" in html
            page, html = page_of(catalog, "datasets", "many", "1.7.0", "versions", "below-1.20.0", is_live=is_live)
            assert [str(it["version"]) for it in page.values["versions"]] == [f"1.{it}.0" for it in range(19, -1, -1)]
            assert page.values["older"] is None
        assert page_of(catalog, "datasets", "many", "1.7.0", "versions", "below-1.0.0")[0].values["versions"] == []
        for rest in (("below-1.x.0",), ("1.2.0",), ("below-1.2.0", "more")):
            with pytest.raises(NotFoundError, match="of versions"):
                page_of(catalog, "datasets", "many", "1.7.0", "versions", *rest)


def test_a_card_has_the_first_paragraph_as_plain_text(tmp_path: Path) -> None:
    version, shards = sample("rain:1.0.0", {"train": [3]})
    text = f"# Rain\n\nMade **by**\n[stations](https://example.org). {XSS} {'word ' * 100}\n\n| a |\n|---|\n| 1 |"
    features = features_to_json(FeaturesDict(KINDS["text"]))
    changed = dataclasses.replace(version, features_json=features, metadata=DatasetMetadata(description=text))
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data", create=True) as catalog:
        catalog.backend.publish(changed, shards, promote=True, actor="test")
        page, html = page_of(catalog)
    (card,) = page.values["datasets"]
    assert card["description"].startswith(f"Made by stations. {XSS} word")
    assert card["description"].endswith("…")
    assert len(card["description"]) <= 160
    assert "<script>alert" not in html
    assert '<p class="about">Made by stations. &lt;script&gt;' in html
