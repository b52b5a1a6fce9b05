"""Croissant documents: what mlcroissant reads from a document is what comes in."""

from __future__ import annotations

import hashlib
import io
import json
import warnings
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as Pillow
from support.golden import check_errors

import registry
from registry.errors import SourceError, UsageError
from registry.features import ClassLabel, Image, Tensor, Text
from registry.intake.detect import open_source
from registry.intake.options import AddOptions
from registry.intake.source import Source
from registry.interop.croissant import _CONTEXT

GOLDEN = Path(__file__).with_name("golden")


def file_object(name: str, encoding: str, **more: Any) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject", "@id": name, "name": name, "contentUrl": name, "encodingFormat": encoding, **more
    }  # fmt: skip


def file_set(name: str, includes: str, encoding: str, **more: Any) -> dict[str, Any]:
    return {"@type": "cr:FileSet", "@id": name, "name": name, "encodingFormat": encoding, "includes": includes, **more}


def a_field(record_set: str, name: str, types: Any, source: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    own = {} if source is None else {"source": source}
    return {
        "@type": "cr:Field", "@id": f"{record_set}/{name}", "name": name, "dataType": types, **own, **more
    }  # fmt: skip


def record_set(name: str, *fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"@type": "cr:RecordSet", "@id": name, "name": name, "field": list(fields), **more}


def write(folder: Path, distribution: Sequence[Any], sets: Sequence[Any], name: str = "croissant.json") -> Path:
    document = {
        "@context": _CONTEXT, "@type": "sc:Dataset", "name": "d", "conformsTo": "http://mlcommons.org/croissant/1.1",
        "description": "About it.", "license": "MIT", "url": "https://example.org", "citeAs": "@misc{x}",
        "distribution": list(distribution), "recordSet": list(sets),
    }  # fmt: skip
    (folder / name).write_text(json.dumps(document))
    return folder / name


def opened(location: Path, **options: Any) -> Source:
    return open_source(location, AddOptions(**options))


def rows_of(source: Source) -> dict[str, list[dict[str, Any]]]:
    return {
        split: [
            row
            for part in source.parts
            if part.split == split
            for rows in part.read()
            for row in rows.table.to_pylist()
        ]
        for split in source.splits
    }


def read_by_mlcroissant(path: Path, name: str) -> list[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlcroissant

        rows = list(mlcroissant.Dataset(jsonld=path).records(name))
    return [{key.removeprefix(f"{name}/"): _value(value) for key, value in row.items()} for row in rows]


def _value(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return value.decode() if isinstance(value, bytes) else value


def column(resource: str, name: str, kind: str = "fileObject") -> dict[str, Any]:
    return {kind: {"@id": resource}, "extract": {"column": name}}


TABLE = pa.table({"id": [1, 2, 3], "text": ["a", "b", "ü"], "score": [0.5, 1.0, 2.5], "left": [1, 2, 3]})
FIELDS = {"number": ("id", "sc:Integer"), "text": ("text", "sc:Text"), "score": ("score", "sc:Float")}


def table_file(folder: Path, kind: str) -> dict[str, Any]:
    """A file with TABLE, and its FileObject."""
    name, encoding = {
        "csv": ("data.csv", "text/csv"),
        "jsonl": ("data.jsonl", "application/jsonlines"),
        "parquet": ("data.parquet", "application/x-parquet"),
    }[kind]
    if kind == "csv":
        (folder / name).write_text("id,text,score,left\n1,a,0.5,1\n2,b,1.0,2\n3,ü,2.5,3\n")
    elif kind == "jsonl":
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in TABLE.to_pylist()))
    else:
        pq.write_table(TABLE, folder / name)
    return file_object(name, encoding, sha256=hashlib.sha256((folder / name).read_bytes()).hexdigest())


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_columns_of_a_table_come_in_as_mlcroissant_reads_them(tmp_path: Path, kind: str) -> None:
    resource = table_file(tmp_path, kind)
    fields = [a_field("rows", name, types, column(resource["@id"], own)) for name, (own, types) in FIELDS.items()]
    path = write(tmp_path, [resource], [record_set("rows", *fields)])
    (tmp_path / "other.txt").write_text("x")
    source = opened(tmp_path)
    ((split, rows),) = rows_of(source).items()
    wanted = read_by_mlcroissant(path, "rows")
    assert (split, [{name: str(value) for name, value in row.items()} for row in rows]) == (
        "train", [{name: str(value) for name, value in row.items()} for row in wanted]
    )  # fmt: skip
    assert source.kind == "croissant"
    assert source.summary.startswith("Croissant record set 'rows': train: ")
    assert source.summary.endswith("; not in the record set: 'left'")
    assert (source.metadata.license, source.metadata.description) == ("MIT", "About it.")
    if kind == "csv":
        assert source.hints == {
            "number": Tensor(shape=(), dtype="int64"),
            "text": Text(),
            "score": Tensor(shape=(), dtype="float64", encoding="bytes"),
        }
    assert [(use.name, use.role) for use in source.files] == [
        (resource["@id"], "records"), ("croissant.json", "metadata"), ("other.txt", "skipped")
    ]  # fmt: skip
    assert rows_of(opened(path)) == {"train": rows}


def pictures(folder: Path) -> None:
    for name in ("train/cat_1", "train/dog_2", "test/cat_3"):
        (folder / f"{name}.png").parent.mkdir(exist_ok=True, parents=True)
        Pillow.fromarray(np.full((2, 2, 3), int(name[-1]), np.uint8)).save(folder / f"{name}.png")


LABELS = record_set(
    "labels", a_field("labels", "name", "sc:Text", None), dataType="sc:Enumeration", key={"@id": "labels/name"},
    data=[{"labels/name": "cat"}, {"labels/name": "dog"}],
)  # fmt: skip
SPLITS = record_set(
    "splits", a_field("splits", "name", "sc:Text", None), dataType="cr:Split", key={"@id": "splits/name"},
    data=[{"splits/name": "train"}, {"splits/name": "test"}],
)  # fmt: skip


def of_files(what: str, regex: str | None = None) -> dict[str, Any]:
    transform = {} if regex is None else {"transform": {"regex": regex}}
    return {"fileSet": {"@id": "pictures"}, "extract": {"fileProperty": what}, **transform}


def reference(field: str) -> dict[str, Any]:
    return {"field": {"@id": field}}


PICTURES = record_set(
    "images",
    a_field("images", "image", "sc:ImageObject", of_files("content")),
    a_field("images", "label", "sc:Text", of_files("filename", r"(\w+)_\d"), references=reference("labels/name")),
    a_field("images", "split", "sc:Text", of_files("fullpath", "(train|test)/"), references=reference("splits/name")),
)  # fmt: skip


@pytest.mark.parametrize("is_zipped", [False, True])
def test_files_come_in_with_labels_and_splits_from_their_names(tmp_path: Path, is_zipped: bool) -> None:
    pictures(tmp_path)
    files = [file_set("pictures", "*.png", "image/png")]
    if is_zipped:
        with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
            for name in sorted(tmp_path.rglob("*.png")):
                archive.write(name, name.relative_to(tmp_path))
                name.unlink()
        digest = hashlib.sha256((tmp_path / "all.zip").read_bytes()).hexdigest()
        files = [
            file_object("all.zip", "application/zip", sha256=digest),
            file_set("pictures", "*.png", "image/png", containedIn={"@id": "all.zip"}),
        ]
    path = write(tmp_path, files, [LABELS, SPLITS, PICTURES])
    source = opened(tmp_path)
    found = rows_of(source)
    assert {split: [row["label"] for row in rows] for split, rows in found.items()} == {
        "train": ["cat", "dog"], "test": ["cat"]
    }  # fmt: skip
    assert source.hints == {"label": ClassLabel(names=["cat", "dog"]), "image": Image(shape=(None, None, None))}
    assert source.split_reason == "the field 'split'"
    if is_zipped:  # mlcroissant finds the files of a set without an archive only in folders of their own
        wanted = {
            (row["split"], row["label"], row["image"].getpixel((0, 0))[0])
            for row in read_by_mlcroissant(path, "images")
        }
        assert wanted == {
            (split, row["label"], Pillow.open(io.BytesIO(row["image"])).getpixel((0, 0))[0])
            for split, rows in found.items()
            for row in rows
        }


def test_the_repository_of_a_file_set_is_the_folder_of_the_document(tmp_path: Path) -> None:
    pictures(tmp_path)
    url = "https://huggingface.co/datasets/x/tree/main"
    repository = file_object("repo", "git+https", sha256="https://github.com/mlcommons/croissant/issues/80")
    files = [
        repository | {"contentUrl": url},
        file_set("pictures", "t*/*.png", "image/png", containedIn={"@id": "repo"}),
    ]
    write(tmp_path, files, [LABELS, SPLITS, PICTURES])
    assert {split: len(rows) for split, rows in rows_of(opened(tmp_path)).items()} == {"train": 2, "test": 1}


def test_a_file_set_that_contains_itself_is_refused(tmp_path: Path) -> None:
    pictures(tmp_path)
    inside = [
        file_set("pictures", "*.png", "image/png", containedIn=[{"@id": "others"}]),
        file_set("others", "*.png", "image/png", containedIn=[{"@id": "pictures"}]),
    ]
    write(tmp_path, inside, [LABELS, SPLITS, PICTURES])
    with pytest.raises(SourceError) as caught:
        opened(tmp_path)
    assert str(caught.value) == "croissant.json: the file set 'pictures' contains itself"


def test_a_column_gives_splits(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("x,part\n1,test\n2,train\n3,test\n")
    fields = [
        a_field("rows", "x", "sc:Integer", column("data.csv", "x")),
        a_field("rows", "part", "sc:Text", column("data.csv", "part"), references=reference("splits/name")),
    ]
    write(tmp_path, [file_object("data.csv", "text/csv")], [SPLITS, record_set("rows", *fields)])
    source = opened(tmp_path)
    assert source.split_by == "part"
    rows = [{"x": "1", "part": "test"}, {"x": "2", "part": "train"}, {"x": "3", "part": "test"}]
    assert rows_of(source) == {"train": rows}
    catalog = registry.connect(f"sqlite:///{tmp_path / 'c.db'}", data_dir=tmp_path / "data", create=True)
    with pytest.raises(UsageError, match=r"^files of the kind croissant cannot be read with these options: `splits`"):
        catalog.add(tmp_path / "croissant.json", "x", splits={"train": "*"})
    report = catalog.add(tmp_path / "croissant.json", "x", rename_splits={"test": "held"})
    assert dict(report.splits) == {"train": 1, "held": 2}
    assert [row["x"] for row in catalog.dataset("x").read("train")] == [2]
    (tmp_path / "data.csv").write_text("x,part\n1,test\n2,tain\n")
    with pytest.raises(SourceError) as caught:
        rows_of(opened(tmp_path))
    assert str(caught.value) == "row 3: the split 'tain' is not one of test, train"


def test_records_in_the_document_come_in(tmp_path: Path) -> None:
    fields = [a_field("rows", "x", "sc:Integer", None), a_field("rows", "t", "sc:Text", None)]
    data = [{"rows/x": 1, "rows/t": "a"}, {"rows/x": 2, "rows/t": "b"}]
    path = write(tmp_path, [], [record_set("rows", *fields, data=data)])
    assert rows_of(opened(path)) == {"train": read_by_mlcroissant(path, "rows")}


def test_a_hidden_document_is_counted_by_its_own_size(tmp_path: Path) -> None:
    field = a_field("rows", "x", "sc:Integer", None)
    path = write(tmp_path, [], [record_set("rows", field, data=[{"rows/x": 1}])], name=".croissant.json")
    for _ in range(2):  # without another file, then beside one whose name is after its own
        (document,) = (file for file in opened(path).files if file.role == "metadata")
        assert (document.name, document.num_bytes) == (".croissant.json", path.stat().st_size)
        (tmp_path / "t.csv").write_text("a\n1\n")


@pytest.mark.parametrize("others", [[], ["x/u.csv"]])
def test_a_file_set_in_a_file_set_in_an_archive_is_refused(tmp_path: Path, others: list[str]) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("x/t.csv", *others):
            archive.writestr(name, "a\n1\n")
    files = [
        file_object("a.zip", "application/zip"),
        file_set("s", "x/*.csv", "text/csv", containedIn={"@id": "a.zip"}),
        file_set("s2", "*t.csv", "text/csv", containedIn={"@id": "s"}),
    ]
    source = {"fileSet": {"@id": "s2"}, "extract": {"column": "a"}}
    write(tmp_path, files, [record_set("rows", a_field("rows", "a", "sc:Integer", source))])
    with pytest.raises(SourceError, match=r"^croissant\.json: no file matches \*t\.csv, the file set 's2'") as caught:
        opened(tmp_path)
    assert str(caught.value.hint).startswith("A document names files relative to its own folder: put it next to them.")


def test_one_of_several_record_sets_is_chosen_by_name(tmp_path: Path) -> None:
    resource = table_file(tmp_path, "csv")
    sets = [record_set(name, a_field(name, "x", "sc:Integer", column("data.csv", "id"))) for name in ("one set", "two")]
    write(tmp_path, [resource], sets)
    assert rows_of(opened(tmp_path, records="one set"))["train"][0] == {"x": "1"}
    with pytest.raises(SourceError) as caught:
        opened(tmp_path)
    assert str(caught.value) == "croissant.json: the document has 2 record sets: one set, two"
    assert caught.value.hint == "Choose one: records='one set'"
    with pytest.raises(SourceError) as caught:
        opened(tmp_path, records="too")
    assert str(caught.value) == "croissant.json: the document has no record set 'too'"
    assert caught.value.hint == "Did you mean 'two'? The record sets are: one set, two."


def test_files_elsewhere_and_other_files_are_refused(tmp_path: Path) -> None:
    def open_with(url: str, sha256: str) -> None:
        resource = table_file(tmp_path, "csv") | {"contentUrl": url, "sha256": sha256}
        write(tmp_path, [resource], [record_set("rows", a_field("rows", "x", "sc:Text", column("data.csv", "text")))])
        opened(tmp_path)

    urls = ["https://example.org/data.csv", "/etc/passwd", "../data.csv", "a/%2e%2e/data.csv", "none.csv"]
    calls = [*(partial(open_with, url, "") for url in urls), partial(open_with, "data.csv", "0" * 64)]
    check_errors(GOLDEN / "intake_croissant_files.txt", calls)


CUT = column("data.csv", "x") | {"transform": {"delimiter": ","}}
INSIDE = column("data.csv", "text") | {"extract": {"jsonPath": "$..x"}}
X = a_field("rows", "x", "sc:Text", column("data.csv", "text"))


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    def open_sets(*fields: Any) -> None:
        write(tmp_path, [table_file(tmp_path, "csv")], [record_set("rows", *fields)] if fields else [])
        opened(tmp_path)

    fields: list[list[Any]] = [
        *([], [X, a_field("rows", "y", "sc:Text", column("b.csv", "y"))]),
        [a_field("rows", "x", "sc:Text", column("c.csv", "x"))],
        [a_field("rows", "x", "sc:Text", column("data.csv", "txt"))],
        *([a_field("rows", "x", "sc:Text", CUT)], [a_field("rows", "x", "sc:Text", INSIDE)]),
    ]
    check_errors(GOLDEN / "intake_croissant.txt", (partial(open_sets, *each) for each in fields))


@pytest.mark.parametrize("text", ['{"@context": mlcommons.org/croissant', '["@context", "mlcommons.org/croissant"]'])
def test_malformed_documents_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "croissant.json").write_text(text)
    with pytest.raises(SourceError, match=r"croissant.json: (it is not JSON|expected a Croissant dataset)"):
        opened(tmp_path)


def test_data_that_mentions_croissant_is_data(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"x": "http://mlcommons.org/croissant/1.1"}\n')
    assert opened(tmp_path / "data.jsonl").kind == "json"
    (tmp_path / "data.json").write_text('[{"x": "http://mlcommons.org/croissant/1.1"}]')
    assert opened(tmp_path / "data.json").kind == "json"


def test_records_in_the_document_of_several_types_are_reported_with_their_number(tmp_path: Path) -> None:
    field = a_field("rows", "x", "cr:UnknownType", None)
    path = write(tmp_path, [], [record_set("rows", field, data=[{"rows/x": 1}, {"x": "a"}, {"x": 2**63}])])
    catalog = registry.connect(f"sqlite:///{tmp_path / 'c.db'}", data_dir=tmp_path / "data", create=True)
    with pytest.raises(SourceError) as caught:
        catalog.add(path, "d")
    assert str(caught.value) == (
        'column "x": it is int64 at croissant.json:1, text at croissant.json:2, and uint64 at croissant.json:3'
    )
