"""Pages of records: rows as people read them, and filters, searches and orders over every record."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from html import unescape
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.prepared_samples import prepare

import registry
from registry.features import ClassLabel, FeaturesDict, Image, Scalar, Sequence, Tensor, Text
from registry.features.block_columns import MaskedColumn, TextColumn
from registry.features.feature import TEXT, BlockColumn
from registry.pages import Page, Visit, answer, json_of, render
from registry.pages.cells import STORED_ORDER
from registry.pages.previews import Remembered
from registry.pages.selection import Question, Words, select

GALLERY = ("datasets", "gallery", "1.0.0")


def page_of(catalog: registry.Catalog, *rest: Any, is_live: bool = True, most: int | None = None, **query: str) -> Page:
    path = (*GALLERY, *map(str, rest))
    visit = Visit(catalog=catalog, path=path, query=query, is_live=is_live, most_records=most)
    page = answer(visit)
    assert isinstance(page, Page)
    page.values["html"], page.values["targets"] = "", ()  # type: ignore[index]
    html, targets = render(page, visit)
    json.loads(json_of(page))
    page.values["html"], page.values["targets"] = html, targets  # type: ignore[index]
    return page


def indices(page: Page) -> list[int]:
    return [row["index"] for row in page.values["rows"]]


def cells(row: Any) -> dict[str, Any]:
    return {cell["name"]: cell for cell in row["cells"]}


def test_rows_are_shown_as_people_read_them(gallery: registry.Catalog) -> None:
    page = page_of(gallery, "records")
    assert page.values["split"] == "train"
    assert indices(page) == list(range(50))
    reader = gallery.dataset("gallery").read("train", STORED_ORDER)
    for row, example in zip(page.values["rows"][:5], reader, strict=False):
        cell = cells(row)
        assert cell["label"]["text"] == ("cat", "dog", "Straße")[example["label"]]
        assert cell["age"]["text"] == ("null" if example["age"] is None else str(example["age"]))
        assert cell["image"]["text"].startswith("32x24 px RGB png")
        assert len(cell["series"]["points"]) in (0, example["series"].size)
        (image,) = cell["image"]["media"]
        assert image["boxes"] == [
            {"box": [0.1, 0.25, 0.5, 0.25], "name": ("cat", "dog")[example["objects"]["label"][0]]}
        ]
        assert image["mask"] == (*GALLERY, "media", "train", str(row["index"]), "mask", "small.png")
        assert [item["kind"] for item in cell["clip"]["media"]] == ["image"] * 3
        assert cell["sound"]["media"][0]["kind"] == "audio"
        assert cell["samples"]["media"][0]["file"][-1] == "file.wav"
    html = page.values["html"]
    assert html.count("<audio") == 100
    assert html.count("<polyline") > 50
    assert "after=49" in html


def test_types_on_the_overview_are_short(gallery: registry.Catalog) -> None:
    page = page_of(gallery)
    types = {row["path"]: row["type"] for row in page.values["features"]}
    assert types == {
        "image": "Image uint8 (None, None, 3)",
        "mask": "LabeledImage of 3 classes uint8 (None, None, 1)",
        "objects": "Sequence of dict",
        "objects/box": "BBox float32 (4,)",
        "objects/label": "ClassLabel of 2 classes",
        "sound": "Audio int64 (None,)",
        "samples": "Audio int16 (None,)",
        "clip": "Sequence of Image uint8 (6, 8, 3)",
        "heat": "float32 (5, 7)",
        "series": "Sequence of float64",
        "label": "ClassLabel of 3 classes",
        "price": "float64",
        "age": "optional int32",
        "text": "Text",
    }


@pytest.mark.parametrize(
    ("features", "condition"),
    [
        ({"picture": Image(shape=(2, 2, 3)), "label": ClassLabel(names=["cat's", "dog"])}, r"label == 'cat\'s'"),
        ({"label": ClassLabel(names=["long" * 40, "dog"])}, "label == 0"),
        ({"numbers": Sequence("int64"), "unit price": Scalar("float64")}, "`unit price` > 0"),
        ({"text": Text()}, "text == 'a word'"),
        ({"is_open": Scalar("bool")}, "is_open == True"),
        ({"half": Tensor(shape=(), dtype="bfloat16", encoding="bytes")}, "half > 0"),
        ({"numbers": Sequence("int64"), "tick`": Scalar("int64")}, ""),
    ],
    ids=["class", "long class", "number", "text", "bool", "bfloat16", "none"],
)
def test_the_example_of_a_condition_names_a_feature_of_the_dataset(
    tmp_path: Path, features: dict[str, Any], condition: str
) -> None:
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as catalog:
        catalog.publish(prepare(tmp_path / "odd", splits={"train": []}, features=FeaturesDict(features), name="odd"))
        visit = Visit(catalog=catalog, path=("datasets", "odd", "1.0.0", "records"))
        page = answer(visit)
        assert isinstance(page, Page)
        conditions = page.values["example_conditions"]
        assert len(conditions) == (3 if condition else 0)
        assert conditions[:1] == [condition] * bool(condition)
        html = unescape(render(page, visit)[0])
        assert f'placeholder="{condition}"' in html
        assert ("How to write a condition" in html) == bool(condition)
        for example in conditions:
            assert f"<code>{example}</code>" in html
            list(catalog.dataset("odd").read("train").where(example))


def test_a_site_has_the_first_records_and_no_query(gallery: registry.Catalog) -> None:
    page = page_of(gallery, "records", is_live=False, most=70)
    assert indices(page) == list(range(50))
    assert (*GALLERY, "records", "train", "from-50") in page.values["targets"]
    page = page_of(gallery, "records", "train", "from-50", is_live=False, most=70)
    assert indices(page) == list(range(50, 70))
    assert page.values["next"] is None
    assert "<form" not in page.values["html"]
    assert (page.values["first"], page.values["previous"]) == (50, 0)
    assert "50–69 of 70 records, counted from 0; this site shows the first of 120" in page.values["html"]
    last = page_of(gallery, "records", "train", 69, is_live=False, most=70)
    assert last.values["next"] is None


def test_a_page_says_where_it_is_and_leads_to_all_others(gallery: registry.Catalog) -> None:
    def links(html: str) -> dict[str, str]:
        pager = html[html.index('<nav class="pager"') :]
        return {name: unescape(address) for address, name in re.findall(r'href="([^"]+)">([A-Z][a-z]+ page)<', pager)}

    page = page_of(gallery, "records", after="49")
    assert '<p class="muted count">50–99 of 120 records, counted from 0</p>' in page.values["html"]
    assert links(page.values["html"]) == {
        "First page": "./?split=train",
        "Previous page": "./?split=train&before=50",
        "Next page": "./?split=train&after=99",
        "Last page": "./?split=train&before=120",
    }
    last = page_of(gallery, "records", before="120")
    assert (indices(last), last.values["next"]) == (list(range(100, 120)), None)
    page = page_of(gallery, "records", where="price > 0", sort="-price", before="120")
    count = page.values["num_matches"]
    assert f"50–{count - 1} of {count} records that match, counted from 0; 120 in all" in page.values["html"]
    assert "where=price+%3E+0" in page.values["html"]


def test_no_record_follows_a_position_behind_the_last_one(gallery: registry.Catalog) -> None:
    for query in ({}, {"sort": "price"}, {"sort": "-age", "where": "price > 0"}):
        assert indices(page_of(gallery, "records", after="120", **query)) == []


def test_a_page_shows_chosen_columns_of_an_expression(gallery: registry.Catalog) -> None:
    page = page_of(gallery, "records", split="train[118:]+test[:3]", columns="text,label")
    assert [(row["split"], row["index"]) for row in page.values["rows"]] == [
        ("train", 118),
        ("train", 119),
        ("test", 0),
        ("test", 1),
        ("test", 2),
    ]
    assert list(cells(page.values["rows"][0])) == ["text", "label"]
    following = page_of(gallery, "records", split="train[118:]+test[:3]", after="2")
    assert [row["index"] for row in following.values["rows"]] == [1, 2]


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ({"where": "label = 3"}, 400, "Write == instead of =."),
        ({"split": "trai["}, 400, "expected a number"),
        ({"split": "missing"}, 404, "missing"),
        ({"sort": "clip"}, 400, "records cannot be sorted by &#39;clip&#39;"),
        ({"columns": "nothing"}, 400, "no feature &#39;nothing&#39;"),
        ({"sort": "prise"}, 400, "Did you mean &#39;price&#39;?"),
        ({"after": "x"}, 400, "after is not the number of a record: &#39;x&#39;"),
        ({"before": "-1"}, 400, "before is not the number of a record: &#39;-1&#39;"),
        ({"after": "1", "before": "9"}, 400, "an address must not have both"),
        ({"after": "119"}, 404, "there are no records behind 119"),
        ({"before": "0"}, 404, "there are no records before 0"),
        ({"where": "price > 0", "after": "500"}, 404, "Begin at the first page."),
        ({"where": "x" * 3000}, 400, "more than 2,000 characters"),
    ],
)
def test_mistakes_are_words_on_the_page(
    gallery: registry.Catalog, query: dict[str, str], status: int, said: str
) -> None:
    page = page_of(gallery, "records", **query)
    assert page.status == status
    assert said in page.values["html"]
    assert page.values["rows"] == ()


@pytest.mark.parametrize(
    "rest", [("missing",), ("train", "x"), ("train", "120"), ("train", "0", "x"), ("missing", "0")]
)
def test_a_page_that_does_not_exist_is_not_found(gallery: registry.Catalog, rest: tuple[str, ...]) -> None:
    with pytest.raises(registry.errors.NotFoundError):
        page_of(gallery, "records", *rest)


def test_a_record_has_its_place_its_digest_and_its_neighbours(gallery: registry.Catalog) -> None:
    page = page_of(gallery, "records", "train", 7)
    dataset = gallery.dataset("gallery")
    record = next(iter(dataset.read("train[7:8]", STORED_ORDER).records()))
    digest = hashlib.sha256(record).hexdigest()
    place = page.values["place"]
    assert page.values["digest"] == digest
    content = (Path(dataset.folder.removeprefix("file://")) / place["file"]).read_bytes()
    frame = content[place["offset"] : place["offset"] + 12 + place["length"] + 4]
    assert frame[12:-4] == record
    assert f"{int.from_bytes(frame[-4:], 'little'):08x}" == place["crc"]
    assert (page.values["previous"], page.values["next"]) == (6, 8)
    assert ", counted from 0</span></h2>" in page.values["html"]
    assert page_of(gallery, "records", "train", 0).values["previous"] is None
    assert page_of(gallery, "records", "train", 119).values["next"] is None


def test_a_permalink_says_whether_it_is_the_record(gallery: registry.Catalog) -> None:
    digest = page_of(gallery, "records", "train", 7).values["digest"]
    assert "its digest is equal" in page_of(gallery, "records", "train", 7, sha256=digest).values["html"]
    html = page_of(gallery, "records", "train", 8, sha256=digest).values["html"]
    assert f"its digest differs. Expected sha256:{digest}" in html


# Laws: the pages of any question are what brute force over all records gives.

WHERE = ("", "price > 0", "label == 'dog' and age is not None", "age is None or price < -1", "price > 100")
WORDS = ("", "strasse", "GALLERY", "record 1", "dog", "nothing of this")
SORTS = ("", "price", "-price", "age", "-age", "text", "-text", "label", "-label")
SPLITS = ("train", "test+train[10:60]", "train[50%:]+train[:20]", "train[:0]")


def brute_force(rows: list[dict[str, Any]], where: str, words: str, sort: str) -> list[int]:
    tests = {
        "": lambda _: True,
        WHERE[1]: lambda row: row["price"] > 0,
        WHERE[2]: lambda row: row["label"] == 1 and row["age"] is not None,
        WHERE[3]: lambda row: row["age"] is None or row["price"] < -1,
        WHERE[4]: lambda _: False,
    }
    names = ("cat", "dog", "Straße")
    needle = words.casefold()
    found = [
        position
        for position, row in enumerate(rows)
        if tests[where](row) and (needle in row["text"].decode().casefold() or needle in names[row["label"]].casefold())
    ]
    name = sort.removeprefix("-")
    if not sort:
        return found
    absent = [p for p in found if rows[p][name] is None or rows[p][name] != rows[p][name]]
    present = [p for p in found if p not in absent]
    return [*sorted(present, key=lambda p: rows[p][name], reverse=sort.startswith("-")), *absent]


@given(
    split=st.sampled_from(SPLITS),
    where=st.sampled_from(WHERE),
    words=st.sampled_from(WORDS),
    sort=st.sampled_from(SORTS),
    size=st.integers(1, 60),
)
def test_pages_are_what_brute_force_gives(
    gallery: registry.Catalog, split: str, where: str, words: str, sort: str, size: int
) -> None:
    dataset = gallery.dataset("gallery")
    plan = dataset.resolve(split)
    rows = list(dataset.read(split, STORED_ORDER).select("price", "age", "text", "label"))
    expected = brute_force(rows, where, words, sort)
    question, after, pages = Question(where=where, q=words, sort=sort), -1, list[int]()
    while True:
        selection = select(dataset, plan, question, after, size)
        assert not selection.missing
        assert selection.num_matches in (None, len(expected))
        pages += selection.positions
        assert pages[selection.first :] == list(selection.positions)
        assert selection.total == len(expected)
        if not selection.follows:
            break
        assert len(selection.positions) == size
        assert pages == expected[: len(pages)]  # otherwise, pages could go on for ever
        after = selection.positions[-1]
    assert pages == expected
    pages, before, end = [], plan.num_examples, -(-len(expected) // size) * size
    while (selection := select(dataset, plan, question, -1, size, before=before)).positions:
        end -= size  # also the last page begins at a multiple of its size
        assert selection.first == end
        assert selection.follows == bool(pages)
        pages[:0] = selection.positions
        before = selection.positions[0]
    assert (pages, max(0, end)) == (expected, 0)


@pytest.mark.parametrize("sort", ["", "-price", "age", "text"])
@pytest.mark.parametrize("where", WHERE[:4])
def test_a_page_begins_behind_any_record(
    gallery: registry.Catalog, monkeypatch: pytest.MonkeyPatch, where: str, sort: str
) -> None:
    """Behind each record of the order, whether it matches or not, follows the next one that matches."""
    monkeypatch.setattr("registry.pages.selection._STEP", 7)
    dataset, split = gallery.dataset("gallery"), "test+train[10:60]"
    rows = list(dataset.read(split, STORED_ORDER).select("price", "age", "text", "label"))
    matches, order = set(brute_force(rows, where, "", "")), brute_force(rows, "", "", sort)
    for place, after in enumerate([-1, *order]):
        selection = select(dataset, dataset.resolve(split), Question(where=where, sort=sort), after, 1)
        following = [position for position in order[place:] if position in matches]
        assert list(selection.positions) == following[:1]
        assert selection.follows == (len(following) > 1)


@pytest.mark.parametrize("sort", SORTS)
def test_kept_columns_give_the_same_pages(
    gallery: registry.Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sort: str
) -> None:
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "100MB")
    monkeypatch.setattr("registry.pages.selection.SMALL_BYTES", 0)
    monkeypatch.setattr("registry.pages.selection._REMEMBERED", Remembered(2**28, itemgetter(1)))
    dataset = gallery.dataset("gallery")
    dataset.keep_columns(columns=["price", "age", "text", "label"])
    plan = dataset.resolve("train[10:]+test")
    rows = list(dataset.read("train[10:]+test", STORED_ORDER).select("price", "age", "text", "label"))
    for where, words in itertools.product(WHERE, WORDS):
        selection = select(dataset, plan, Question(where=where, q=words, sort=sort), -1, 200)
        assert list(selection.positions) == brute_force(rows, where, words, sort)


def test_large_splits_are_sorted_by_parts(gallery: registry.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The law above, with parts of seven records: a page is merged from many parts."""
    monkeypatch.setattr("registry.pages.selection._STEP", 7)
    dataset = gallery.dataset("gallery")
    for sort in SORTS[1:]:
        rows = list(dataset.read("train", STORED_ORDER).select("price", "age", "text", "label"))
        expected, after, pages = brute_force(rows, "", "", sort), -1, list[int]()
        while len(pages) < len(rows):
            page = select(dataset, dataset.resolve("train"), Question(sort=sort), after, 9)
            back = select(dataset, dataset.resolve("train"), Question(sort=sort), -1, 9, before=page.positions[0])
            assert list(back.positions) == pages[-9:]
            assert (page.first, back.first) == (len(pages), max(0, len(pages) - 9))
            pages += page.positions
            after = pages[-1]
        assert pages == expected
        assert not math.isnan(rows[pages[0]]["price"] if sort == "price" else 0)
    assert np.unique(pages).size == len(rows)


