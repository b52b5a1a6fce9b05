"""What a notebook shows of the registry's objects: escaped, bounded, readable where files are missing."""

from __future__ import annotations

import re
import shutil
from datetime import date
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import registry
from registry.errors import FeatureNotFoundError, SplitNotFoundError
from registry.features import ClassLabel, FeaturesDict, Image, Text
from registry.markup import MOST_BYTES, Markup, bars, escape, panel, table
from registry.statistics import Classes, FeatureStatistics, SplitStatistics, Statistics

HOSTILE = "</td></table><script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x1b[31m\u202e&amp;"


class Tags(HTMLParser):
    """The elements of a page. Everything that a page may hold is listed here."""

    ALLOWED = {"div", "table", "thead", "tbody", "tr", "th", "td", "br", "img", "svg", "path"}
    ATTRIBUTES = {"style", "title", "alt", "src", "width", "height", "fill", "d"}

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in self.ALLOWED
        for name, value in attrs:
            assert name in self.ATTRIBUTES
            assert name != "src" or re.fullmatch(r"data:image/png;base64,[A-Za-z0-9+/=]+", value)
        self.names.append(tag)
        if tag not in ("br", "img", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "path":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


class Hostile(registry.DatasetBuilder):
    """</div><script>alert(0)</script>"""

    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict(
            {
                "<b>name": Text(),
                "label": ClassLabel(names=[HOSTILE, "b"]),
                "photo": Image(shape=(None, None, 3)),
                "long": Text(),
            }
        )

    def splits(self) -> Any:
        photo = np.random.default_rng(0).integers(0, 256, (200, 300, 3), dtype=np.uint8)
        row = {"<b>name": HOSTILE, "label": 0, "photo": photo, "long": "é" * 10**6}
        return {"train": [(i, row | {"photo": np.roll(photo, i)}) for i in range(8)]}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with registry.connect(tmp_path_factory.mktemp("notebook") / "catalog.db") as catalog:
        catalog.build(Hostile)
        catalog.build(type("Hostile", (Hostile,), {"VERSION": "2.0.0", "splits": changed}))
        yield catalog


def changed(self: Hostile) -> Any:
    return {"train": [(key, row | {"label": 1}) for key, row in Hostile.splits(self)["train"]]}


def objects(catalog: registry.Catalog) -> dict[str, Any]:
    dataset = catalog.dataset("hostile:1.0.0")
    pins = dataset.pin({"a<b": "train[:2]"})
    return {
        "Catalog": catalog,
        "Dataset": dataset,
        "Slice": dataset.slice_of("train"),
        "Reader": dataset.read("train"),
        "Plan": dataset.resolve("train"),
        "Explanation": dataset.explain("train[:50%]"),
        "VersionDiff": catalog.diff("hostile:1.0.0", "hostile:2.0.0"),
        "PinFile": pins,
        "Pin": pins["a<b"],
        "Statistics": dataset.statistics,
        "SplitStatistics": dataset.statistics["train"],
        "AddReport": catalog.add([{"a": 1}], "added", dry_run=True),
    }


def test_every_object_is_escaped_bounded_and_has_a_short_text(catalog: Any) -> None:
    for name, value in objects(catalog).items():
        page = value._repr_html_() if name != "SplitStatistics" else ""
        assert len(page.encode()) <= MOST_BYTES
        tags = Tags(page)
        assert "script" not in tags.names
        assert "\x1b" not in page
        assert "\u202e" not in page
        assert len(repr(value)) < 300, name
        assert 0 < len(str(value)) < 3000, name
    shown = Tags(catalog.dataset("hostile:1.0.0")._repr_html_())
    assert shown.names.count("img") >= 3
    assert HOSTILE.partition("\x1b")[0] in shown.text


def test_a_reader_does_not_advance_and_reads_few_records(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = catalog.dataset("hostile").read("train")
    examples = iter(reader)
    next(examples)
    state, restored = reader.state(), []
    monkeypatch.setattr(Image, "restore", lambda *_: restored.append(1) or np.zeros((4, 4, 3), np.uint8))
    reader._repr_html_()
    assert (reader.state(), len(restored)) == (state, 5)


def test_where_files_are_missing_it_says_so(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.build("digits")
        dataset = catalog.dataset("digits")
        reader = dataset.read("train")
        shutil.rmtree(tmp_path / "datasets")
        for value in (dataset, reader, dataset.slice_of("train")):
            assert "cannot be read here" in Tags(value._repr_html_()).text


def test_thousands_of_columns_and_a_million_classes_are_bounded() -> None:
    classes = Classes(num_classes=10**6, unused=tuple(map(str, range(10**5))), counts=tuple(range(1000)))
    feature = FeatureStatistics(kind="label", dtype="int64", count=10**9, classes=classes)
    split = SplitStatistics(num_examples=1, features={f"feature {i} {HOSTILE}" * 20: feature for i in range(1_000)})
    page = Statistics(splits={f"split {i}": split for i in range(10)})._repr_html_()
    assert len(page.encode()) <= MOST_BYTES
    Tags(page)
    assert Tags(page).names.count("tr") > 10
    page = panel(HOSTILE * 10_000, table(list(range(10**5)), [[HOSTILE * 1000] * 10**5] * 100), HOSTILE * 10**6)
    assert len(page.encode()) <= MOST_BYTES
    Tags(page)


def test_a_table_that_is_too_long_loses_its_last_rows_only() -> None:
    page = panel(
        "title", "above", table(("n", "text"), [(number, "é" * 200) for number in range(100, 300)] * 9), "below"
    )
    assert Tags(page).names.count("tr") == 21
    rows = [[f"{number}é" * 60 for _ in range(20)] for number in range(100, 120)]
    page = panel("title", "above", table(range(20), rows), "below")
    assert 40_000 < len(page.encode()) <= MOST_BYTES
    tags = Tags(page)
    assert "104é" in tags.text
    assert "119é" not in tags.text
    assert tags.text.endswith("The rest is too long to be shown here.")
    assert "below" not in tags.text
    page = panel("title", table(("x",), [(Markup("<br>" * MOST_BYTES),)]))
    assert Tags(page).text == "titleThe rest is too long to be shown here."


texts = st.text() | st.text(alphabet="<>/b \"'&;=") | st.sampled_from([HOSTILE, "<b>", "</div>"])


@given(texts, st.lists(st.lists(texts | st.integers() | st.none(), min_size=2, max_size=2)))
def test_no_text_becomes_an_element(title: str, rows: list[list[Any]]) -> None:
    tags = Tags(panel(title, title, table((title, "x"), rows)))
    assert set(tags.names) <= {"div", "table", "thead", "tbody", "tr", "th", "td", "br"}


@given(st.lists(st.integers(0, 2**63), max_size=200))
def test_bars_are_as_high_as_their_counts(counts: list[int]) -> None:
    heights = [int(height) for height in re.findall(r"v-(\d+)h4", bars(counts, most=200))]
    assert len(heights) == sum(count > 0 for count in counts)
    assert max(heights, default=20) == 20


def test_markup_is_not_escaped_twice() -> None:
    assert escape(escape("<")) == "&lt;"
    assert escape(Markup("<br>")) == "<br>"


def test_statistics_of_dates_and_times_are_shown_as_dates_and_times(tmp_path: Path) -> None:
    days = pa.table({"on": [date(2024, 1, 8), date(2024, 1, 10)], "took": pa.array([90, 150], pa.duration("s"))})
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.add(days, "days")
        text = Tags(catalog.dataset("days").statistics._repr_html_()).text
        assert text == Tags(catalog.dataset("days").compute_statistics()._repr_html_()).text
    assert "2024-01-082024-01-092024-01-10" in text  # min, mean, max
    assert "00:01:3000:02:0000:02:30" in text
    assert "19,7" not in text


def test_statistics_are_shown_as_the_command_shows_them(tmp_path: Path) -> None:
    pets = FeaturesDict({"pet": ClassLabel(names=["cat", "dog"]), "is_old": np.bool_, "name": Text()})
    rows = [{"pet": number % 2, "is_old": number % 4 == 0, "name": "a" * (number % 5)} for number in range(40)]
    splits = {"train": rows, "test": [row for row in rows if row["pet"] == 0][:9]}
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path) as catalog:
        catalog.add(splits, "pets", features=pets)
        statistics = catalog.dataset("pets").statistics
    cells = Tags(statistics._repr_html_()).text
    assert "pettrain" in cells
    assert "label4000" not in cells  # the numbers of classes have no mean
    assert "is_oldtrainbool400false0.25true2" in cells
    assert "nametraintext400024" in cells  # of texts, the lengths
    assert "lacks dog" in cells
    with pytest.raises(FeatureNotFoundError) as caught:
        statistics["train"]["pett"]
    assert caught.value.message == "no feature 'pett' in the statistics"
    assert caught.value.hint == "Did you mean 'pet'? There are: is_old, name, pet."
    with pytest.raises(SplitNotFoundError, match="no split 'tran' in the statistics") as split:
        statistics["tran"]
    assert split.value.hint == "Did you mean 'train'? There are: train, test."
    assert "tran" not in statistics
