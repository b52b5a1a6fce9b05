"""``registry export`` of records: where files go, what is printed, and what is refused."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.feather
import pyarrow.parquet
import pytest

import registry
from registry.cli import output
from registry.features import ClassLabel, FeaturesDict, Scalar, Text
from registry.reading.frameworks.table_columns import TableColumns

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


class Words(registry.DatasetBuilder):
    """Ten words for training and three for the test."""

    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        kind = ClassLabel(names=["noun", "verb"])
        return FeaturesDict({"kind": kind, "length": Scalar("int64", optional=True), "word": Text()})

    def splits(self) -> Any:
        def words(count: int) -> Any:
            return [(n, {"kind": n % 2, "length": n or None, "word": f"w{n}"}) for n in range(count)]

        return {"train": words(10), "test": words(3)}


@pytest.fixture(scope="module")
def published_words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the catalog and the data of the words."""
    folder = tmp_path_factory.mktemp("words")
    with registry.connect(folder / "catalog.db") as catalog:
        catalog.build(Words(), processes=1)
    return folder


@pytest.fixture
def words(cli: Cli, workspace: Path, published_words: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Commands in an empty folder, with the words published."""
    shutil.copytree(published_words, workspace, dirs_exist_ok=True)
    (workspace / "here").mkdir()
    monkeypatch.chdir(workspace / "here")
    return cli


def stored_words(split: str) -> list[dict[str, Any]]:
    """The words in their stored order, as JSON has them."""
    with registry.connect() as catalog:
        read = catalog.dataset("words").read(split, registry.ReadConfig(interleave_cycle_length=1))
        return [
            {
                "kind": ["noun", "verb"][example["kind"]],
                "length": None if example["length"] is None else int(example["length"]),
                "word": example["word"].decode(),
            }
            for example in read
        ]


def test_an_expression_is_written_to_one_file(words: Cli) -> None:
    ran = words("export", "jsonl", "words", "some.jsonl", "--split", "train[:4]+test")
    assert (ran.code, ran.out, ran.err) == (
        0,
        "wrote some.jsonl: 7 records of train[:4]+test, 314 B\n",
        "",
    )
    lines = Path("some.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == stored_words("train[:4]+test")


def test_without_an_expression_each_split_gets_a_file(words: Cli) -> None:
    ran = words("export", "csv", "words", "out", "--format", "json").json()
    assert ran["schema"] == "registry.export.csv/1"
    folder = Path("out").absolute()
    sizes = [path.stat().st_size for path in (folder / "train.csv", folder / "test.csv")]
    assert ran["data"] == {
        "dataset": "words",
        "version": "1.0.0",
        "num_records": 13,
        "num_bytes": sum(sizes),
        "dry_run": False,
        "files": [
            {"path": f"{folder}/train.csv", "split": "train", "num_records": 10, "num_bytes": sizes[0]},
            {"path": f"{folder}/test.csv", "split": "test", "num_records": 3, "num_bytes": sizes[1]},
        ],
    }
    expected = [
        f'"{row["kind"]}",{"" if row["length"] is None else row["length"]},"{row["word"]}"'
        for row in stored_words("test")
    ]
    assert (folder / "test.csv").read_text().splitlines() == ['"kind","length","word"', *expected]


def test_a_file_for_several_splits_needs_an_expression(words: Cli) -> None:
    ran = words("export", "parquet", "words", "words.parquet")
    assert (ran.code, ran.err) == (
        2,
        "error: words.parquet is one file, and words:1.0.0 has the splits train, test\n"
        "hint: Name its records, e.g. --split train, or name a folder, which gets a file for each split.\n",
    )
    assert words("export", "parquet", "words", "words.parquet", "--split", "train").code == 0
    assert pyarrow.parquet.read_table("words.parquet").column_names == ["kind", "length", "word"]


def test_stdout_gets_the_records_and_nothing_else(words: Cli) -> None:
    ran = words("export", "jsonl", "words", "-", "--split", "test")
    assert (ran.code, ran.err) == (0, "")
    assert [json.loads(line) for line in ran.out.splitlines()] == stored_words("test")
    refused = words("export", "jsonl", "words", "-", "--split", "test", "--format", "json")
    assert (refused.code, refused.out) == (2, "")
    assert refused.error()["message"] == "records and the JSON of --format json cannot both go to stdout"
    assert words("export", "jsonl", "words", "-").err == (
        "error: the destination is one file, and words:1.0.0 has the splits train, test\n"
        "hint: Name its records, e.g. --split train, or name a folder, which gets a file for each split.\n"
    )


def test_a_file_is_replaced_only_on_request_and_never_left_half_written(
    words: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("out").mkdir()
    Path("out/test.arrow").write_text("mine")
    ran = words("export", "arrow", "words", "out")
    place = Path("out/test.arrow").absolute()
    assert (ran.code, ran.err) == (
        1,
        f"error: {place} already exists\nhint: Name another destination, or replace it with --force.\n",
    )
    real, calls = TableColumns.batch, []

    def interrupted(self: Any, columns: Any) -> Any:
        calls.append(columns)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, columns)

    with monkeypatch.context() as patch:
        patch.setattr(TableColumns, "batch", interrupted)
        assert words("export", "arrow", "words", "out", "--force").code == 130
    assert {path.name: path.read_text() for path in Path("out").iterdir()} == {"test.arrow": "mine"}
    assert words("export", "arrow", "words", "out", "--force").code == 0
    table = pyarrow.feather.read_table("out/test.arrow")
    assert table["word"].to_pylist() == [row["word"] for row in stored_words("test")]
    assert table["length"].to_pylist() == [row["length"] for row in stored_words("test")]
    assert sorted(path.name for path in Path("out").iterdir()) == ["test.arrow", "train.arrow"]


def test_a_dry_run_writes_nothing(words: Cli) -> None:
    ran = words("export", "csv", "words", "out", "--dry-run")
    assert ran.out == ("would write out/train.csv: 10 records of train\nwould write out/test.csv: 3 records of test\n")
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ("csv", "words", ".", "--split", "train"),
            "error: . is a folder, and one split expression is written to one file\nhint: Name a file: ./train.csv\n",
        ),
        (
            ("parquet", "words", "x.parquet.gz", "--split", "train"),
            "error: x.parquet.gz: parquet files are not compressed as a whole\nhint: Name a file .parquet.\n",
        ),
        (
            ("csv", "words", "x.csv", "--split", "train", "--columns", "wrod"),
            "error: no feature 'wrod'\nhint: Did you mean 'word'? There are: kind, length, word.\n",
        ),
        (
            ("csv", "words", "-o", "x y.csv"),
            "error: the output file is an argument, not an option\nhint: Write: registry export csv REF 'x y.csv'\n",
        ),
    ],
)
def test_a_wrong_call_is_explained(words: Cli, arguments: tuple[str, ...], error: str) -> None:
    ran = words("export", *arguments)
    assert (ran.code, ran.out, ran.err) == (2, "", error)
    assert list(Path().iterdir()) == []


def test_what_was_added_comes_out_with_its_columns_in_their_order(words: Cli) -> None:
    text = '"when","name","n"\n"2024-02-29","x",\n"2024-03-01","",7\n'
    Path("given.csv").write_text(text)
    assert words("add", "given.csv", "--as", "given").code == 0
    assert words("export", "csv", "given", "out.csv").code == 0
    head, *rows = Path("out.csv").read_text().splitlines()
    assert (head, sorted(rows)) == ('"when","name","n"', sorted(text.splitlines()[1:]))


def test_a_destination_may_be_a_url(words: Cli) -> None:
    place = Path("far").absolute().as_uri()
    assert words("export", "jsonl", "words", f"{place}/x.jsonl", "--split", "test").code == 0
    assert len(Path("far/x.jsonl").read_text().splitlines()) == 3


def test_python_takes_a_binary_file_and_checks_what_it_is_given(words: Cli) -> None:
    with registry.connect() as catalog:
        dataset = catalog.dataset("words")
        file, seen = io.BytesIO(), []
        report = dataset.export("parquet", file, split="train", progress=seen.append)
        assert (report.num_records, report.num_bytes) == (10, len(file.getvalue()))
        assert (str(seen[-1]), report.files[0].path) == ("exporting words:1.0.0: 10 of 10 records", "-")
        assert pyarrow.parquet.read_table(io.BytesIO(file.getvalue())).num_rows == 10
        with pytest.raises(registry.RegistryError, match="no export format 'cvs'") as refused:
            dataset.export("cvs", file)  # type: ignore[arg-type]
        assert (
            refused.value.hint == "Did you mean 'csv'? There are: csv, jsonl, parquet, arrow, imagefolder, webdataset."
        )
        with pytest.raises(TypeError, match="dest must be str or path or a binary file, not int"):
            dataset.export("csv", 3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match='labels must be "names" or "numbers", not 3'):
            dataset.export("csv", file, labels=3)  # type: ignore[arg-type]


class Terminal(io.StringIO):
    """A stdout that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_text_without_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    with output.open_stdout() as stdout:
        for byte in '"gr\x9bün\x1b[31m"\n'.encode():  # a letter may be cut between two writes
            stdout.write(bytes([byte]))
    assert sys.stdout.getvalue() == '"gr\ufffdün\ufffd[31m"\n'  # type: ignore[attr-defined]


def test_a_reader_that_has_seen_enough_ends_the_export(words: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.RawIOBase):
        def write(self, _data: Any) -> int:
            raise BrokenPipeError

    seen: list[str] = []
    monkeypatch.setattr(output, "give_up_stdout", lambda: seen.append("given up"))
    for kind in ("csv", "jsonl"):
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(Closed(), write_through=True))
        ran = words("export", kind, "words", "-", "--split", "train")
        assert (ran.code, ran.err, seen[-1]) == (0, "", "given up")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arrow"])
def test_a_condition_chooses_the_records(words: Cli, kind: str) -> None:
    ran = words("export", kind, "words", "out", "--where", "kind == 'verb' and length > 2", "--format", "json")
    files = json.loads(ran.out)["data"]["files"]
    assert [(file["split"], file["num_records"]) for file in files] == [("train", 4), ("test", 0)]
    if kind == "jsonl":
        rows = [json.loads(line) for line in Path("out/train.jsonl").read_text(encoding="utf-8").splitlines()]
        assert rows == [row for row in stored_words("train") if row["kind"] == "verb" and (row["length"] or 0) > 2]
    dry = words("export", kind, "words", "other", "--split", "train", "--where", "length is None", "--dry-run")
    assert dry.out == "would write other: 1 record of train\n"


def test_samples_are_chosen_by_a_condition(words: Cli) -> None:
    ran = words("export", "webdataset", "words", "tars", "--split", "train", "--where", "length in (3, 4)")
    assert ran.code == 0
    assert ": 2 records of train, " in ran.out