@given(
    texts=st.lists(st.text("abB", max_size=9) | st.text("abß\0", max_size=4), min_size=1, max_size=12),
    needle=st.text("abBß", min_size=1, max_size=11),
    optional=st.booleans(),
)
def test_words_are_found_in_texts_that_lie_one_behind_the_other(texts: list[str], needle: str, optional: bool) -> None:
    """Kept texts are searched at once, without an object for each: what two of them have together is in none."""
    encoded = [text.encode() for text in texts]
    sizes = np.array([*map(len, encoded)], np.int64)
    column: BlockColumn = TextColumn(
        np.frombuffer(b"a" + b"".join(encoded), np.uint8), 1 + sizes.cumsum() - sizes, sizes, copy=True
    )
    expected = [needle.casefold() in text.casefold() for text in texts]
    if optional:  # every second row is missing
        column = MaskedColumn(column, np.arange(len(texts)) * 2, 2 * len(texts), (), TEXT)
        expected = [matches for each in expected for matches in (each, False)]
    words = Words(needle, FeaturesDict({"text": Text()}))
    assert words.matches([column], len(expected)).tolist() == expected


@pytest.mark.parametrize("sort", ["number", "-number", "text", "-text"])
def test_pages_of_a_long_order_are_those_of_a_full_sort(tmp_path: Path, sort: str) -> None:
    file, numbers = tmp_path / "rows.csv", [place * 7919 % 10_007 // 3 for place in range(20_000)]
    file.write_text("number,text\n" + "".join(f"{number},word {number % 1000}\n" for number in numbers))
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.add(file, name="rows")
        dataset = catalog.dataset("rows")
        values = [row[sort.removeprefix("-")] for row in dataset.read("train", STORED_ORDER)]
        expected = sorted(range(len(values)), key=values.__getitem__, reverse=sort.startswith("-"))
        for first in (0, 9_950, 19_950):
            after = expected[first - 1] if first else -1
            page = select(dataset, dataset.resolve("train"), Question(sort=sort), after, 50)
            assert (list(page.positions), page.first) == (expected[first : first + 50], first)
