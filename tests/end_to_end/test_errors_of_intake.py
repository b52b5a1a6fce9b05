"""Every error of ``registry add`` names the source, the place in it, and what to do."""

from __future__ import annotations

import ast
import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from PIL import Image

import registry
from registry.errors import DatasetNotFoundError, RegistryError

ERRORS = {"SourceError", "UsageError", "UnusableRowsError", "NotStoredError", "StorageError", "PreparedFormatError"}


def test_each_place_that_raises_an_error_gives_a_hint() -> None:
    lacking = []
    for path in sorted(Path(registry.__path__[0], "intake").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            is_error = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS
            if is_error and not {"hint", None} & {one.arg for one in node.keywords}:
                lacking.append(f"{path.name}:{node.lineno}: {node.func.id}")
    assert lacking == []


def png(mode: str = "L", size: tuple[int, int] = (3, 2)) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size).save(file, "PNG")
    return file.getvalue()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def parquet(table: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def feather(table: Any) -> bytes:
    file = io.BytesIO()
    pyarrow.feather.write_feather(table, file)
    return file.getvalue()


def tar(*members: tuple[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    return file.getvalue()


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    return file.getvalue()


def card(configs: str) -> bytes:
    return f"---\nconfigs:\n{configs}\n---\n".encode()


def croissant(*fields: Any, **file: Any) -> bytes:
    """A Croissant document of the file ``x.csv``, with one record set."""
    document = {
        "@context": {"@vocab": "https://schema.org/", "cr": "http://mlcommons.org/croissant/"},
        "@type": "Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": "x",
        "distribution": [
            {"@type": "cr:FileObject", "@id": "x.csv", "contentUrl": "x.csv", "encodingFormat": "text/csv", **file}
        ],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "r", "name": "r", "field": list(fields)}] if fields else [],
    }
    return json.dumps(document).encode()


FIELD = {
    "@type": "cr:Field",
    "@id": "r/a",
    "name": "a",
    "dataType": "sc:Integer",
    "source": {"fileObject": {"@id": "x.csv"}, "extract": {"column": "a"}},
}
CSV = b"a,b\n1,2\n"
JSON = json.dumps
IDS = pa.table({"id": [1, 2]})

FAULTS: dict[str, tuple[dict[str, bytes], dict[str, Any], str]] = {
    # what is wrong: the files, the options, and the place that the message names
    "csv: header only": ({"x.csv": b"a,b\n"}, {}, "x.csv"),
    "csv: empty": ({"x.csv": b""}, {}, "x.csv"),
    "csv: too many fields": ({"x.csv": b"a,b\n1,2\n1,2,3\n"}, {}, "x.csv:3"),
    "csv: too few fields": ({"x.csv": b"a,b\n1,2\n1\n"}, {}, "x.csv:3"),
    "csv: not UTF-8": ({"x.csv": b"a,b\n1,caf\xe9\n"}, {}, "x.csv"),
    "csv: an open quote": ({"x.csv": b'a,b\n1,"2\n'}, {}, "x.csv:2"),
    "csv: two columns of one name": ({"x.csv": b"a,a\n1,2\n"}, {}, "x.csv"),
    "csv: a column without a name": ({"x.csv": b"a,\n1,2\n"}, {}, "x.csv"),
    "csv: files of other columns": ({"x.csv": CSV, "y.csv": b"a,c\n1,2\n"}, {}, "y.csv"),
    "csv: a value of another type": ({"x.csv": b"a\n1\nx\n"}, {"features": {"a": "int64"}}, "x.csv:3, column 'a'"),
    "csv: a null in a list": (
        {"x.csv": b'a\n"[1]"\n"[null]"\n'},
        {"features": {"a": "int64[]"}},
        "x.csv:3, column 'a'",
    ),
    "csv: an unknown label": (
        {"x.csv": b"a\ncat\nbird\n"},
        {"features": {"a": "ClassLabel(cat, dog)"}},
        "x.csv:3, column 'a'",
    ),
    "csv: a class that is no name": ({"x.csv": b'a\n"x\ny"\n'}, {"features": {"a": "ClassLabel"}}, "x.csv:2"),
    "csv: an image in a column of text": ({"x.csv": b"a\nx.png\n"}, {"features": {"a": "Image"}}, "x.csv:2"),
    "csv: a null key": ({"x.csv": b"a,b\n1,2\n,3\n"}, {"key": "a"}, "x.csv:3, column 'a'"),
    "csv: a key twice": ({"x.csv": b"a,b\n1,2\n1,3\n"}, {"key": "a"}, "x.csv"),
    "csv: no such key": ({"x.csv": CSV}, {"key": "z"}, "z"),
    "csv: no such column": ({"x.csv": CSV}, {"features": {"z": "int8"}}, '"z"'),
    "csv: no such type": ({"x.csv": CSV}, {"features": {"a": "int7"}}, "int7"),
    "csv: every column left out": ({"x.csv": b"a\n1\n"}, {"features": {"a": "skip"}}, "no columns"),
    "csv: a split without a name": ({"x.csv": b"a,s\n1,\n"}, {"split_by": "s"}, "x.csv:2, column 's'"),
    "csv: no file of a split": ({"x.csv": CSV}, {"splits": {"train": "y*"}}, "y*"),
    "json: not JSON": ({"x.jsonl": b'{"a": 1}\n{"a": }\n'}, {}, "x.jsonl:2"),
    "json: a key twice": ({"x.jsonl": b'{"a": 1, "a": 2}\n'}, {}, "x.jsonl:1"),
    "json: two types": ({"x.jsonl": b'{"a": 1}\n{"a": "x"}\n'}, {}, "x.jsonl:2"),
    "json: two types in a list": ({"x.jsonl": b'{"a": [1, "x"]}\n'}, {}, "x.jsonl:1, column 'a[]'"),
    "json: a field without a name": ({"x.jsonl": b'{"a": {"": 1}}\n'}, {}, 'x.jsonl:1: column "a": '),
    "json: a large integer": ({"x.jsonl": b'{"a": 123456789012345678901234567890}\n'}, {}, "x.jsonl:1, column 'a'"),
    "json: one object with a list": ({"x.json": b'{"version": 1, "data": [{"a": 1}, {"a": 2}]}'}, {}, "x.json:1"),
    "json: no such list": ({"x.json": b'{"data": [{"a": 1}]}'}, {"records": "rows"}, "x.json"),
    "json: an object of several lines": ({"x.json": b'{\n"a": 1\n}\n'}, {}, "x.json:1"),
    "json: a list that does not end": ({"x.json": b'[{"a": 1},'}, {}, "x.json"),
    "parquet: not Parquet": ({"x.parquet": b"PAR1" + bytes(40)}, {}, "x.parquet"),
    "parquet: truncated": ({"x.parquet": parquet(IDS)[:-9]}, {}, "x.parquet"),
    "parquet: other columns": (
        {"x.parquet": parquet(IDS), "y.parquet": parquet(pa.table({"id": ["a"]}))},
        {},
        "y.parquet",
    ),
    "parquet: a field without a name": (
        {"x.parquet": parquet(pa.table({"a": pa.array([{"": 1}])}))},
        {},
        'x.parquet:1: column "a": ',
    ),
    "parquet: no rows": ({"x.parquet": parquet(IDS.slice(0, 0))}, {}, "x.parquet"),
    "arrow: truncated": ({"x.feather": feather(IDS)[:-9]}, {}, "x.feather"),
    "arrow: other columns": (
        {"x.feather": feather(IDS), "y.feather": feather(pa.table({"z": ["a"]}))},
        {},
        "y.feather",
    ),
    "arrays: several lengths": ({"x.npz": npz(a=np.arange(3), b=np.arange(4))}, {}, "x.npz[b]"),
    "arrays: objects": ({"x.npy": npy(np.array([{}, 1], object))}, {}, "x.npy"),
    "arrays: objects in an archive": ({"x.npz": npz(a=np.array([{}, 1], object))}, {}, "x.npz[a]"),
    "arrays: one value": ({"x.npy": npy(np.array(1))}, {}, "x.npy"),
    "arrays: truncated": ({"x.npy": npy(np.arange(9))[:-9]}, {}, "x.npy"),
    "images: other dimensions": (
        {"x/1.png": png(), "x/2.png": png(size=(3, 4))},
        {"features": {"image": "Image[2, 3, 1]"}},
        "x/2.png",
    ),
    "images: no image": ({"x/1.png": b"text", "x/2.png": png()}, {}, "x/1.png"),
    "images: empty": ({"x/1.png": b"", "x/2.png": png()}, {}, "x/1.png"),
    "images: truncated": ({"x/1.png": png()[:-9], "x/2.png": png()}, {}, "x/1.png"),
    "images: two depths": ({"1.png": png("I;16"), "2.png": png()}, {}, "1.png"),
    "images: hive folders": ({"year=1/1.png": png()}, {}, "year=1/1.png"),
    "metadata: no file_name": ({"1.png": png(), "metadata.csv": CSV}, {}, "metadata.csv"),
    "metadata: no such file": (
        {"1.png": png(), "metadata.csv": b"file_name,a\n1.png,1\n2.png,2\n"},
        {},
        "metadata.csv:3",
    ),
    "metadata: no entry": ({"1.png": png(), "2.png": png(), "metadata.csv": b"file_name,a\n1.png,1\n"}, {}, "2.png"),
    "metadata: the column of the files": (
        {"1.png": png(), "metadata.csv": b"file_name,image\n1.png,1\n"},
        {},
        "metadata",
    ),
    "text: not UTF-8": ({"1.txt": b"caf\xe9", "2.txt": b"a"}, {}, "1.txt"),
    "webdataset: a key twice": (
        {"x.tar": tar(("1.txt", b"a"), ("1.cls", b"1"), ("2.txt", b"b"), ("2.cls", b"1"), ("1.txt", b"c"))},
        {},
        "x.tar",
    ),
    "webdataset: damaged JSON": ({"x.tar": tar(("1.json", b"{"), ("1.txt", b"a"))}, {}, "x.tar:1, column 'json'"),
    "archive: truncated": ({"x.zip": zipped(**{"1.csv": CSV})[:-9]}, {}, "x.zip"),
    "archive: leads out": ({"x.tar": tar(("../1.csv", CSV))}, {}, "x.tar"),
    "archive: in an archive": ({"x.zip": zipped(**{"y.zip": zipped(**{"1.csv": CSV})})}, {}, "y.zip"),
    "archive: empty": ({"x.zip": zipped()}, {}, "source contains no files"),
    "several kinds": ({"1.png": png(), "2.png": png(), "x.csv": CSV}, {}, "1 CSV file"),
    "no known kind": ({"x.bin": bytes(9)}, {}, "x.bin"),
    "a spreadsheet": ({"x.xlsx": bytes(9)}, {}, "x.xlsx"),
    "card: no such file": ({"README.md": card("- data_files: y.csv"), "x.csv": CSV}, {}, "README.md"),
    "card: leads out": ({"README.md": card("- data_files: ../y.csv"), "x.csv": CSV}, {}, "README.md"),
    "card: several configs": (
        {
            "README.md": card("- config_name: a\n  data_files: x.csv\n- config_name: b\n  data_files: x.csv"),
            "x.csv": CSV,
        },
        {},
        "a, b",
    ),
    "card: a split of another name": (
        {"README.md": card("- data_files:\n  - {split: train.1, path: x.csv}"), "x.csv": CSV},
        {},
        "train.1",
    ),
    "croissant: no document": (
        {"a.json": JSON([{"a": 1}]).encode()},
        {"kind": "croissant"},
        "source: no Croissant document",
    ),
    "croissant: not JSON": ({"croissant.json": croissant()[:-1], "x.csv": CSV}, {}, "croissant.json"),
    "croissant: no record set": ({"croissant.json": croissant(), "x.csv": CSV}, {}, "croissant.json"),
    "croissant: no such file": ({"croissant.json": croissant(FIELD), "y.csv": CSV}, {}, "the file 'x.csv' is missing"),
    "croissant: no such record set": (
        {"croissant.json": croissant(FIELD), "x.csv": CSV},
        {"records": "rows"},
        "croissant.json: the document has no record set 'rows'",
    ),
    "croissant: only the splits": (
        {"croissant.json": croissant({**FIELD, "dataType": "cr:Split"}), "x.csv": CSV},
        {},
        "split_by='a' leaves no column to store",
    ),
    "croissant: another digest": (
        {"croissant.json": croissant(FIELD, sha256="0" * 64), "x.csv": CSV},
        {},
        "x.csv",
    ),
    "records without a schema": ({"x.tfrecord": bytes(9)}, {}, "source: TFRecord files"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_error_names_the_source_the_place_and_what_to_do(tmp_path: Path, fault: str) -> None:
    files, options, place = FAULTS[fault]
    folder = tmp_path / "source"
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    catalog = registry.connect(f"sqlite:///{tmp_path / 'c.db'}", data_dir=tmp_path / "data", create=True)
    with pytest.raises(RegistryError) as caught:
        catalog.add(folder, "x", **options)
    assert place in caught.value.message
    assert caught.value.hint
    assert caught.value.details
    with pytest.raises(DatasetNotFoundError):
        catalog.dataset("x")
    assert not any(path.is_file() for path in (tmp_path / "data").rglob("*"))
