"""Folders of media of any mix of formats are added, and every record has the bytes, or the pixels, of its file."""

from __future__ import annotations

import io
import json
import re
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow
from support.media_samples import IMAGES, SOUNDS, VIDEOS

import registry
from registry.errors import UnusableRowsError
from registry.features import Audio, Image
from registry.intake.detect import open_source
from registry.intake.options import AddOptions
from registry.intake.plan import plan_source

KINDS = {"images": ("image", IMAGES), "audio": ("audio", SOUNDS), "videos": ("video", VIDEOS)}
PICTURES = ("png", "jpg")


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def pixels(content: bytes) -> bytes:
    return np.asarray(Pillow.open(io.BytesIO(content))).tobytes()


def contents(dataset: registry.Dataset, split: str, column: str) -> Counter[tuple[Any, ...]]:
    """How often each record occurs: its bytes, or the pixels of an Image, and its label or number."""
    label = dataset.features.get("label")
    found: Counter[tuple[Any, ...]] = Counter()
    for example in dataset.read(split):
        value = example[column]
        rest = label.int2str(int(example["label"])) if label is not None else example.get("number")
        found[value if isinstance(value, bytes) else np.asarray(value).tobytes(), rest] += 1
    return found


@st.composite
def folders(draw: st.DrawFn) -> tuple[str, dict[str, bytes], str]:
    """A kind of media, the files of a folder by name, and ``label``, ``metadata`` or ``none``."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    samples = KINDS[kind][1]
    mostly = st.sampled_from(PICTURES if kind == "images" else sorted(samples)[:2])
    formats = draw(st.lists(st.one_of(st.sampled_from(sorted(samples)), mostly), min_size=1, max_size=6))
    columns = draw(st.sampled_from(["label", "metadata", "none"]))
    splits = draw(st.sampled_from([[""], ["train/", "test/"]]))
    files = {}
    for number, one in enumerate(formats):
        folder = ["cat/", "dog/"][number % 2] if columns == "label" else ""
        suffix = draw(st.sampled_from([one, one.upper()]))
        files[f"{splits[number // 2 % len(splits)]}{folder}{number}.{suffix}"] = samples[one]
    return kind, files, columns


@given(folders())
def test_any_mix_of_formats_is_added_and_read_back(folder: tuple[str, dict[str, bytes], str]) -> None:
    kind, files, columns = folder
    column = KINDS[kind][0]
    with tempfile.TemporaryDirectory() as name:
        root = write(Path(name) / "source", files)
        if columns == "metadata":
            lines = [json.dumps({"file_name": file, "number": place}) for place, file in enumerate(files)]
            (root / "metadata.jsonl").write_text("\n".join(lines))
        with registry.connect(Path(name) / "catalog.db") as catalog:
            report = catalog.add(root, "media")
            dataset = catalog.dataset("media")
            feature = dataset.features[column]
            if kind == "images":
                assert isinstance(feature, Image) == all(
                    re.search(r"\.(png|jpg|bmp|tif|webp)$", file.lower()) for file in files
                )
                assert ("stored as bytes" in report.plan.source.summary) == (not isinstance(feature, Image))
            splits = {file.partition("/")[0] if file[0] == "t" else "train" for file in files}
            assert set(report.splits) == splits
            if isinstance(feature, Audio):  # its samples are the subject of tests of the feature
                assert {split: len(list(dataset.read(split))) for split in splits} == dict(report.splits)
                return
            for split in splits:
                expected = Counter(
                    (
                        pixels(content) if isinstance(feature, Image) else content,
                        place
                        if columns == "metadata"
                        else file.split("/")[-2]
                        if "label" in dataset.features
                        else None,
                    )
                    for place, (file, content) in enumerate(files.items())
                    if file.startswith(f"{split}/") or file[0] != "t"
                )
                assert contents(dataset, split, column) == expected


ALL = IMAGES | SOUNDS | VIDEOS | {"pdf": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "bin": bytes(range(256))}
BYTES = list(ALL.values())


def tar(path: Path, files: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def npz(folder: Path) -> Path:
    np.savez(folder / "x.npz", x=np.array(BYTES))
    return folder / "x.npz"


def npy(folder: Path) -> Path:
    np.save(folder / "x.npy", np.array(BYTES))
    return folder / "x.npy"


def parquet(folder: Path, kind: pa.DataType) -> Path:
    pq.write_table(pa.table({"x": pa.array(BYTES, kind)}), folder / "x.parquet")
    return folder / "x.parquet"


def arrow(folder: Path) -> Path:
    table = pa.table({"x": pa.array(BYTES, pa.binary()).dictionary_encode()})
    with pa.ipc.new_file(folder / "x.arrow", table.schema) as writer:
        writer.write(table)
    return folder / "x.arrow"


def saved_dataset(folder: Path) -> Path:
    features = datasets.Features({"x": datasets.Image(decode=False)})
    rows = {"x": [{"bytes": content, "path": None} for content in BYTES]}
    datasets.Dataset.from_dict(rows, features).save_to_disk(folder / "x")
    return folder / "x"


SOURCES: dict[str, Callable[[Path], Any]] = {
    "npy": npy,
    "npz": npz,
    "arrow": arrow,
    "parquet": lambda folder: parquet(folder, pa.binary()),
    "parquet of views": lambda folder: parquet(folder, pa.binary_view()),
    "hugging face": saved_dataset,
    "pandas": lambda _: pd.DataFrame({"x": BYTES}),
    "polars": lambda _: pl.DataFrame({"x": BYTES}),
    "array": lambda _: {"x": np.array(BYTES)},
    "array of objects": lambda _: {"x": np.array(BYTES, object)},
    "rows": lambda _: [{"x": content} for content in BYTES],
}


@pytest.mark.parametrize("source", SOURCES)
def test_columns_of_files_of_every_format_are_read_back(tmp_path: Path, source: str) -> None:
    """An array of NumPy drops the NULs at the end of a value, and no others."""
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.add(SOURCES[source](tmp_path), "media")
        found = [example["x"] for example in catalog.dataset("media").read("train")]
    expected = [content.rstrip(b"\0") for content in BYTES] if source in ("npy", "npz", "array") else BYTES
    assert sorted(found) == sorted(expected)


def test_a_webdataset_holds_files_of_every_format(tmp_path: Path) -> None:
    files = {f"{number}.{suffix}": content for number in range(2) for suffix, content in ALL.items()}
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.add(tar(tmp_path / "media.tar", files), "media", paths=False)
        for example in catalog.dataset("media").read("train"):
            assert {suffix: value for suffix, value in example.items() if isinstance(value, bytes)} == {
                suffix: content for suffix, content in ALL.items() if suffix not in PICTURES
            }
            for suffix in PICTURES:
                assert np.asarray(example[suffix]).tobytes() == pixels(ALL[suffix])


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("suffix", ["zip", "tar"])
def test_archives_hold_files_of_every_format_with_labels(tmp_path: Path, kind: str, suffix: str) -> None:
    column, samples = KINDS[kind]
    files = {
        f"{'cat' if place % 2 else 'dog'}/{place}.{one}": data for place, (one, data) in enumerate(samples.items())
    }
    if suffix == "tar":
        tar(tmp_path / "media.tar", files)
    else:
        with zipfile.ZipFile(tmp_path / "media.zip", "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.add(tmp_path / f"media.{suffix}", "media")
        found = contents(catalog.dataset("media"), "train", column)
    assert found == Counter((content, name.partition("/")[0]) for name, content in files.items())


@pytest.mark.parametrize(("kind", "suffix"), [(kind, one) for kind, (_, some) in KINDS.items() for one in some])
def test_a_file_of_each_format_alone(tmp_path: Path, kind: str, suffix: str) -> None:
    column, samples = KINDS[kind]
    content = samples[suffix]
    source = open_source(write(tmp_path, {f"1.{suffix}": content}) / f"1.{suffix}", AddOptions(paths=False))
    schema = plan_source(source, AddOptions()).schema
    (rows,) = source.parts[0].read()
    assert source.kind == kind
    (row,) = schema.convert("1", rows).table.to_pylist()
    if suffix in ("bmp", "tif", "webp"):  # a PNG of the same pixels
        assert row[column].startswith(b"\x89PNG")
        assert pixels(row[column]) == pixels(content)
    else:
        assert row == {column: content}


@pytest.mark.parametrize(
    ("kind", "samples", "reason"),
    [
        ("Image", [IMAGES["png"], IMAGES["gif"]], "neither a JPEG nor a PNG of 8 bits"),
        ("Image", [IMAGES["gif"], IMAGES["png"]], "neither a JPEG nor a PNG of 8 bits"),
        ("Audio", [SOUNDS["wav"], SOUNDS["m4a"]], "not a sound of 8000 samples per second that can be decoded here"),
        ("Audio", [SOUNDS["wav"], SOUNDS["mp3"]], "not a sound of 8000 samples per second that can be decoded here"),
    ],
)
@pytest.mark.parametrize("is_list", [False, True])
def test_an_odd_file_in_a_column_of_hugging_face_makes_it_bytes(
    tmp_path: Path, kind: str, samples: list[bytes], reason: str, is_list: bool
) -> None:
    values: list[Any] = [{"bytes": content, "path": None} for content in samples]
    feature = getattr(datasets, kind)(decode=False)
    features = datasets.Features({"x": datasets.List(feature) if is_list else feature})
    table = pa.table({"x": [[one] for one in values] if is_list else values}, features.arrow_schema)
    pq.write_table(table, tmp_path / "x.parquet")
    with registry.connect(tmp_path / "catalog.db") as catalog:
        report = catalog.add(tmp_path / "x.parquet", "media")
        found = [example["x"] for example in catalog.dataset("media").read("train")]
    assert sorted(bytes(one[0]) if is_list else one for one in found) == sorted(samples)
    (column,) = report.plan.schema.columns
    place = 1 if samples[0] == IMAGES["gif"] else 2
    assert column.reason == f"the bytes of the files, because x.parquet:{place} is {reason}"


@pytest.mark.parametrize("formats", [("png", "gif"), ("gif", "png"), ("gif", "webp")])
def test_splits_of_hugging_face_may_begin_with_different_formats(tmp_path: Path, formats: tuple[str, str]) -> None:
    features = datasets.Features({"x": datasets.Image(decode=False)})
    splits = dict(zip(("train", "test"), formats, strict=True))
    given = datasets.DatasetDict(
        {
            split: datasets.Dataset.from_dict({"x": [{"bytes": IMAGES[one], "path": None}]}, features)
            for split, one in splits.items()
        }
    )
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.add(given, "media")
        for split, one in splits.items():
            assert [example["x"] for example in catalog.dataset("media").read(split)] == [IMAGES[one]]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (IMAGES["png"], IMAGES["gif"]),
        (IMAGES["webp"], IMAGES["gif"]),
        (SOUNDS["wav"], SOUNDS["m4a"]),
        (SOUNDS["wav"], SOUNDS["mp3"]),
    ],
)
def test_folders_of_different_formats_may_be_splits(tmp_path: Path, first: bytes, second: bytes) -> None:
    suffixes = {content: suffix for suffix, content in (IMAGES | SOUNDS).items()}
    given = {
        split: write(tmp_path / split, {f"1.{suffixes[content]}": content})
        for split, content in (("train", first), ("test", second))
    }
    column = "image" if first in IMAGES.values() else "audio"
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.add(given, "media")
        for split, content in (("train", first), ("test", second)):
            assert [example[column] for example in catalog.dataset("media").read(split)] == [content]


def test_a_failed_download_in_a_column_of_images_is_a_row_that_cannot_be_used(tmp_path: Path) -> None:
    samples = [IMAGES["png"], b"<html>not found</html>", b"", IMAGES["png"][:-20]]
    features = datasets.Features({"x": datasets.Image(decode=False)})
    dataset = datasets.Dataset.from_dict({"x": [{"bytes": one, "path": None} for one in samples]}, features)
    with registry.connect(tmp_path / "catalog.db") as catalog:
        with pytest.raises(UnusableRowsError) as caught:
            catalog.add(dataset, "media")
        assert catalog.add(dataset, "media", skip_bad=3).splits == {"train": 1}
    assert str(caught.value) == (
        "3 rows or files cannot be used\n"
        "  data:2, column 'x': expected a PNG or JPEG file, found other bytes\n"
        "  data:3, column 'x': expected a PNG or JPEG file, found other bytes\n"
        "  data:4, column 'x': damaged PNG: it is truncated"
    )


def test_the_summary_says_why_images_and_sounds_are_bytes(tmp_path: Path) -> None:
    source = open_source(write(tmp_path / "1", {f"{place}.{one}": IMAGES[one] for place, one in enumerate(PICTURES)}))
    assert source.summary == "2 images (jpg, png); no label: no split has two folders"
    source = open_source(write(tmp_path / "1", {"2.gif": IMAGES["gif"]}))
    assert source.summary == (
        "3 images (gif, jpg, png), stored as bytes: 2.gif: it has 2 frames, but an Image has only one; "
        "no label: no split has two folders"
    )
    source = open_source(write(tmp_path / "2", {"1.wav": SOUNDS["wav"], "2.m4a": SOUNDS["m4a"]}))
    assert source.summary == (
        "2 audio files (m4a, wav), stored as bytes: not all can be decoded here as sounds of one shape; "
        "no label: no split has two folders"
    )
