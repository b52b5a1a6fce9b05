"""Folders of images, audio and video: their bytes, labels by folder or metadata, and files that cannot be used."""

from __future__ import annotations

import io
import json
import tracemalloc
import wave
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as Pillow
from support.media_samples import IMAGES, VIDEOS

from registry.errors import SourceError
from registry.features import Audio, ClassLabel, Image, Tensor
from registry.images.png import encode_png
from registry.intake import file_parts
from registry.intake.listing import list_files
from registry.intake.media_bytes import CheckMedia, other_files
from registry.intake.media_files import find_labels, open_media
from registry.intake.options import AddOptions
from registry.intake.source import FileUse, Rows, Source

PNG = encode_png(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))


def jpeg(size: int = 8) -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(np.zeros((size, size, 3), np.uint8)).save(file, "JPEG")
    return file.getvalue()


def sound(rate: int = 8000, channels: int = 1) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as one:
        one.setnchannels(channels)
        one.setsampwidth(2)
        one.setframerate(rate)
        one.writeframes(bytes(40 * channels))
    return file.getvalue()


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def images(folder: Path, files: dict[str, bytes], **splits: str) -> Source:
    return open_media(list_files(write(folder, files)), AddOptions(kind="images", splits=splits, paths=False))


def rows_of(source: Source) -> list[Rows]:
    return [rows for part in source.parts for rows in part.read()]


def values(source: Source) -> dict[str, dict[str, object]]:
    return {
        key: row for rows in rows_of(source) for key, row in zip(rows.keys or (), rows.table.to_pylist(), strict=True)
    }


def bad(source: Source) -> list[str]:
    return [str(one) for rows in rows_of(source) for one in rows.bad]


def test_labels_by_folder_and_splits(tmp_path: Path) -> None:
    files = {"train/dog/1.png": PNG, "train/cat/2.jpg": jpeg(), "test/cat/test.png": PNG}
    source = images(tmp_path, files)
    assert values(source) == {name: {"image": content, "label": name.split("/")[1]} for name, content in files.items()}
    assert source.hints == {"image": Image(shape=(None, None, 3)), "label": ClassLabel(names=["cat", "dog"])}
    assert list(source.hints) == ["image", "label"]
    assert source.is_typed
    assert source.splits == ("train", "test")
    assert source.summary == "3 images (png, jpg) in 3 folders; label: the names of 2 folders, sorted"
    assert source.split_reason == "from the names of folders"
    assert sum(use.num_files for use in source.files) == 3
    assert {use.role for use in source.files} == {"records"}


NO_LABEL = "no label: not every file is exactly one folder below the same folder"


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["1.png", "2.png"], "no label: no split has two folders"),
        (["cat/1.png", "cat/2.png"], "no label: no split has two folders"),
        (["train/1.png", "test/2.png"], "no label: no split has two folders"),
        (["cat/1.png", "2.png"], f"{NO_LABEL}, such as '2.png'"),
        (["cat/1.png", "dog/big/2.png"], f"{NO_LABEL}, such as 'dog/big/2.png'"),
        (["a/cat/1.png", "b/dog/2.png"], f"{NO_LABEL}, such as 'b/dog/2.png'"),
        (
            ["cat/1.png", "dog /2.png"],
            "no label: invalid label name 'dog ': expected one line of text without surrounding spaces",
        ),
    ],
)
def test_folders_that_are_not_classes(tmp_path: Path, names: list[str], reason: str) -> None:
    source = images(tmp_path, dict.fromkeys(names, PNG))
    assert all(list(row) == ["image"] for row in values(source).values())
    assert source.summary.endswith(f"; {reason}")


def test_a_mask_next_to_its_picture_is_stated(tmp_path: Path) -> None:
    told = (
        "; 1.png and 1_mask are two records: for one, replace _mask by .mask, and add a tar of the folder"
        "; no label: no split has two folders"
    )
    assert images(tmp_path, dict.fromkeys(["1.png", "1_mask.png", "2.png"], PNG)).summary == f"3 images (png){told}"
    other = images(tmp_path / "other", dict.fromkeys(["1_mask.png", "gas_mask.png"], PNG)).summary
    assert other == "2 images (png); no label: no split has two folders"


@pytest.mark.parametrize(("first", "second"), [("Cat", "cat"), ("caf\u00e9", "cafe\u0301")])
def test_classes_that_look_alike_are_named(first: str, second: str) -> None:
    label, reason = find_labels({"train": [f"train/{first}/1", "train/dog/1"], "test": [f"test/{second}/1"]})
    assert label is not None
    assert label.num_classes == 3
    alike = " and ".join(map(ascii, sorted([first, second])))
    assert reason == f"the names of 3 folders, sorted; {alike} may be the same class"


