"""Damaged, odd and hostile files, and every option of CSV files: stored, or refused by an error of ours."""

from __future__ import annotations

import bz2
import encodings.aliases
import gzip
import io
import json
import lzma
import pickle
import string
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.judged_sources import judge
from support.levels import either
from support.media_samples import IMAGES, SOUNDS, VIDEOS

from registry.intake.detect import open_source
from registry.intake.options import AddOptions
from registry.intake.source import Source

CSV: Final = b"a,b\nx,1\ny,2\n"
JSONL: Final = b'{"a": "x", "b": 1}\n{"a": "y", "b": 2}\n'
TABLE: Final = pa.table({"a": ["x", "y"], "b": [1, 2]})


def saved(write: Callable[[Any], Any]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    def write(file: Any) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)

    return saved(write)


def tarred(members: dict[str, bytes]) -> bytes:
    def write(file: Any) -> None:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name, content in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))

    return saved(write)


def ipc(*, is_stream: bool) -> bytes:
    sink = pa.BufferOutputStream()
    make = pa.ipc.new_stream if is_stream else pa.ipc.new_file
    with make(sink, TABLE.schema) as writer:
        writer.write(TABLE)
    return bytes(sink.getvalue())


FILES: Final[dict[str, bytes]] = {
    "x.csv": CSV,
    "x.csv.gz": gzip.compress(CSV),
    "x.csv.bz2": bz2.compress(CSV),
    "x.csv.xz": lzma.compress(CSV),
    "x.csv.zst": bytes(pa.compress(CSV, "zstd", asbytes=True)),
    "x.json": json.dumps([{"a": "x"}, {"a": "y"}]).encode(),
    "x.jsonl": JSONL,
    "x.jsonl.zst": bytes(pa.compress(JSONL, "zstd", asbytes=True)),
    "x.parquet": saved(lambda file: pq.write_table(TABLE, file)),
    "x.arrow": ipc(is_stream=False),
    "x.arrows": ipc(is_stream=True),
    "x.npy": saved(lambda file: np.save(file, np.arange(6).reshape(3, 2))),
    "text.npy": saved(lambda file: np.save(file, np.array(["a", "b"]))),
    "x.npz": saved(lambda file: np.savez(file, x=np.arange(3), y=np.array(["a", "b", "c"]))),
    "x.zip": zipped({"x.csv": CSV}),
    "x.tar": tarred({"x.csv": CSV}),
    "x.tar.gz": gzip.compress(tarred({"x.csv": CSV})),
    "wds.tar": tarred({"1.txt": b"one", "1.json": b'{"a": 1}', "2.txt": b"two", "2.json": b'{"a": 2}'}),
    **{f"x.{suffix}": content for suffix, content in (IMAGES | SOUNDS | VIDEOS).items()},
}


