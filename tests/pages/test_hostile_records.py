"""Nothing that records hold leaves its place on a page, and pages stay small, whatever the records hold."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.levels import either
from support.page_elements import XSS, Elements

import registry
from registry.features import BBox, ClassLabel, FeaturesDict, Image, Scalar, Sequence, Tensor, Text
from registry.pages import Media, Page, Visit, answer, json_of, render
from registry.pages.cells import STORED_ORDER

MOST_BYTES = 1_000_000
NAME = XSS.replace("/", "-")
STEERING = "\u202egnp.exe\u200f\x1b[31m\x9b\u2066"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script></svg>\0'
HTML = b"<!doctype html><script>alert(1)</script>\0"
QUOTES = "'" * 10_000_000
VERSION = ("datasets", "hostile_records", "1.0.0")


def huge_png() -> bytes:
    """The header of a PNG of 100,000 x 100,000 pixels."""
    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))


FILES = (SVG, HTML, huge_png(), b"GIF89a\xff\xff\xff\xff\0" + XSS.encode(), b"RIFF\0\0\0\0WAVE" + XSS.encode())
TEXTS = (XSS, STEERING, "", "{{ 7 * 7 }}{% raw %}", "\0" * 50, "</td></tr></table>", "&#x3c;script&#x3e;")


class HostileRecords(registry.DatasetBuilder):
    VERSION = "1.0.0"
    RELEASE_NOTES = {"1.0.0": "First"}

    def features(self) -> FeaturesDict:
        many = {f"quotes {i:02}": Text() for i in range(40)}
        return FeaturesDict(
            {
                NAME: Text(),
                "..": Tensor(shape=(), dtype="bytes", description="The bytes of an image file."),
                "sound": Tensor(shape=(), dtype="bytes", description="The bytes of an audio file."),
                STEERING: ClassLabel(names=[XSS, STEERING, *map(str, range(1000))]),
                "nested": Sequence({"a": Sequence("int64"), "b": {"c": Text()}}),
                "series": Sequence("float32"),
                "array": Tensor(shape=(2, 2), dtype="float32"),
                "number": Scalar("float64"),
                **many,
            }
        )

    def splits(self) -> Any:
        def examples() -> Iterator[tuple[int, dict[str, Any]]]:
            for i in range(60):
                nested = [{"a": [], "b": {"c": XSS}}] * (i % 3) + [{"a": list(range(i)), "b": {"c": ""}}] * (i % 2)
                odd = (np.nan, np.inf, -np.inf, 3e38)[i % 4]
                yield (
                    i,
                    {
                        NAME: QUOTES if i in (3, 4) else TEXTS[i % len(TEXTS)],
                        "..": FILES[i % len(FILES)],
                        "sound": FILES[-1 - i % len(FILES)],
                        STEERING: i % 3,
                        "nested": nested,
                        "series": np.full(i % 5 * 100, odd, np.float32),
                        "array": np.full((2, 2), odd, np.float32),
                        "number": odd,
                        **{f"quotes {i:02}": "'\"<&" * 500 for i in range(40)},
                    },
                )

        return {"train": examples()}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Catalog]:
    with registry.connect(tmp_path_factory.mktemp("hostile") / "catalog.db", create=True) as catalog:
        catalog.build(HostileRecords)
        yield catalog


def pages(is_live: bool) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    yield (*VERSION, "records"), {}
    yield (*VERSION, "records", "train", "from-50"), {}
    for index in range(0, 60, 7):
        yield (*VERSION, "records", "train", str(index)), {}
    yield (*VERSION, "records", "train", "3"), {}
    if is_live:
        yield (*VERSION, "records"), {"split": "train[:0]"}
        yield (*VERSION, "records"), {"q": XSS}
        yield (*VERSION, "records"), {"where": XSS, "split": XSS, "columns": XSS, "sort": XSS}
        yield (*VERSION, "records"), {"where": XSS}
        yield (*VERSION, "records"), {"sort": "-~1", "columns": "~0,number"}
        yield (*VERSION, "records"), {"sort": "number", "after": "30"}
        yield (*VERSION, "records"), {"sort": "number", "after": "9" * 300}
        yield (*VERSION, "records", "train", "3"), {"sha256": XSS}


@pytest.mark.parametrize("is_live", [True, False], ids=["live", "site"])
def test_nothing_leaves_its_place_and_pages_stay_small(catalog: registry.Catalog, is_live: bool) -> None:
    shown = 0
    for path, query in pages(is_live):
        visit = Visit(catalog=catalog, path=path, query=query, is_live=is_live, most_records=None)
        page = answer(visit)
        assert isinstance(page, Page)
        html, targets = render(page, visit)
        text = json_of(page)
        json.loads(text)
        assert len(html.encode()) < MOST_BYTES
        assert len(text.encode()) < MOST_BYTES
        shown += "alert(1)" in html
        for letter in "\u202e\u200f\x1b\x9b\u2066\0":
            assert letter not in html
        for tag, attributes in Elements(html).found:
            assert tag not in ("iframe", "object", "embed", "base", "style", "foreignobject", "use", "animate", "set")
            assert not [name for name in attributes if name.startswith("on") or name == "style"]
            source = attributes.get("src") or attributes.get("href") or ""
            assert not source.lower().lstrip().startswith(("javascript:", "data:", "//", "http:"))
            if tag == "script":
                assert source.endswith("static/enhance.js")
            if tag in ("img", "image", "audio", "video"):
                assert "/media/train/" in f"/{source}" or source.startswith(("../", "media"))
        for target in targets:
            assert ".." not in target
            assert not target or target[-1].rpartition(".")[2] not in ("svg", "html") or target[0] == "static"
    assert shown > 5


def test_media_are_of_known_types_or_downloads(catalog: registry.Catalog) -> None:
    types = set()
    for index in range(10):
        path = (*VERSION, "records", "train", str(index))
        page = answer(Visit(catalog=catalog, path=path))
        assert isinstance(page, Page)
        for cell in page.values["cells_of_record"]:
            for item in cell["media"]:
                media = answer(Visit(catalog=catalog, path=item["file"]))
                assert isinstance(media, Media)
                types.add((item["file"][-1], media.content_type))
                if media.content.startswith((b"<svg", b"<!doctype")):
                    assert media.content_type is None
                if item["text"].startswith("100000x100000"):
                    assert item["small"] is None
    assert types == {
        ("file.bin", None),
        ("file.png", "image/png"),
        ("file.gif", "image/gif"),
        ("file.wav", "audio/wav"),
    }


def test_a_file_has_no_other_name(catalog: registry.Catalog) -> None:
    for name in ("file.html", "file.svg", "small.png", "", "file.bin/x"):
        path = (*VERSION, "media", "train", "0", "~1", *name.split("/"))
        with pytest.raises(registry.errors.NotFoundError):
            answer(Visit(catalog=catalog, path=path))


@pytest.mark.parametrize("step", either(1_001, 10_001))
def test_words_are_found_in_a_million_classes(tmp_path: Path, step: int) -> None:
    """Every day in a tenth of them."""

    class ManyClasses(registry.DatasetBuilder):
        VERSION = "1.0.0"
        RELEASE_NOTES = {"1.0.0": "First"}

        def features(self) -> FeaturesDict:
            return FeaturesDict(
                {"label": ClassLabel(names=[f"class {number}" for number in range(step // 1000 * 10**5)])}
            )

        def splits(self) -> Any:
            return {"train": [(i, {"label": i * step}) for i in range(90)]}

    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.build(ManyClasses)
        visit = Visit(catalog=catalog, path=("datasets", "many_classes", "1.0.0", "records"), query={"q": "CLASS 7"})
        page = answer(visit)
        assert isinstance(page, Page)
        assert len(render(page, visit)[0]) < 50_000
        texts = [row["cells"][0]["text"] for row in page.values["rows"]]
        expected = [f"class {i * step}" for i in range(90) if str(i * step).startswith("7")]
        assert sorted(texts) == sorted(expected)


def test_words_are_found_in_texts_and_classes_of_any_letters(catalog: registry.Catalog) -> None:
    page = answer(Visit(catalog=catalog, path=(*VERSION, "records"), query={"q": "GNP.exe", "columns": "number"}))
    assert isinstance(page, Page)
    rows = catalog.dataset("hostile_records").read("train", STORED_ORDER).select(NAME, STEERING)
    expected = [i for i, row in enumerate(rows) if row[STEERING] == 1 or b"gnp.exe" in row[NAME]]
    assert [row["index"] for row in page.values["rows"]] == expected


class Heavy(registry.DatasetBuilder):
    """Rows with as much of everything as a page could show, and names of thousands of letters."""

    VERSION = "1.0.0"
    RELEASE_NOTES = {"1.0.0": "First"}

    def features(self) -> FeaturesDict:
        pictures = {f"{'p' * 3000}{i}": Sequence(Image(shape=(None, None, 3))) for i in range(8)}
        series = {f"series {i}": Sequence("float32") for i in range(30)}
        boxes = Sequence({"box": BBox(), "label": ClassLabel(names=["<" * 2000, "b"])})
        return FeaturesDict({"a": Image(shape=(None, None, 3)), "boxes": boxes, **pictures, **series})

    def splits(self) -> Any:
        picture, series = np.zeros((2, 2, 3), np.uint8), np.random.default_rng(0).normal(size=500).astype(np.float32)
        row = {name: [picture] * 6 for name in self.features() if name.startswith("p")}
        row |= {f"series {i}": series for i in range(30)}
        row |= {"a": picture, "boxes": [{"box": (0.123456, 0.234567, 0.9876543, 0.87654), "label": 0}] * 1000}
        return {"train": [(i, row) for i in range(55)]}


def test_heavy_rows_make_small_pages(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.build(Heavy)
        series = ",".join(f"series {i}" for i in range(30))
        for rest, query in [((), {}), (("train", "3"), {}), ((), {"columns": series}), ((), {"columns": "a,boxes"})]:
            visit = Visit(catalog=catalog, path=("datasets", "heavy", "1.0.0", "records", *rest), query=query)
            page = answer(visit)
            assert isinstance(page, Page)
            assert page.status == 200
            assert len(render(page, visit)[0].encode()) < MOST_BYTES
            assert len(json_of(page).encode()) < MOST_BYTES
