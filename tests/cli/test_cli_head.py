"""``registry head``, and the options of ``read`` that name and describe: values as people read them."""

from __future__ import annotations

import json
import os
import pty
import re
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support import warm_python

import registry
from registry import DatasetBuilder, Reader
from registry.features import Audio, ClassLabel, FeaturesDict, Image, Sequence, Tensor, Text

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


class _Photo:
    """Equals the description of a photo: the size of the file does not matter here."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and re.fullmatch(r"30x20 px RGB png, \d{3} B", other) is not None

    __hash__ = None  # type: ignore[assignment]


PHOTO = _Photo()


class Zoo(DatasetBuilder):
    """Animals."""

    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict(
            {
                "photo": Image(shape=(None, None, 3)),
                "label": ClassLabel(names=["cat", "数据集"]),
                "boxes": Sequence({"label": ClassLabel(names=["car", "bus"]), "area": "float32"}),
                "born": Tensor(shape=(), dtype="int32", description="date32[day]: days since 1970-01-01."),
                "call": Audio(sample_rate=8000, dtype="int16"),
                "note": Text(),
            }
        )

    def splits(self) -> Any:
        def rows(count: int) -> Any:
            for i in range(count):
                yield (
                    i,
                    {
                        "photo": np.full((20, 30, 3), (i * 40, 99, 200), np.uint8),
                        "label": i % 2,
                        "boxes": [{"label": j % 2, "area": 0.5} for j in range(i)],
                        "born": 19730 + i,
                        "call": np.zeros(4000, np.int16),
                        "note": "\x1b]0;owned\x07 \x9b31m\u202e" + "long " * 100,
                    },
                )

        return {"test": rows(2), "train": rows(6)}


@pytest.fixture
def zoo(cli: Cli) -> Cli:
    with registry.connect() as catalog:
        catalog.build(Zoo)
    return cli


def test_rows_have_names_dates_and_descriptions(zoo: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = zoo("head", "zoo", "train", "-n", "9").out
    assert out.startswith("zoo:1.0.0 train: 6 of 6 rows\n\n")
    (row,) = [part for part in out.split("\n\n")[1:] if "2024-01-10" in part]
    fields = dict(line.split(maxsplit=1) for line in row.splitlines())
    assert fields == {
        "born": "2024-01-10",
        "boxes": "{area: [0.5, 0.5], label: [car, bus]}",
        "call": "0.5 s, 8,000 Hz, 4,000 samples",
        "label": "cat",
        "note": "�]0;owned� �31m�long long long long long long long l…",
        "photo": PHOTO,
    }
    assert all(letter.isprintable() or letter == "\n" for letter in out)


def test_columns_have_the_order_of_their_source_and_lists_their_nulls(cli: Cli) -> None:
    table = pa.table({"when": [[date(1960, 2, 29), None], []], "box": [[{"area": 1, "note": None}, None], []]})
    with registry.connect() as catalog:
        catalog.add(table, "lists")
    _, _, head, *rows = cli("head", "lists").out.splitlines()
    assert head.split() == ["when", "box"]
    assert sorted(" ".join(row.split()) for row in rows) == [
        "[1960-02-29, null] {area: [1, null], note: [null, null]}",
        "[] {area: [], note: []}",
    ]
    rows = [json.loads(row) for row in cli("read", "lists", "train", "--names").out.splitlines()]
    assert {"box": {"area": [1, None], "note": [None, None]}, "when": ["1960-02-29", None]} in rows


def test_names_of_features_cannot_write_to_the_terminal(cli: Cli) -> None:
    with registry.connect() as catalog:
        catalog.add([{"\x1b]0;owned\x07": 1, "two\nlines": 2, "\u202e": 3}], "evil")
    _, _, head, row = cli("head", "evil").out.splitlines()
    assert (head.split(), row.split()) == (["�]0;owned�", "two", "lines", "�"], ["1", "2", "3"])


def test_a_table_fits_the_terminal(zoo: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (40, 60, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        head, *rows = zoo("head", "zoo", "train[:2]", "--columns", "note,born,label").out.splitlines()[2:]
        assert head.split() == ["note", "born", "label"]
        assert max(len(row) + sum(map(row.count, "数据集")) for row in rows) in (columns, columns - 1)


def test_a_row_of_many_lines_names_the_columns_with_an_empty_text(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    with registry.connect() as catalog:
        catalog.add([{"数据": "", **{f"column_{place}": place for place in range(9)}}], "wide")
    lines = cli("head", "wide").out.splitlines()[2:]
    assert lines[:2] == ["数据", "column_0  0"]


def test_without_a_split_the_rows_are_those_of_train(zoo: Cli, workspace: Path) -> None:
    out = zoo("head", "zoo", "-n", "1", "--columns", "label").out
    assert out.splitlines()[0] == "zoo:1.0.0 train: 1 of 6 rows"
    zoo("pin", "create", "zoo", "test[:1]", "-o", str(workspace / "zoo.lock.yaml"))
    with registry.locked(workspace / "zoo.lock.yaml"):
        assert zoo("head", "zoo", "--columns", "born").out.splitlines()[0] == "zoo:1.0.0 test[:1]: 1 of 1 rows"


def test_json_has_names_and_iso_dates(zoo: Cli) -> None:
    data = zoo("head", "zoo", "train", "--format", "json").json()["data"]
    assert (data["split"], data["num_examples"], len(data["examples"])) == ("train", 6, 5)
    example = next(it for it in data["examples"] if it["born"] == "2024-01-09")
    assert (example["label"], example["boxes"], example["photo"]) == (
        "数据集",
        {"area": [0.5], "label": ["car"]},
        PHOTO,
    )
    assert len(example["call"]) == 4000


def test_read_names_classes_and_dates_if_asked(zoo: Cli) -> None:
    (line,) = zoo("read", "zoo", "train[:1]", "--columns", "label,born,photo").out.splitlines()
    (names,) = zoo("read", "zoo", "train[:1]", "--columns", "label,born", "--names").out.splitlines()
    number, name = json.loads(line), json.loads(names)
    assert number["photo"] == PHOTO
    assert name["label"] == ["cat", "数据集"][number["label"]]
    assert name["born"] == str(np.datetime64(number["born"], "D"))


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


def test_a_name_with_a_comma_is_in_double_quotes(cli: Cli, workspace: Path) -> None:
    with registry.connect() as catalog:
        catalog.add(pa.table({"a, b": [1], 'say "c"': [2], "d": [3]}), "names")
    (line,) = cli("read", "names", "train", "--columns", '"a, b",d').out.splitlines()
    assert json.loads(line) == {"a, b": 1, "d": 3}
    assert cli("head", "names", "--columns", '"say ""c"""').out.splitlines()[2] == 'say "c"'
    assert cli("export", "csv", "names", "-", "--columns", '"a, b"').out == '"a, b"\n1\n'
    ran = cli("head", "names", "--columns", "a\nb")
    assert (ran.code, ran.err.splitlines()[1]) == (2, "hint: Write NAME,NAME.")


