"""The memory of what was proved: which notes are found, and what happens if its folder or its files are damaged."""

from __future__ import annotations

import errno
import logging
import os
import pickle
from pathlib import Path

import pytest
from support.levels import either

from registry.storage import memory
from registry.storage.memory import Memory

VALUE = bytes(range(256))


@pytest.fixture
def notes(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "notes")


def load(notes: Memory, kind: str = "index", subject: bytes = b"file", state: bytes = b"now") -> bytes | None:
    value = notes.load(kind, subject, state)
    return None if value is None else bytes(value)


def test_a_note_is_found_by_who_names_kind_subject_and_state(notes: Memory) -> None:
    assert load(notes) is None
    notes.keep("index", b"file", b"now", VALUE)
    assert load(notes) == VALUE
    assert load(pickle.loads(pickle.dumps(notes))) == VALUE  # noqa: S301 (made here)
    assert load(notes, kind="shards") is load(notes, subject=b"other") is load(notes, state=b"before") is None
    assert load(notes, subject=b"filen", state=b"ow") is None
    notes.keep("index", b"file", b"later", b"")
    assert (load(notes), load(notes, state=b"later")) == (None, b"")
    notes.forget("index", b"file")
    notes.forget("index", b"file")
    assert load(notes, state=b"later") is None


def test_a_note_without_a_value_is_one_line(notes: Memory) -> None:
    assert not notes.holds("stamp", b"file", b"now")
    notes.add("stamp", b"file", b"now")
    notes.add("stamp", b"file", b"later")
    assert notes.holds("stamp", b"file", b"now")
    assert notes.holds("stamp", b"file", b"later")
    assert not notes.holds("stamp", b"file", b"before")
    assert not notes.holds("stamp", b"filen", b"ow")
    assert not notes.holds("index", b"file", b"now")


def test_nobody_else_can_read_or_write_the_folder(notes: Memory, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        notes.keep("index", b"file", b"now", VALUE)
        notes.add("stamp", b"file", b"now")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "notes", notes.file("index", b"file").parent)] == [
        0o700
    ] * 2


@pytest.mark.parametrize("step", either(5, 1))
def test_a_damaged_note_is_discarded_with_a_line_in_the_log(
    notes: Memory, caplog: pytest.LogCaptureFixture, step: int
) -> None:
    caplog.set_level(logging.INFO)
    notes.keep("index", b"file", b"now", VALUE)
    file = notes.file("index", b"file")
    sound = file.read_bytes()
    for bit in range(0, 8 * len(sound), step):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        assert load(notes) is None
        assert not file.exists()
    assert set(caplog.messages) == {f"{file} is damaged and will be made again"}
    for size in range(0, len(sound), step):
        file.write_bytes(sound[:size])
        assert load(notes) is None
    notes.keep("index", b"file", b"now", VALUE)
    assert load(notes) == VALUE


@pytest.mark.parametrize("way", ["link", "pipe", "folder"])
def test_what_is_no_file_of_the_folder_is_not_read(notes: Memory, tmp_path: Path, way: str) -> None:
    notes.keep("index", b"file", b"now", VALUE)
    notes.add("stamp", b"file", b"now")
    (lines,) = (tmp_path / "notes").glob("*.stamp")
    for file in (notes.file("index", b"file"), lines):
        moved = file.rename(tmp_path / file.name)
        if way == "link":
            file.symlink_to(moved)
        elif way == "pipe":
            os.mkfifo(file)  # nobody writes to it: to wait for its end would take for ever
        else:
            file.mkdir()
    assert load(notes) is None
    assert not notes.holds("stamp", b"file", b"now")


def test_an_interrupted_writing_leaves_the_note_before_and_nothing_half(
    notes: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes.keep("index", b"file", b"now", VALUE)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            notes.keep("index", b"file", b"now", b"other")
    assert load(notes) == VALUE
    assert [path for path in (tmp_path / "notes").rglob("*") if path.is_file()] == [notes.file("index", b"file")]


@pytest.mark.parametrize(("number", "level"), [(errno.ENOSPC, "WARNING"), (errno.EROFS, "INFO")])
def test_a_full_disk_is_a_warning(
    notes: Memory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
    level: str,
) -> None:
    caplog.set_level(logging.INFO)

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(memory, "replace_file", fail)
    monkeypatch.setattr(memory, "append_line", fail)
    notes.keep("index", b"file", b"now", VALUE)
    notes.add("stamp", b"file", b"now")
    message = f"the cache folder {tmp_path / 'notes'} cannot be written: {os.strerror(number)}"
    assert [(record.levelname, record.message) for record in caplog.records] == [(level, message)]
    assert load(notes) is None


def test_a_reader_beside_two_writing_processes_sees_whole_notes(notes: Memory) -> None:
    values = [bytes([number]) * 100_000 for number in (1, 2)]
    notes.keep("index", b"file", b"now", values[0])
    children = []
    for value in values:
        child = os.fork()
        if not child:
            for _ in range(200):
                notes.keep("index", b"file", b"now", value)
            os._exit(0)
        children.append(child)
    for _ in range(400):
        assert load(notes) in values
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