def opened(folder: Path, name: str, content: bytes, options: AddOptions | None = None) -> Callable[[], Source]:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    return lambda: open_source(folder / name, options)


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_at_any_place_is_stored_or_refused(tmp_path: Path, name: str) -> None:
    content = FILES[name]
    assert judge(opened(tmp_path / "whole", name, content), name) is None
    for place in sorted({0, 1, 7, *(len(content) * tenth // 10 for tenth in range(1, 10)), len(content) - 1}):
        judge(opened(tmp_path / "cut", name, content[:place]), f"{name} cut at {place}")


@given(st.data())
def test_a_file_with_other_bytes_is_stored_or_refused(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    name = data.draw(st.sampled_from(sorted(FILES)))
    content = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    judge(opened(tmp_path_factory.mktemp("mutated"), name, bytes(content)), f"{name}: {bytes(content)!r:.2000}")


DELIMITERS: Final = [*string.printable, "", "ab", "::", "é", "\ud800", "\0", "\u2028", "\ufeff", "\\t", "tab"]
OTHER_CODECS: Final = ("klingon", "", "utf-8\0", "é", "idna", "punycode", "undefined", "u" * 999)
CODECS: Final = sorted({*encodings.aliases.aliases.values(), *OTHER_CODECS})
NULLS: Final = [("", "NA"), ("x" * 10_000,), ("\ud800",), ('"',), ("a\nb",), (",",), ("\0",)]


@pytest.mark.parametrize("content", [CSV, b'"a","b"\n"x","1"\n', "ä;ö\n1;2\n".encode(), b"\xff\xfea\0,\0b\0\n\0"])
def test_every_delimiter_is_used_or_refused(tmp_path: Path, content: bytes) -> None:
    for number, delimiter in enumerate(DELIMITERS):
        options = AddOptions(delimiter=delimiter)
        judge(opened(tmp_path / str(number), "x.csv", content, options), f"delimiter {delimiter!r}")


@pytest.mark.parametrize("step", either(4, 1))
def test_every_encoding_of_python_is_used_or_refused(tmp_path: Path, step: int) -> None:
    for number, codec in enumerate(CODECS[::step]):
        options = AddOptions(encoding=codec)
        for content in (CSV, b"a,b\n\xff\xfe,1\n", "ä,b\nx,1\n".encode("utf-16")):
            judge(opened(tmp_path / str(number), "x.csv", content, options), f"encoding {codec!r}")


@pytest.mark.parametrize("header", [None, True, False])
def test_every_text_for_null_is_used_or_refused(tmp_path: Path, header: bool | None) -> None:
    for number, nulls in enumerate(NULLS):
        options = AddOptions(nulls=nulls, header=header)
        judge(opened(tmp_path / str(number), "x.csv", CSV, options), ascii(nulls)[:100])


ODD: Final[dict[str, bytes]] = {
    "deep list": b"[" * 100_000 + b"]" * 100_000,
    "deep object": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "deep value": b'{"a": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "less deep value": b'{"a": ' + b"[" * 90 + b"1" + b"]" * 90 + b"}",
    "huge integer": b'{"a": ' + b"9" * 10_000 + b"}",
    "large integer": b'{"a": 18446744073709551616}',
    "large and negative": b'{"a": 18446744073709551615}\n{"a": -1}',
    "huge exponent": b'{"a": 1e999999999}',
    "nan": b'{"a": NaN}\n{"a": Infinity}\n{"a": -Infinity}',
    "surrogate": b'{"a": "\\ud800"}',
    "surrogate in a key": b'{"\\ud800": 1}',
    "surrogates in bytes": b'{"a": "\xed\xa0\x80"}',
    "nul in a key": b'{"a\\u0000": 1}',
    "empty key": b'{"": 1}',
    "twice": b'{"a": 1, "a": 2}',
    "scalar": b"1",
    "null": b"null",
    "list of scalars": b"[1, 2]",
    "empty list": b"[]",
    "empty objects": b"{}\n{}",
    "mixed": b'{"a": 1}\n{"a": "x"}\n{"a": [1]}\n{"a": {"b": 1}}',
    "mark": b'\xef\xbb\xbf{"a": 1}',
    "utf-16": '{"a": 1}'.encode("utf-16"),
    "white space": b" \n\t\n ",
    "nothing": b"",
    "zeros": bytes(100),
    "many keys": json.dumps({f"k{number}": 1 for number in range(30_000)}).encode(),
    "many keys of objects": b'{"a": ' + json.dumps({f"k{number}": 1 for number in range(30_000)}).encode() + b"}",
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_odd_json_is_stored_or_refused(tmp_path: Path, kind: str, suffix: str) -> None:
    judge(opened(tmp_path, f"x.{suffix}", ODD[kind]), kind)


class Trap:
    """An object whose pickle creates a file where it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("suffix", ["npy", "npz", "pkl", "pickle", "arrow", "parquet"])
def test_a_pickle_is_never_loaded(tmp_path: Path, suffix: str) -> None:
    trap = np.array([Trap(tmp_path / "loaded")], object)
    write: dict[str, Callable[[Any], Any]] = {
        "npy": lambda file: np.save(file, trap, allow_pickle=True),
        "npz": lambda file: np.savez(file, x=trap),
    }
    content = saved(write[suffix]) if suffix in write else pickle.dumps(trap[0])
    assert judge(opened(tmp_path, f"x.{suffix}", content), suffix) is not None
    assert not (tmp_path / "loaded").exists()
    pickle.loads(pickle.dumps(trap[0]))  # noqa: S301 (the trap works)
    assert (tmp_path / "loaded").exists()


def encrypted() -> bytes:
    """A zip whose member is marked as encrypted, in both of its headers."""
    content = bytearray(FILES["x.zip"])
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("locked.zip", encrypted()),
        ("locked.npz", encrypted()),
        ("empty.zip", zipped({})),
        ("nested.zip", zipped({"x.zip": zipped({"x.csv": CSV})})),
        ("npz of text.npz", zipped({"x.npy": b"text"})),
        ("twice.npz", FILES["x.npz"]),
        ("long.zip", zipped({"a" * 300 + ".csv": CSV})),
        ("deep.zip", zipped({"a/" * 3000 + "x.csv": CSV})),
        ("odd.zip", zipped({"\ud7ff\u2028.csv": CSV, "con.csv": CSV})),
        ("bomb.zip", zipped({"x.csv": b"a\n" + bytes(3 * 2**20)})),
        ("bomb.csv.gz", gzip.compress(bytes(3 * 2**20))),
        ("folder.tar", tarred({"a": b"", "a/b.csv": CSV})),
    ],
)
def test_odd_archives_are_stored_or_refused(tmp_path: Path, name: str, content: bytes) -> None:
    judge(opened(tmp_path, name, content), name)