def test_an_unknown_column_is_refused(zoo: Cli) -> None:
    ran = zoo("head", "zoo", "--columns", "lable")
    assert (ran.code, ran.err) == (
        2,
        "error: no feature 'lable'\nhint: Did you mean 'label'? There are: born, boxes, call, label, note, photo.\n",
    )


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
    main, terminal = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key not in ("TMUX", "COLORTERM", "TERM_PROGRAM")}
    done = warm_python.Popen(command, stdout=terminal, env=environment | variables)
    os.close(terminal)
    drawn = b""
    while True:
        try:
            piece = os.read(main, 4096)
        except OSError:  # the other end is closed
            break
        drawn += piece
    os.close(main)
    assert done.wait() == 0
    assert sign in drawn


def test_conditions_choose_rows(zoo: Cli, workspace: Path) -> None:
    condition = "label == 'cat' and born >= '2024-01-10'"
    ran = zoo("head", "zoo", "train", "-n", "1", "--columns", "born", "--where", condition)
    assert ran.out.splitlines()[0] == f"zoo:1.0.0 train where {condition}: 1 of 2 rows"
    value = json.loads(zoo("head", "zoo", "--where", condition, "--format", "json").out)["data"]
    assert (value["where"], value["num_examples"]) == (condition, 2)
    assert sorted(row["born"] for row in value["examples"]) == ["2024-01-10", "2024-01-12"]
    rows = zoo("read", "zoo", "train", "--columns", "born", "--names", "--where", condition).out.splitlines()
    assert sorted(rows) == ['{"born": "2024-01-10"}', '{"born": "2024-01-12"}']
    assert len(zoo("read", "zoo", "train", "--ids", "--where", condition).out.splitlines()) == 2
    zoo("pin", "create", "zoo", "train", "-o", str(workspace / "zoo.lock.yaml"))
    pinned = zoo("pin", "read", str(workspace / "zoo.lock.yaml"), "train", "--where", condition)
    assert len(pinned.out.splitlines()) == 2
    ran = zoo("head", "zoo", "--where", "photo == 3")
    assert (ran.code, ran.out, ran.err) == (
        2,
        "",
        "error: 'photo' has the type Image, but a condition compares single values\n"
        "    photo == 3\n"
        "    ^~~~~\n"
        "hint: Test such values in a loop, or query them with SQL: dataset.sql(...), registry sql.\n",
    )