def test_classes_below_a_common_folder() -> None:
    label, _ = find_labels({"train": ["x/a/cat/1", "x/a/dog/1"], "test": ["x/b/cat/1"]})
    assert label == ClassLabel(names=["cat", "dog"])


def test_hostile_names_are_keys(tmp_path: Path) -> None:
    names = ["photo of a train.jpg", "test.png", "🚂.png", "new\nline.png", "A.png", "a.png", "a" * 251 + ".png"]
    source = images(tmp_path, dict.fromkeys(names, PNG))
    assert list(values(source)) == sorted(names)
    assert source.splits == ("train",)
    assert source.split_reason == "one split: no folder is named after a split"


def test_files_that_are_not_what_their_names_say_cannot_be_used(tmp_path: Path) -> None:
    source = images(
        tmp_path,
        {
            "1.png": PNG,
            "empty.png": b"",
            "html.jpg": b"<!DOCTYPE html>",
            "jpeg.png": jpeg(),
            "other.png": b"hello",
            "pointer.png": b"version https://git-lfs.github.com/spec/v1\n",
            "short.jpg": jpeg()[:-30],
            "short.png": PNG[:-20],
            "webp.jpg": b"RIFF\0\0\0\0WEBPVP8 ",
            "wrong.png": PNG[:45] + b"\xff" + PNG[46:],
        },
    )
    assert sorted(values(source)) == ["1.png", "jpeg.png"]
    assert bad(source) == [
        "empty.png: it is empty",
        "html.jpg: expected JPEG by its name, found HTML",
        "other.png: expected PNG by its name, found other bytes",
        "pointer.png: expected PNG by its name, found Git LFS pointer",
        "short.jpg: damaged JPEG: it is truncated",
        "short.png: damaged PNG: it is truncated",
        "webp.jpg: expected JPEG by its name, found WebP",
        "wrong.png: damaged PNG: the checksum of chunk 'IDAT' is wrong",
    ]


def test_a_thumbnail_or_bytes_after_the_end_do_not_hide_or_fake_the_end_of_a_jpeg() -> None:
    whole = jpeg()
    thumbnail = whole[:2] + b"\xff\xe1" + (len(whole) + 2).to_bytes(2, "big") + whole + whole[2:]
    check = CheckMedia(picture=Image(shape=(None, None, None)))
    assert check("a.jpg", thumbnail) == thumbnail
    assert check("a.jpg", thumbnail + b"\0\xff\xda trailing") != b""
    with pytest.raises(file_parts.BadFileError, match="damaged JPEG: it is truncated"):
        check("a.jpg", thumbnail[:-10])


def test_other_formats_are_bytes(tmp_path: Path) -> None:
    source = images(tmp_path, {"1.png": PNG, "2.gif": IMAGES["gif"], "3.webp": IMAGES["gif"]})
    assert source.hints == {"image": Tensor(shape=(), dtype=bytes, description="The bytes of an image file.")}
    assert values(source) == {"1.png": {"image": PNG}, "2.gif": {"image": IMAGES["gif"]}}
    assert bad(source) == ["3.webp: expected WebP by its name, found GIF"]


def test_audio_and_video(tmp_path: Path) -> None:
    files = {"a/1.wav": sound(), "b/2.wav": sound(channels=2), "a/3.wav": sound()[:20]}
    source = open_media(list_files(write(tmp_path / "audio", files)), AddOptions(kind="audio", paths=False))
    assert source.hints["audio"] == Audio(shape=(None, 2), dtype="int32", sample_rate=8000, lazy_decode=True)
    assert values(source) == {
        "a/1.wav": {"audio": files["a/1.wav"], "label": "a"},
        "b/2.wav": {"audio": files["b/2.wav"], "label": "b"},
    }
    assert bad(source) == ["a/3.wav: damaged WAV file: the fmt or data chunk is missing"]
    files = {"1.wav": sound(8000), "2.wav": sound(16000), "3.wav": sound()[:20]}
    source = open_media(list_files(write(tmp_path / "rates", files)), AddOptions(kind="audio", paths=False))
    assert source.hints["audio"] == Audio(shape=(None,), dtype="int32", lazy_decode=True)
    assert bad(source) == ["3.wav: damaged WAV file: the fmt or data chunk is missing"]
    source = open_media(
        list_files(write(tmp_path / "video", {"1.mp4": VIDEOS["mp4"], "1.txt": b""})),
        AddOptions(kind="videos", paths=False),
    )
    assert source.hints == {"video": Tensor(shape=(), dtype=bytes, description="The bytes of a video file.")}
    assert values(source) == {"1.mp4": {"video": VIDEOS["mp4"]}}
    assert source.files[-1] == FileUse(name="1.txt", role="skipped", reason="not a video by its name")


