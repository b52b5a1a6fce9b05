"""``registry export`` of records: where files go, what is printed, and what is refused."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.feather
import pyarrow.parquet
import pytest

import registry
from registry.cli import output
from registry.reading.frameworks.table_columns import TableColumns

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


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
