"""Text files in which each line is a record."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import registry
from registry.errors import SourceError, UsageError
from registry.features import Text
from registry.intake.line_files import open_lines
from registry.intake.listing import list_files
from registry.intake.options import AddOptions

OPTIONS = AddOptions(kind="lines")
ENDS = re.compile("\r\n|\r|\n")


def lines_of(text: str) -> list[str]:
    """The lines of a text; a line end at the end starts no line."""
    lines = ENDS.split(text)
    return lines if lines[-1] else lines[:-1]


PIECES = ["a", "é✗", " ", "\r", "\n", "\r\n", "\x85\u2028", "\0", ',"\t']


@given(text=st.lists(st.sampled_from(PIECES), min_size=1).map("".join), block_bytes=st.integers(1, 9))
@example(text="a\r\n\r\n\nb\r", block_bytes=2)
def test_each_line_is_a_record(tmp_path_factory: pytest.TempPathFactory, text: str, block_bytes: int) -> None:
    folder = tmp_path_factory.mktemp("lines")
    (folder / "a.txt").write_bytes(text.encode())
    source = open_lines(list_files(folder / "a.txt"), OPTIONS, block_bytes=block_bytes)
    blocks = [rows for part in source.parts for rows in part.read()]
    assert [row["text"] for rows in blocks for row in rows.table.to_pylist()] == lines_of(text)
    assert [line for rows in blocks for line in rows.lines] == list(range(1, 1 + len(lines_of(text))))


def test_splits_compressed_files_and_encodings(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("one\n\nthree, 3\n", encoding="utf-16")
    (tmp_path / "test.txt.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfvier"))
    (tmp_path / "notes.pdf").touch()
    registry.connect(tmp_path / "c.db").add(tmp_path, name="corpus", kind="lines")
    dataset = registry.connect(tmp_path / "c.db").dataset("corpus")
    assert dataset.features["text"] == Text()
    assert {split: sorted(row["text"].decode() for row in dataset.read(split)) for split in dataset.splits} == {
        "train": ["", "one", "three, 3"],
        "test": ["vier"],
    }


def test_text_files_without_a_kind_say_how_to_read_their_lines(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("one\ntwo\n")
    report = registry.connect(tmp_path / "c.db").add(tmp_path / "corpus.txt", dry_run=True)
    assert "1 text file, which is a record (each line: kind='lines')" in report.plan.source.summary


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "{folder}: the text file 'a.txt' has no rows"), (b"a\nb\xff\n", "a.txt:2: byte 3 is not UTF-8")],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(SourceError) as caught:
        [rows for part in open_lines(list_files(tmp_path), OPTIONS).parts for rows in part.read()]
    assert str(caught.value) == message.format(folder=tmp_path)


def test_only_the_encoding_is_an_option_of_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9\r\nb\r\n")
    catalog = registry.connect(tmp_path / "c.db")
    catalog.add(tmp_path / "a.txt", "texts", kind="lines", encoding="latin-1")
    assert sorted(row["text"].decode() for row in catalog.dataset("texts").read("train")) == ["b", "café"]
    with pytest.raises(UsageError, match=r"^files of the kind lines cannot be read with these options: `delimiter`"):
        catalog.add(tmp_path / "a.txt", "texts", kind="lines", delimiter=";")
    with pytest.raises(UsageError, match=r"^unknown encoding 'hex'"):
        catalog.add(tmp_path / "a.txt", "texts", kind="lines", encoding="hex")
