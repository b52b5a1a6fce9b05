"""``registry head``, and the options of ``read`` that name and describe: values as people read them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.terminals import drawn_on_terminal

import registry
from registry import Reader
from registry.display import converter_of, text_of
from registry.display.values import TimeType
from registry.features import Audio, FeaturesDict, Image, Sequence

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_columns_have_the_order_of_their_source_and_lists_their_nulls(cli: Cli) -> None:
    table = pa.table({"when": [[date(1960, 2, 29), None], []], "box": [[{"area": 1, "note": None}, None], []]})
    with registry.connect() as catalog:
        catalog.add(table, "lists")
    _, _, head, *rows = cli("head", "lists").out.splitlines()
    assert head.split() == ["when", "box"]
    assert sorted(" ".join(row.split()) for row in rows) == [
        "[1960-02-29, null] [{area: 1, note: null}, null]",
        "[] []",
    ]
    rows = [json.loads(row) for row in cli("read", "lists", "train", "--names").out.splitlines()]
    assert {"box": {"area": [1, None], "note": [None, None]}, "when": ["1960-02-29", None]} in rows


def test_lists_of_structs_are_lists_of_dicts_at_every_depth(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    step = pa.struct([("at", pa.timestamp("s", "UTC")), ("parts", pa.list_(pa.struct([("k", pa.int64())])))])
    steps = [{"at": 0, "parts": [{"k": 1}, {"k": 2}]}, {"at": 86400, "parts": []}]
    table = pa.table(
        {
            "steps": pa.array([steps, [], None], pa.list_(step)),
            "inner": pa.array([[[{"k": 1}], []], [], [[{"k": 2}, {"k": 3}]]], pa.list_(step.field(1).type)),
            "in": pa.array([{"x": [{"k": 1}]}, {"x": None}, {"x": []}], pa.struct([("x", step.field(1).type)])),
        }
    )
    with registry.connect() as catalog:
        catalog.add(table, "deep")
        page = catalog.dataset("deep").read("train")._repr_html_()
    rows = [
        {
            "steps": "[{at: 1970-01-01 00:00:00Z, parts: [{k: 1}, {k: 2}]}, {at: 1970-01-02 00:00:00Z, parts: []}]",
            "inner": "[[{k: 1}], []]",
            "in": "{x: [{k: 1}]}",
        },
        {"steps": "[]", "inner": "[]", "in": "{x: null}"},
        {"steps": "null", "inner": "[[{k: 2}, {k: 3}]]", "in": "{x: []}"},
    ]
    assert all(f">{text}<" in page for row in rows for text in row.values())
    for name in rows[0]:
        _, _, _, *lines = cli("head", "deep", "--columns", name).out.splitlines()
        assert sorted(lines) == sorted(row[name] for row in rows)


def test_long_lists_of_structs_are_converted_only_as_far_as_they_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    features = FeaturesDict({"x": Sequence({"at": "int64"})})
    converted: list[int] = []
    monkeypatch.setattr("registry.display.values.moment_text", lambda value, *_, **__: str(converted.append(value)))
    convert = converter_of(features, {"x/at": TimeType("date", "D")}, objects=True)
    assert convert is not None
    assert text_of(convert({"x": {"at": np.arange(1000)}})["x"]).endswith("… 1,000 in all]")
    assert len(converted) == 6


def test_lists_of_different_lengths_stay_as_they_are() -> None:
    convert = converter_of(FeaturesDict({"x": Sequence({"a": "int64", "b": "int64"})}), {}, objects=True)
    assert convert is not None
    assert text_of(convert({"x": {"a": np.arange(2), "b": np.arange(1)}})) == "{x: {a: [0, 1], b: [0]}}"


def test_names_of_features_cannot_write_to_the_terminal(cli: Cli) -> None:
    with registry.connect() as catalog:
        catalog.add([{"\x1b]0;owned\x07": 1, "two\nlines": 2, "\u202e": 3}], "evil")
    _, _, head, row = cli("head", "evil").out.splitlines()
    assert (head.split(), row.split()) == (["�]0;owned�", "two", "lines", "�"], ["1", "2", "3"])


def test_columns_that_are_not_named_are_not_decoded(zoo: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(Image, "restore", refuse)
    monkeypatch.setattr(Audio, "restore", refuse)
    assert zoo("read", "zoo", "train", "--columns", "label", "--pixels").code == 0
    assert zoo("read", "zoo", "train", "--columns", "label,photo").code == 0
    assert zoo("head", "zoo", "--columns", "label,photo").code == 0


def test_head_decodes_the_columns_that_it_shows(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[list[str]] = []
    read = Reader.files_as_bytes
    monkeypatch.setattr(Reader, "files_as_bytes", lambda self: [decoded.append(list(self.features)), read(self)][1])
    columns = [f"c{number:02}" for number in range(50)]
    with registry.connect() as catalog:
        catalog.add(pa.table({name: [1] for name in [*columns, "a, b", "last"]}), "wide")
    assert cli("head", "wide").out.splitlines()[-1] == "and 2 more columns: --columns '\"a, b\"'"
    assert len(cli("head", "wide", "--format", "json").json()["data"]["examples"][0]) == 52
    assert [*map(len, decoded)] == [50, 52]
    assert decoded[0] == columns


@pytest.mark.parametrize(
    ("variables", "sign"),
    [
        ({"TERM": "xterm-kitty"}, b"\x1b_Ga=T,f=100"),
        ({"TERM": "xterm", "TERM_PROGRAM": "iTerm.app"}, b"\x1b]1337;File=inline=1;"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "\x1b[38;2;0;99;200;48;2;0;99;200m▀".encode()),
    ],
)
def test_a_terminal_draws_the_images(zoo: Cli, variables: dict[str, str], sign: bytes) -> None:
    command = [sys.executable, "-m", "registry", "head", "zoo", "--columns", "photo"]
    environment = {key: value for key, value in os.environ.items() if key not in ("TMUX", "COLORTERM", "TERM_PROGRAM")}
    assert sign in drawn_on_terminal(command, "stdout", env=environment | variables)
