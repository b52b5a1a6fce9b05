"""The page of changes shows two versions side by side, and keeps hostile texts in their places."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from datetime import date, timedelta
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import registry
from registry.cli.main import run
from registry.display import TimeType, moment_text
from registry.features import ClassLabel, FeaturesDict, Image, Scalar, Sequence, Text
from registry.pages import Page, Visit, answer, json_of, render
from registry.pages.changes import changes_as_file, common_bins, different_texts, marked_words
from registry.statistics import FeatureStatistics, Moment
from registry.statistics.numbers import Numbers
from registry.statistics.rows import number_text

XSS = "</style></script><script>alert(1)</script><img src=x onerror=alert(1)>"


def rows(step: int) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    """Ten records; step 1 changes record 3, removes 9 and adds 10."""
    result = []
    for index in range(10 + step):
        picture = np.full((16, 20, 3), index * 10, np.uint8)
        text, price, label = f"the cat {index} sat on the mat {XSS}", float(index), index % 3
        if step and index == 9:
            continue
        if step and index == 3:
            picture[4:6, 7:10] = 255
            text, price, label = text.replace("sat", "slept"), 7.5, 2
        tags = ["a", "b"] if text.startswith("the cat 3 slept") else ["a"]
        row = {"image": picture, "text": text, "price": price, "label": label, "tags": tags}
        result.append((index, row))
    return {"train": result, "test": result[:3]}


class Changing(registry.DatasetBuilder):
    VERSION = "1.0.0"
    RELEASE_NOTES = {"1.0.0": XSS}
    STEP = 0

    def features(self) -> FeaturesDict:
        return FeaturesDict(
            {
                "image": Image(shape=(16, 20, 3), encoding_format="png"),
                "text": Text(),
                "price": Scalar("float32"),
                "label": ClassLabel(names=["red", XSS, "blue"]),
                "tags": Sequence(Text()),
            }
        )

    def splits(self) -> Any:
        return rows(self.STEP)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Catalog]:
    with registry.connect(tmp_path_factory.mktemp("changes") / "catalog.db", create=True) as catalog:
        catalog.build(Changing)
        catalog.build(type("Changing", (Changing,), {"VERSION": "2.0.0", "STEP": 1, "RELEASE_NOTES": {}}))
        for number in ("1.0.0", "2.0.0"):
            catalog.dataset(f"changing:{number}").compute_statistics()
        yield catalog


def page_of(
    catalog: registry.Catalog, *path: str, is_live: bool = True, most_records: int | None = None, **query: str
) -> tuple[Page, str]:
    path = ("datasets", "changing", *path)
    visit = Visit(catalog=catalog, path=path, is_live=is_live, most_records=most_records, query=query)
    page = answer(visit)
    assert isinstance(page, Page)
    return page, render(page, visit)[0]


@pytest.mark.parametrize("is_live", [True, False])
def test_a_version_is_compared_with_the_one_below(catalog: registry.Catalog, is_live: bool) -> None:
    page, html = page_of(catalog, "2.0.0", "changes", is_live=is_live)
    found = json.loads(json_of(page))["data"]["comparison"]
    assert (found["level"], found["smallest"], found["says"]) == ("major", "2.0.0", "major")
    train = next(split for split in found["records"] if split["split"] == "train")
    changed = [record["features"] for record in train["first"] if "image" in record["features"]]
    features = next(it for it in changed if it["image"]["num_differing"] == 6)
    assert features["image"]["num_pixels"] == 320
    assert all(url.startswith("data:image/png;base64,") for url in features["image"]["pictures"].values())
    assert ["old", "sat "] in features["text"]["words"]
    assert ["new", "slept "] in features["text"]["words"]
    assert (features["price"]["kind"], features["price"]["change"]) == ("number", "+4.5")
    assert features["label"] == {"old": "'red'", "new": "'blue'", "kind": "text"}
    assert html.count("<script") == 1
    assert "onerror=alert(1)>" not in html
    assert "differing pixels in red" in html
    assert "records/train/6/" in html
    assert "records/train/6/" not in page_of(catalog, "2.0.0", "changes", is_live=False, most_records=6)[1]


def test_values_of_whole_records_have_no_quotes(tmp_path: Path) -> None:
    features = {"label": ClassLabel(names=["red", "blue"])}
    rows = [{"city": city, "open": len(city) > 4, "label": "blue", "note": ""} for city in ("Rome", "Oslo", "Paris")]
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.add(rows[:2], "changing", number="1.0.0", features=features, key="city")
        catalog.add(rows[1:], "changing", number="2.0.0", features=features, key="city")
        page, html = page_of(catalog, "2.0.0", "changes")
    assert '<div class="muted">city Paris</div>' in html
    first = page.values["comparison"]["records"][0]["first"]
    values = {record["kind"]: record["values"] for record in first}
    assert values == {
        "removed": {"open": "false", "label": "blue", "note": "''"},
        "added": {"open": "true", "label": "blue", "note": "''"},
    }


def test_the_lowest_version_has_nothing_to_compare(catalog: registry.Catalog) -> None:
    page, html = page_of(catalog, "1.0.0", "changes")
    assert page.values["comparison"] is None
    assert "1.0.0 is the lowest version that can be read" in html


def test_any_other_version_may_be_compared(catalog: registry.Catalog) -> None:
    page, _ = page_of(catalog, "1.0.0", "changes", "2.0.0")
    found = page.values["comparison"]
    assert (str(found["old"]), str(found["new"]), found["says"]) == ("changing:2.0.0", "changing:1.0.0", None)


@pytest.mark.parametrize("rest", [("9.9.9",), ("x",), ("1.0.0", "2.0.0")])
def test_other_addresses_are_errors_of_the_registry(catalog: registry.Catalog, rest: tuple[str, ...]) -> None:
    with pytest.raises(registry.RegistryError):
        page_of(catalog, "2.0.0", "changes", *rest)


def test_statistics_are_drawn_in_common_bins(catalog: registry.Catalog) -> None:
    page, html = page_of(catalog, "2.0.0", "changes")
    rows = {row["feature"]: row for row in page.values["comparison"]["statistics"] if row["split"] == "train"}
    before, now = rows["price"]["bars"]
    assert (len(before), sum(before), len(now), sum(now)) == (24, 10, 24, 10)
    assert rows["label"]["bars"] == ([4, 3, 3], [2, 4, 4])
    assert rows["price"]["shift"] > 0
    assert "Statistics before and after" in html


def test_many_records_are_compared_only_on_request(catalog: registry.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("registry.pages.changes._AT_ONCE", 10)
    page, html = page_of(catalog, "2.0.0", "changes")
    assert page.values["comparison"]["unread"].startswith("11 may differ") or page.values["has_more"]
    assert 'href="./?records=1"' in html
    page, html = page_of(catalog, "2.0.0", "changes", records="1")
    assert not page.values["comparison"]["unread"]
    assert "Compare them here" not in html
    page, html = page_of(catalog, "2.0.0", "changes", is_live=False)
    assert page.values["comparison"]["unread"]
    assert "Compare them here" not in html


def test_missing_files_are_words_on_the_page(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.build(Changing)
        catalog.build(type("Changing", (Changing,), {"VERSION": "2.0.0", "STEP": 1, "RELEASE_NOTES": {}}))
        folder = catalog.dataset("changing:1.0.0").local_folder
        for file in Path(str(folder)).glob("*tfrecord*"):
            file.unlink()
        page, html = page_of(catalog, "2.0.0", "changes")
        assert page.values["comparison"]["unread"]
        assert "Records were not compared one by one" in html


def test_a_comparison_as_one_file_loads_and_links_nothing(catalog: registry.Catalog) -> None:
    old, new = catalog.dataset("changing:1.0.0"), catalog.dataset("changing:2.0.0")
    html = changes_as_file(old, new, catalog.diff(old, new, show=20))
    assert not re.findall(r"<(?:script|link|a|form|iframe)\b", html)
    assert set(re.findall(r'src="(.{11})', html)) == {"data:image/"}
    assert "style-src 'sha256-" in unescape(html)
    assert "--show" not in html
    assert html.count("<style>") == html.count("</style>") == 1
    assert len(html) < 2**21


def test_the_page_says_how_many_more_records_differ(catalog: registry.Catalog) -> None:
    old, new = catalog.dataset("changing:1.0.0"), catalog.dataset("changing:2.0.0")
    html = changes_as_file(old, new, catalog.diff(old, new, show=1))
    assert "and 2 more: <code>registry diff changing:1.0.0 changing:2.0.0 --show 3</code>" in html


def test_words_are_marked_around_the_first_difference() -> None:
    before = "same " * 1000 + "old" + " same" * 100_000
    marked = marked_words(before, before.replace("old", "new", 1))
    assert marked[0][1].startswith("…")
    assert [text.strip() for kind, text in marked if kind != "same"] == ["old", "new"]
    assert sum(len(text) for _, text in marked) < 21_000
    assert marked_words("", "a") == [("new", "a")]
    assert marked_words("a b c d", "a x c y") == [
        ("same", "a "),
        ("old", "b "),
        ("new", "x "),
        ("same", "c "),
        ("old", "d"),
        ("new", "y"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "marked"),
    [
        ("the cat sat", "the cat sat down", [("same", "the cat sat"), ("new", " down")]),
        ("a b\n", "a b c\n", [("same", "a b"), ("old", "\n"), ("new", " c\n")]),
        ("down it sat", "sat", [("old", "down it "), ("same", "sat")]),
        ("a b", "a  b", [("same", "a"), ("old", " "), ("new", "  "), ("same", "b")]),
        (" a", "a ", [("old", " "), ("same", "a"), ("new", " ")]),
    ],
)
def test_equal_words_are_the_same_before_any_white_space(old: str, new: str, marked: list[tuple[str, str]]) -> None:
    found = marked_words(old, new)
    assert found == marked
    assert "".join(text for kind, text in found if kind != "new") == old
    assert "".join(text for kind, text in found if kind != "old") == new


def test_the_command_writes_one_file(
    catalog: registry.Catalog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "changes.html"
    command = ["diff", "--catalog", catalog.url, "changing:1.0.0", "changing:2.0.0", "--html", str(file)]
    assert run(command) == 0
    assert "changing:1.0.0" in file.read_text("utf-8")
    file.write_text("other")
    assert run(command) != 0
    assert f"{file} already exists" in capsys.readouterr().err
    assert run([*command, "--force"]) == 0
    assert file.read_text("utf-8").startswith("<!doctype html>")


class Odd(registry.DatasetBuilder):
    """Values at the ends of their types."""

    VERSION = "1.0.0"
    FACTOR = 1

    def features(self) -> FeaturesDict:
        return FeaturesDict(
            {"big": Scalar("float32"), "count": Scalar("int64"), "flag": Scalar("bool"), "deep": {"a/b": Text()}}
        )

    def splits(self) -> Any:
        values = [3.3e38, -3.3e38, 0.0, 1e-45, float("nan"), float("inf")]
        row = {"count": (2**63 - 1) * self.FACTOR, "flag": self.FACTOR > 0, "deep": {"a/b": f"x {self.FACTOR}"}}
        return {"train": [(at, {"big": value * self.FACTOR, **row}) for at, value in enumerate(values)]}


def test_values_at_the_ends_of_their_types_are_compared(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.build(Odd)
        catalog.build(type("Odd", (Odd,), {"VERSION": "2.0.0", "FACTOR": -1}))
        catalog.build(type("Odd", (Odd,), {"VERSION": "2.0.1", "FACTOR": -1, "__doc__": "The same."}))
        for number in ("1.0.0", "2.0.0"):
            catalog.dataset(f"odd:{number}").compute_statistics()
        visit = Visit(catalog=catalog, path=("datasets", "odd", "2.0.0", "changes"))
        page = answer(visit)
        assert isinstance(page, Page)
        render(page, visit)
        found = json.loads(json_of(page))["data"]["comparison"]
        features = found["records"][0]["first"][0]["features"]
        assert features["count"]["change"] == "-18,446,744,073,709,551,614"
        assert features["deep/a\\/b"]["words"] == [["same", "x "], ["old", "1"], ["new", "-1"]]
        assert features["flag"] == {"old": "true", "new": "false", "kind": "text"}
        visit = Visit(catalog=catalog, path=("datasets", "odd", "2.0.1", "changes"))
        page = answer(visit)
        assert isinstance(page, Page)
        assert page.values["comparison"]["level"] in ("none", "patch")
        assert "Records of" not in render(page, visit)[0]


def test_a_limit_of_bytes_keeps_records_unread(catalog: registry.Catalog) -> None:
    old, new = catalog.dataset("changing:1.0.0"), catalog.dataset("changing:2.0.0")
    assert catalog.diff(old, new, most_bytes=2**20) == catalog.diff(old, new)
    limited = catalog.diff(old, new, most_bytes=10)
    assert limited.records == ()
    assert limited.unread == "10 may differ, which takes a while: registry diff changing:1.0.0 changing:2.0.0"
    assert limited.changes == catalog.diff(old, new).changes


def _of_values(values: list[Any], dtype: str) -> FeatureStatistics:
    numbers = Numbers(dtype)
    numbers.add(np.array(values, dtype))
    statistics = numbers.end()
    described = {option.name: getattr(statistics, option.name) for option in fields(statistics)}
    return FeatureStatistics(kind="number", dtype=dtype, **described)


@pytest.mark.parametrize(
    ("dtype", "old", "new", "bars"),
    [
        ("bool", [True] * 3 + [False], [True] * 5, ([1, 3], [0, 5])),
        ("bool", [True], [False], ([0, 1], [1, 0])),
        ("int64", [1, 2, 2, 5], [2, 7], ([1, 2, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0, 1])),
        ("int64", [10**6] * 2 + [0] * 3, [10**6] * 4, ([3, 2], [0, 4])),
        ("float32", [0.5] * 2 + [2.0] * 3, [0.5] * 4, ([2, 3], [4, 0])),
    ],
)
def test_bars_are_exact_where_the_counts_of_values_are_known(
    dtype: str, old: list[Any], new: list[Any], bars: tuple[list[int], list[int]]
) -> None:
    assert common_bins(_of_values(old, dtype), _of_values(new, dtype)) == bars


def test_bars_of_all_splits_are_over_one_range() -> None:
    sides = [_of_values(list(range(first, first + 500)), "int64") for first in (0, 100, 500, 1000)]
    bars = common_bins(*sides)
    assert [len(counts) for counts in bars] == [24] * 4  # 62.5 values each
    assert [sum(counts) for counts in bars] == [500] * 4
    assert [[place for place, count in enumerate(counts) if count] for counts in bars] == [
        list(range(8)),
        list(range(1, 10)),
        list(range(8, 16)),
        list(range(16, 24)),
    ]
    nothing = _of_values([], "int64")
    assert common_bins(sides[0], nothing)[1] == [0] * len(common_bins(sides[0], nothing)[0])


def test_bars_of_the_same_bins_are_those_of_the_statistics() -> None:
    old, new = _of_values(list(range(101)), "int64"), _of_values([0, *range(101)], "int64")
    before, after = common_bins(old, new)
    assert (sum(before), sum(after), after[0] - before[0], before[1:]) == (101, 102, 1, after[1:])


def test_different_means_are_written_differently() -> None:
    plain = (None, None)
    times = TimeType("date", "D"), TimeType("duration", "s")
    day, second = (Moment(time.kind, partial(moment_text, time=time)) for time in times)
    assert different_texts([1234567.1, 1234567.2], plain) == ["1,234,567.1", "1,234,567.2"]
    assert different_texts([11.85, 11.85], plain) == ["11.85", "11.85"]
    assert different_texts([0.0, 5e-324], plain) == ["0", "4.941e-324"]
    assert different_texts([18876.2, 18877.9], [day, day]) == ["2021-09-06", "2021-09-07"]
    assert different_texts([18876.2, 18876.9], [day, day]) == ["2021-09-06", "slightly more"]
    assert different_texts([90.5, 90.25], [second, second]) == ["00:01:30", "slightly less"]
    assert different_texts([2.0**80, 2.0**80 * 1.00001], [day, day]) == ["1.20893e+24", "1.20894e+24"]


def test_long_durations_and_far_years_are_not_cut() -> None:
    types = TimeType("duration", "ms"), TimeType("timestamp", "s"), TimeType("timestamp", "us", "UTC")
    duration, far, zoned = (Moment(time.kind, partial(moment_text, time=time)) for time in types)
    day = 86_400_000
    assert number_text(1_234_567 * day + 3_723_500, duration) == "1,234,567 days 01:02:03"
    assert number_text(-1_000 * day - 5_000, duration) == "-1,000 days 00:00:05"
    assert number_text(1_500, duration) == "00:00:01.5"
    assert number_text(327_403_382_400, far) == "12345-01-01 00:00:00"
    assert number_text(1_704_715_380_120_000, zoned) == "2024-01-08 12:03:00Z"


def test_statistics_of_dates_and_durations_are_dates_and_durations(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        for number in (1, 2):
            columns = {
                "day": [date(2021, 9, number)] * 4,
                "stay": [timedelta(hours=number)] * 4,
                "was_fun": [at < number for at in range(4)],
            }
            catalog.add(pa.table(columns), "changing", number=f"{number}.0.0")
            catalog.dataset(f"changing:{number}.0.0").compute_statistics()
        page, html = page_of(catalog, "2.0.0", "changes")
        rows = {row["feature"]: row for row in page.values["comparison"]["statistics"]}
        assert rows["day"]["mean_texts"] == ["2021-09-01", "2021-09-02"]
        assert rows["stay"]["mean_texts"] == ["01:00:00", "02:00:00"]
        assert rows["was_fun"]["bars"] == ([3, 1], [2, 2])
        assert "2021-09-01 → 2021-09-02" in html
