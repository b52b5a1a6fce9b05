"""The page of statistics: every bar leads to exactly the records that it counts, and foreign names are only text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from support.attached_folds import attach_nothing
from support.prepared_samples import prepare

import registry
from registry.api import Catalog, Dataset
from registry.errors import NotFoundError
from registry.features import ClassLabel, FeaturesDict, Scalar, Sequence, Tensor, Text
from registry.pages import Page, Visit, answer, json_of, render, statistics

XSS = "<script>alert('\"1\"')</script>"
PATH = XSS.replace("/", r"\/")
NAMES = ["cat's", 'a "dog"', "back\\slash", XSS, "\u202e", "1", "0"]
FEATURES = FeaturesDict(
    {
        "price": Scalar("float64"),
        "weight": Scalar("float32", optional=True),
        "half": Scalar("float16"),
        "brain": Tensor(shape=(), dtype="bfloat16", encoding="bytes"),
        "small": Scalar("uint8"),
        "wide": Scalar("uint64"),
        "is_open": Scalar("bool"),
        "and": Scalar("int32"),
        "a.b [c] 'd'": Scalar("int64"),
        XSS: Text(),
        "label": ClassLabel(names=NAMES),
        "number": ClassLabel(num_classes=3),
        "empty": Scalar("float32", optional=True),
        "list": Sequence("int64"),
        "tick`": Scalar("int64"),
    }
)


def example(number: int, chance: np.random.Generator) -> dict[str, Any]:
    spread = float(chance.normal() * 10.0 ** int(chance.integers(-3, 4)))
    odd = {7: float("nan"), 8: float("inf"), 9: float("-inf")}.get(number, spread)
    return {
        "price": odd,
        "weight": None if number % 5 == 0 else np.float32(odd),
        "half": np.float16(chance.normal()),
        "brain": ml_dtypes.bfloat16(chance.normal()),
        "small": int(chance.integers(200, 256)),
        "wide": int(chance.integers(0, 2**64, dtype=np.uint64)),
        "is_open": number % 3 == 0,
        "and": number % 7 - 3,
        "a.b [c] 'd'": int(chance.integers(-(2**60), 2**60)),
        XSS: ["plain", 'Ann\'s \\ "x"', XSS, "two\nlines", "ü" * 50, "é"][number % 6],
        "label": number % 6,
        "number": number % 4 - 1,
        "empty": None,
        "list": [number] * (number % 3),
        "tick`": number,
    }


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Catalog, Dataset]]:
    folder, chance = tmp_path_factory.mktemp("statistics"), np.random.default_rng(3)
    splits = {"train": [example(it, chance) for it in range(400)], "test": [example(0, chance)] * 20, "none": []}
    with registry.connect(folder / "catalog.db", data_dir=folder / "data") as catalog:
        catalog.publish(prepare(folder / "odd", splits=splits, features=FEATURES, name="odd"))
        yield catalog, catalog.dataset("odd")


def page_of(catalog: Catalog, *rest: str, is_live: bool = True, name: str = "odd", **query: str) -> tuple[Page, str]:
    visit = Visit(catalog=catalog, path=("datasets", name, "1.0.0", "statistics", *rest), query=query, is_live=is_live)
    page = answer(visit)
    assert isinstance(page, Page)
    json.loads(json_of(page))
    return page, render(page, visit)[0]


def test_a_condition_selects_exactly_the_records_that_a_bar_counts(dataset: tuple[Catalog, Dataset]) -> None:
    catalog, odd = dataset
    checked = dict.fromkeys(("bars", "classes", "frequent", "nulls", "nan"), 0)
    for block in page_of(catalog)[0].values["features"]:
        for place, split in enumerate(block["splits"]):
            lists = {"bars": split["bars"], "frequent": split["frequent"], "nulls": [split["nulls"]]}
            lists |= {"nan": [split["nan"]]}
            lists["classes"] = [{"where": it["where"], "count": it["counts"][place]} for it in block["classes"]]
            for kind, items in lists.items():
                for item in items:
                    if item["where"] is not None:
                        num_records = len(odd.read(split["name"]).where(item["where"]))
                        assert num_records == item["count"], (block["path"], item)
                        checked[kind] += 1
            if split["bars"] and block["path"] not in (PATH, "list", "tick`"):
                assert all(it["where"] for it in split["bars"]), block["path"]
    assert min(checked.values()) > 0


def test_values_that_no_condition_selects_have_no_link(dataset: tuple[Catalog, Dataset]) -> None:
    blocks = {block["path"]: block for block in page_of(dataset[0])[0].values["features"]}
    assert {it["where"] for name in ("list", "tick`", PATH) for it in blocks[name]["splits"][0]["bars"]} == {None}
    texts = {it["text"]: it["where"] for it in blocks[PATH]["splits"][0]["frequent"]}
    assert texts["é"] == f"`{XSS}` == 'é'"
    assert [where for text, where in texts.items() if "..." in text] == [None]


def test_the_facts_of_a_feature_are_beside_each_other_for_its_splits(dataset: tuple[Catalog, Dataset]) -> None:
    page, html = page_of(dataset[0])
    blocks = {block["path"]: block for block in page.values["features"]}
    assert [it["name"] for it in blocks["price"]["splits"]] == ["train", "test", "none"]
    facts = {it["name"]: it["values"] for it in blocks["small"]["facts"]}
    assert facts["values"] == [400, 20, 0]
    assert (facts["max"][0], facts["max"][2]) == ("255", "")
    assert blocks["empty"]["splits"][0]["nulls"] == {"count": 400, "where": "empty is None"}
    assert blocks["price"]["splits"][0]["remarks"] == "1 NaN; 2 infinite"
    label = blocks["label"]
    assert [it["name"] for it in label["classes"]] == NAMES
    assert label["classes"][6]["counts"] == [0, 0, 0]
    assert "never: 0" in label["splits"][0]["remarks"]
    assert any(it["feature"] == "label" and it["split"] == "test" for it in page.values["differences"])
    assert page.values["sentences"] == ["duplicates within test: 19 of 20 records"]
    assert "datasets" not in html.split("records/?")[1].split('"')[0]


def test_a_fact_that_no_split_has_is_not_a_row(gallery: Catalog) -> None:
    page, _ = page_of(gallery, name="gallery")
    facts = {block["path"]: {it["name"]: it["values"] for it in block["facts"]} for block in page.values["features"]}
    assert "distinct" not in facts["image"]
    assert facts["image"]["formats"] == ["png 120", "png 10"]
    assert all(any(value != "" for value in values) for block in facts.values() for values in block.values())


@pytest.mark.parametrize("is_live", [True, False])
def test_foreign_names_are_only_text(dataset: tuple[Catalog, Dataset], is_live: bool) -> None:
    html = page_of(dataset[0], is_live=is_live)[1]
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
    assert ("where=" in html) is is_live
    assert ("<form" in html) is is_live


def test_one_feature_is_chosen_by_the_address(dataset: tuple[Catalog, Dataset]) -> None:
    page, html = page_of(dataset[0], feature="a.b [c] 'd'")
    assert [it["path"] for it in page.values["features"]] == ["a.b [c] 'd'"]
    assert "All features" in html
    with pytest.raises(NotFoundError, match="has no statistics of 'prise'") as caught:
        page_of(dataset[0], feature="prise")
    assert "price" in str(caught.value.hint)
    for rest in (("from-15",), ("from-x",), ("from-0", "more"), ("other",)):
        with pytest.raises(NotFoundError):
            page_of(dataset[0], *rest)


def test_a_version_without_statistics_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attach_nothing(monkeypatch)
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.publish(prepare(tmp_path / "animals"))
        page, html = page_of(catalog, name="animals")
    assert page.values["is_attached"] is False
    assert "registry stats animals:1.0.0 --compute" in html


def test_statistics_that_are_too_large_for_a_page_are_words(
    dataset: tuple[Catalog, Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "_MOST_BYTES", 1000)
    page, html = page_of(dataset[0])
    assert (page.values["is_attached"], page.values["is_unreadable"]) == (False, True)
    assert "<code>registry stats odd:1.0.0</code>" in html


def test_features_are_on_pages_of_25(tmp_path: Path) -> None:
    features = FeaturesDict({f"f{place:03}": Scalar("int64") for place in range(60)})
    rows = [dict.fromkeys(features, number) for number in range(3)]
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.publish(prepare(tmp_path / "wide", splits={"train": rows}, features=features, name="wide"))
        for is_live in (True, False):
            page, html = page_of(catalog, "from-25", name="wide", is_live=is_live)
            assert [it["path"] for it in page.values["features"]] == [f"f{place:03}" for place in range(25, 50)]
            assert (page.values["previous"], page.values["next"]) == (0, 50)
            assert "from-50/" in html
        assert page_of(catalog, "from-50", name="wide")[0].values["next"] is None


def test_a_label_shows_its_most_frequent_classes(tmp_path: Path) -> None:
    features = FeaturesDict({"label": ClassLabel(num_classes=1_000_000)})
    rows = [{"label": number * 7} for number in range(100)] + [{"label": 999_999}] * 9
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.publish(prepare(tmp_path / "many", splits={"train": rows}, features=features, name="many"))
        page, html = page_of(catalog, name="many")
    (block,) = page.values["features"]
    assert len(block["classes"]) <= 50
    assert (block["classes"][0]["name"], block["classes"][0]["counts"]) == ("999999", [9])
    assert "of 1,000,000 classes" in html


def test_a_bar_leads_to_a_page_with_its_records(dataset: tuple[Catalog, Dataset]) -> None:
    catalog, _ = dataset
    html = page_of(catalog)[1]
    links = re.findall(r'href="\.\./(records/\?[^"]*where=[^"]*)" aria-label="([^"]*): (\d+)"', html)
    assert len(links) > 50
    for link, label, count in links[:: len(links) // 12]:
        query = dict(parse_qsl(urlsplit(unescape(link)).query))
        page = answer(Visit(catalog=catalog, path=("datasets", "odd", "1.0.0", "records"), query=query))
        assert isinstance(page, Page)
        assert (page.values["problem"], page.values["num_matches"]) == (None, int(count)), label


def test_bars_of_dates_and_times_select_their_records(tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    start = datetime(2024, 1, 31, 12, tzinfo=UTC)
    seconds = chance.integers(0, 10**8, 300).tolist()
    rows = {
        "at": [start + timedelta(seconds=it, microseconds=7) for it in seconds],
        "day": [(start + timedelta(seconds=it)).date() for it in seconds],
        "waited": [timedelta(seconds=it % 5000) for it in seconds],
    }
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data", create=True) as catalog:
        catalog.add(pa.table(rows), "times")
        page, html = page_of(catalog, name="times")
        times = catalog.dataset("times")
        for block in page.values["features"]:
            (split,) = block["splits"]
            assert sum(bar["count"] for bar in split["bars"]) == 300
            for bar in split["bars"]:
                assert len(times.read("train").where(bar["where"])) == bar["count"], (block["path"], bar)
    assert [it["kind"] for it in page.values["features"]] == ["datetime", "date", "duration"]
    assert "day &gt;= &#39;2024-" not in html  # conditions are only in addresses
    assert re.search(r"where=day%20%3E%3D%20%272024-\d\d-\d\d%27", html)


def test_histograms_of_splits_are_over_one_range(tmp_path: Path) -> None:
    values = {"train": [float(it) for it in range(100)], "test": [it / 10 + 150.0 for it in range(501)]}

    class Ranges(registry.DatasetBuilder):
        VERSION = "1.0.0"

        def features(self) -> FeaturesDict:
            return FeaturesDict({"x": Scalar("float64"), "same": Scalar("float64")})

        def splits(self) -> Any:
            return {
                name: [(place, {"x": x, "same": 7.5}) for place, x in enumerate(numbers)]
                for name, numbers in values.items()
            }

    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data", create=True) as catalog:
        catalog.build(Ranges)
        page, html = page_of(catalog, name="ranges")
    blocks = {block["path"]: {it["name"]: it for it in block["splits"]} for block in page.values["features"]}
    assert {tuple(it["ends"]) for it in blocks["x"].values()} == {("0", "200")}
    for name, low, high in (("train", 0, 99), ("test", 150, 200)):
        bars = blocks["x"][name]["bars"]
        assert (bars[0]["start"], bars[-1]["start"] + bars[-1]["width"]) == pytest.approx((low / 200, high / 200))
        assert sum(bar["width"] for bar in bars) == pytest.approx((high - low) / 200)
        assert [(bar["start"], bar["width"]) for bar in blocks["same"][name]["bars"]] == [(0, 1)]
    lefts = [float(it) for it in re.findall(r'class="hit" x="([0-9.]+)"', html)]
    assert min(lefts) == 0
    assert 990 < max(lefts) <= 996
