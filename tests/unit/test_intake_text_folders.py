"""Folders of text files, each of which is a record."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.errors import SourceError
from registry.features import ClassLabel, Text
from registry.intake.listing import list_files
from registry.intake.media_files import open_media
from registry.intake.options import AddOptions


def test_each_file_is_a_record(tmp_path: Path) -> None:
    contents = {
        "pos/1.txt": b"\xef\xbb\xbfgood\r\n",
        "pos/test.txt": b"",
        "neg/2.md": "schlecht ✗".encode(),
        "neg/3.txt": b"caf\xc3\xa9\ncaf\xe9",
        "neg/4.txt": "x".encode("utf-16"),
        "neg/5.png": b"",
    }
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    source = open_media(list_files(tmp_path), AddOptions(kind="text", paths=False))
    assert source.hints == {"text": Text(), "label": ClassLabel(names=["neg", "pos"])}
    assert (
        source.summary == "5 text files in 2 folders, each of which is a record; label: the names of 2 folders, sorted"
    )
    ((rows,),) = [list(part.read()) for part in source.parts]
    assert rows.keys == ["neg/2.md", "pos/1.txt", "pos/test.txt"]
    assert rows.table.to_pylist() == [
        {"text": "schlecht ✗", "label": "neg"},
        {"text": "good\r\n", "label": "pos"},
        {"text": "", "label": "pos"},
    ]
    assert [str(one) for one in rows.bad] == [
        "neg/3.txt: expected UTF-8, found the byte 0xe9 in line 2",
        "neg/4.txt: expected UTF-8, found UTF-16 in line 1",
    ]
    assert [(use.name, use.reason) for use in source.files if use.role == "skipped"] == [
        ("neg/5.png", "not a text file by its name")
    ]


def test_a_folder_without_text(tmp_path: Path) -> None:
    (tmp_path / "1.png").touch()
    with pytest.raises(SourceError) as caught:
        open_media(list_files(tmp_path), AddOptions(kind="text", paths=False))
    assert str(caught.value) == f"{tmp_path}: no text file among 1 files"
    assert caught.value.hint == "Names of text files end with one of .txt .md"