def test_globs_decide_over_folders(tmp_path: Path) -> None:
    source = images(tmp_path, {"a/1.png": PNG, "b/2.png": PNG, "c/3.png": PNG}, train="a", test="b/*")
    assert [(part.split, part.name) for part in source.parts] == [("train", "a/1.png"), ("test", "b/2.png")]
    assert source.files[-1] == FileUse(name="c/3.png", role="skipped", reason="no glob matches it", num_bytes=len(PNG))


def test_rows_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_parts, "MAX_BYTES", 3 * len(PNG))
    source = images(tmp_path, {f"{number}.png": PNG for number in range(8)})
    assert [part.name for part in source.parts] == ["0.png to 7.png"]
    assert [list(rows.lines) for rows in rows_of(source)] == [[1, 2, 3], [4, 5, 6], [7, 8]]


def test_metadata_of_parquet(tmp_path: Path) -> None:
    names = ["./2.png", "1.png", "none.png", "1.png", None]
    table = pa.table({"file_name": names, "score": [2, 1, 0, 0, 0], "label": ["b", "a", "", "", ""]})
    write(tmp_path, {"train/1.png": PNG, "train/2.png": PNG, "train/3.png": PNG})
    pq.write_table(table, tmp_path / "train/metadata.parquet")
    source = images(tmp_path, {})
    assert values(source) == {
        "train/1.png": {"image": PNG, "score": 1, "label": "a"},
        "train/2.png": {"image": PNG, "score": 2, "label": "b"},
    }
    place = "train/metadata.parquet:{}, column 'file_name': "
    assert sorted(bad(source)) == sorted(
        [
            place.format(3) + "the file 'none.png' does not exist",
            place.format(4) + "a second entry for '1.png', after line 2; a file has one, whose values may be lists",
            place.format(5) + "file_name is missing",
            "train/3.png: train/metadata.parquet has no entry for it",
        ]
    )
    assert not source.is_typed
    assert source.summary == (
        "3 images (png) in 1 folder; metadata from 1 file, 3 entries without a file, 1 image without an entry"
    )
    assert [use.name for use in source.files if use.role == "metadata"] == ["train/metadata.parquet"]


def test_metadata_of_json_and_csv(tmp_path: Path) -> None:
    lines = [{"file_name": "1.png", "tags": ["a"]}, {"file_name": "b/2.png", "tags": []}]
    text = "\n".join(map(json.dumps, lines)).encode()
    source = images(tmp_path / "json", {"1.png": PNG, "b/2.png": PNG, "metadata.jsonl": text})
    assert values(source)["1.png"] == {"image": PNG, "tags": ["a"]}
    text = b"file_name,code\n1.png,007\n"
    source = images(tmp_path / "csv", {"1.png": PNG, "metadata.csv": text})
    assert values(source)["1.png"] == {"image": PNG, "code": "007"}
    assert source.is_text


def test_metadata_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        images(tmp_path / "1", {"1.png": PNG, "metadata.csv": b"name,code\n1.png,007\n"})
    assert str(caught.value) == "metadata.csv has no column 'file_name', only 'name', 'code'"
    with pytest.raises(SourceError) as caught:
        images(tmp_path / "2", {"1.png": PNG, "metadata.csv": b"file_name,image\n1.png,007\n"})
    assert str(caught.value) == ("metadata.csv has a column 'image', which is the name of the column of the files")
    with pytest.raises(SourceError) as caught:
        images(tmp_path / "3", {"1.png": PNG, "metadata.csv": b"", "a/metadata.jsonl": b""})
    assert str(caught.value) == "metadata files must have one format, found a/metadata.jsonl, metadata.csv"
    with pytest.raises(SourceError) as caught:
        images(
            tmp_path / "4",
            {"a/1.png": PNG, "a/metadata.csv": b"file_name,x\n1.png,7\n", "b/metadata.csv": b"file_name,y\n2.png,7\n"},
        )
    assert str(caught.value) == (
        "a/metadata.csv and b/metadata.csv have different columns: b/metadata.csv lacks 'x', "
        "and a/metadata.csv lacks 'y'"
    )


def test_a_folder_without_images(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        images(tmp_path, {"1.txt": b""})
    assert str(caught.value) == f"{tmp_path}: no image among 1 files"


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary_view()])
def test_pictures_in_a_column_are_recognized_by_their_first_bytes(kind: pa.DataType) -> None:
    files = pa.array([*(PNG + bytes(2**20) for _ in range(8)), None, b"GIF89a" + bytes(100)], kind)
    tracemalloc.start()
    try:
        assert list(other_files(Image(shape=(None, None, 3)), files)) == [9]
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
