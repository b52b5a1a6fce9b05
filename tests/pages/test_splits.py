"""The page of splits: the same values as ``registry resolve --why``, errors beside the form, and parts by form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.prepared_samples import animals, prepare

import registry
from registry.api import Catalog
from registry.errors import NotFoundError
from registry.pages import Page, Visit, answer, json_of, render

XSS = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    folder = tmp_path_factory.mktemp("splits")
    splits = {"train": animals(101), "test": animals(40), "none": []}
    with registry.connect(folder / "catalog.db", data_dir=folder / "data") as opened:
        opened.publish(prepare(folder / "animals", splits=splits, shards=4))
        opened.publish(prepare(folder / "plain", splits={"train": animals(7)}, name="plain"))
        yield opened


def page_of(
    catalog: Catalog, *rest: str, name: str = "animals", is_live: bool = True, **query: str
) -> tuple[Page, str]:
    path = ("datasets", name, "1.0.0", "splits", *rest)
    visit = Visit(catalog=catalog, path=path, query=query, is_live=is_live)
    page = answer(visit)
    assert isinstance(page, Page)
    json.loads(json_of(page))
    return page, render(page, visit)[0]


def test_an_expression_is_explained_as_resolve_explains_it(catalog: Catalog) -> None:
    page, html = page_of(catalog, split="train[49%:50%]+test[:1]")
    plan, explanation = page.values["plan"], catalog.dataset("animals").explain("train[49%:50%]+test[:1]")
    assert page.status == 200
    assert [line for term in plan["terms"] for line in term["why"]] == [
        line for term in explanation.terms for line in term.why
    ]
    assert "50% of 101 records is 50.5, and a half goes up" in html
    assert plan["num_examples"] == 3
    assert [file["take"] for file in plan["files"]] == [file.take for file in explanation.plan]
    command = "registry pin create animals:1.0.0 'train[49%:50%]+test[:1]' -o dataset.lock.yaml"
    assert plan["code"]["Pin"].startswith(command)


def test_the_bar_of_a_split_shows_what_is_selected_and_its_shards(catalog: Catalog) -> None:
    rows = {row["name"]: row for row in page_of(catalog, split="test[:50%]")[0].values["splits"]}
    assert rows["test"]["selected"] == [{"start": 0.0, "width": 0.5}]
    assert rows["test"]["shards"] == [0.25, 0.5, 0.75]
    assert rows["train"]["selected"] == rows["none"]["selected"] == []


def test_both_slicing_rules_are_shown_where_they_differ(catalog: Catalog) -> None:
    values = page_of(catalog, split="train[-33%:]")[0].values["plan"]
    by_rule = {rule["slicing"]: rule for rule in values["rules"]}
    for slicing, rule in by_rule.items():
        assert rule["num_examples"] == catalog.dataset("animals").resolve("train[-33%:]", slicing=slicing).num_examples
    page = page_of(catalog, split="train[-0.5shard:]")[0]
    assert page.status == 400
    assert page_of(catalog, split="train[:20%]")[0].values["plan"]["rules_differ"] is False
    with_half = page_of(catalog, split="train[:50%]")[0].values["plan"]
    assert [rule["num_examples"] for rule in with_half["rules"]] == [51, 50]
    assert with_half["rules_differ"] is True


def test_a_rule_that_refuses_an_expression_says_why(tmp_path: Path) -> None:
    prepare(tmp_path / "data/animals/1.0.0", splits={"train": animals(10)}, shards=2)
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as opened:
        opened.import_tfds(tmp_path / "data")
        page, html = page_of(opened, split="train[80%:20%]")
    assert page.values["slicing"] == "tfds-4"
    refused, read = page.values["plan"]["rules"]
    assert (refused["num_examples"], read["num_examples"]) == (None, 0)
    assert refused["refusal"].startswith("train[80%:20%] is reversed")
    assert "The rules differ for this expression." in html


def test_records_in_both_expressions_are_marked(catalog: Catalog) -> None:
    page, html = page_of(catalog, split="test[:75%]", other="test[50%:]")
    relation = page.values["relation"]
    assert (relation["kind"], relation["is_disjoint"]) == ("overlapping", False)
    assert [(it["name"], it["num_examples"]) for it in relation["sets"]] == [
        ("common", 10), ("only_first", 20), ("only_second", 10), ("missing", 0),
    ]  # fmt: skip
    (row,) = [row for row in page.values["splits"] if row["name"] == "test"]
    assert row["twice"] == [{"start": 0.5, "width": 0.25}]
    assert 'class="twice"' in html
    disjoint = page_of(catalog, split="test[:50%]", other="test[50%:]")
    assert 'class="twice"' not in disjoint[1]
    again = page_of(catalog, split="test+test[:1]")
    assert again[0].values["plan"]["overlaps"] == [{"split": "test", "start": 0, "stop": 1}]
    assert "It reads some records more than once: records test 0..1." in again[1]


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ({"split": "train[:1O%]"}, "split", "    train[:1O%]\n            ^"),
        ({"split": "trian"}, "split", "trian"),
        ({"split": "train[:999]"}, "split", "train[:999] is out of range"),
        ({"split": "train", "other": XSS}, "other", XSS),
        ({"split": "+".join(["train"] * 1000)}, "split", "must not exceed 2,000 characters"),
        ({"n": "0"}, "n", "expected a number of parts from 1 to 50, found '0'"),
        ({"n": "٣x"}, "n", "found '٣x'"),
        ({"n": "3", "unit": "miles"}, "n", "unknown unit 'miles'"),
        ({"n": "3", "drop_remainder": "yes"}, "n", "drop_remainder requires unit='abs' or unit='shard'"),
        ({"n": "3", "of": "train[:10]"}, "n", "train[:10] is already a slice"),
        ({"n": "1", "by": "fold"}, "n", "2"),
    ],
)
def test_a_mistake_is_explained_beside_its_field(
    catalog: Catalog, query: dict[str, str], field: str, message: str
) -> None:
    page, html = page_of(catalog, **query)
    assert page.status == 400
    assert message in page.values["errors"][field]["message"]
    assert f'aria-describedby="error-{field}"' in html
    assert XSS not in html


def test_parts_and_folds_name_their_records(catalog: Catalog) -> None:
    parts = page_of(catalog, n="3")[0].values["parts"]
    assert parts["rows"] == [
        [{"expression": "train[0%:33%]", "num_examples": 33}],
        [{"expression": "train[33%:67%]", "num_examples": 35}],
        [{"expression": "train[67%:100%]", "num_examples": 33}],
    ]
    exact = page_of(catalog, n="2", of="train+test", unit="abs", drop_remainder="yes")[0].values["parts"]
    assert [row[0]["num_examples"] for row in exact["rows"]] == [70, 70]
    page = page_of(catalog, n="4", by="fold", unit="shard")[0]
    folds: dict[str, Any] = page.values["parts"]
    assert folds["heads"] == ["validation", "train"]
    assert all(sum(cell["num_examples"] for cell in row) == 101 for row in folds["rows"])
    namespace: dict[str, Any] = {}
    exec(folds["code"].replace("\n\n", "\n\nresult = "), namespace)  # noqa: S102 (our own code, as people copy it)
    assert [str(it.validation) for it in namespace["result"]] == [row[0]["expression"] for row in folds["rows"]]


@pytest.mark.parametrize("is_live", [True, False])
def test_without_a_query_there_are_the_splits_and_examples(catalog: Catalog, is_live: bool) -> None:
    page, html = page_of(catalog, is_live=is_live)
    examples = {it["expression"]: it["num_examples"] for it in page.values["examples"]}
    assert (examples["train[:80%]"], examples["train[80%:]"], examples["all"]) == (81, 20, 141)
    assert [row["name"] for row in page.values["splits"]] == ["train", "test", "none"]
    assert ("<form" in html) is is_live
    small = page_of(catalog, name="plain", is_live=is_live)[0].values["examples"]
    assert "train[:10]" not in {it["expression"] for it in small}


def test_there_is_no_page_below_it(catalog: Catalog) -> None:
    with pytest.raises(NotFoundError, match="there is no page 'more' of splits"):
        page_of(catalog, "more")


def test_the_page_of_a_large_layout_is_bounded(tmp_path: Path) -> None:
    splits = {f"s{place}": animals(2) for place in range(60)}
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as opened:
        opened.publish(prepare(tmp_path / "many", splits=splits, name="many"))
        page = page_of(opened, name="many", split="s59")[0]
        assert [row["name"] for row in page.values["splits"]][:2] == ["s59", "s0"]
        assert len(page.values["splits"]) == 50
        every = page_of(opened, name="many", split="all+all+all+all")[0].values["plan"]
        assert (len(every["files"]), every["num_files"], len(every["ranges"])) == (200, 240, 200)
