"""Arrays of NumPy: columns and splits by name, dtypes, orders, bounded blocks, and arrays that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from registry.errors import SourceError
from registry.features import Tensor, Text
from registry.intake import archives, array_files
from registry.intake.array_files import open_arrays
from registry.intake.listing import list_files
from registry.intake.options import AddOptions
from registry.intake.source import Source


def opened(folder: Path, **splits: str) -> Source:
    return open_arrays(list_files(folder), AddOptions(splits=splits))


def tables(source: Source) -> dict[str, pa.Table]:
    found: dict[str, list[pa.Table]] = {}
    for part in source.parts:
        for rows in part.read():
            found.setdefault(part.split, []).append(rows.table)
    return {split: pa.concat_tables(those) for split, those in found.items()}


def error_of(folder: Path) -> str:
    with pytest.raises(SourceError) as caught:
        opened(folder)
    assert caught.value.hint
    return str(caught.value)


def test_files_of_splits_and_columns(tmp_path: Path) -> None:
    images = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)
    np.save(tmp_path / "x_train.npy", images)
    np.save(tmp_path / "y_train.npy", np.array([1, 2, 3, 4], ">i8"))
    np.save(tmp_path / "x_test.npy", np.asfortranarray(images[:1]))
    np.save(tmp_path / "y_test.npy", np.array([5]))
    source = opened(tmp_path)
    assert source.summary == "5 rows in 4 array files: x (uint8 of shape (3, 2)), y (int64)"
    assert source.hints == {"x": Tensor(shape=(3, 2), dtype=np.uint8), "y": Tensor(shape=(), dtype=np.int64)}
    assert source.is_typed
    found = tables(source)
    assert found["train"].to_pydict() == {"x": images.tolist(), "y": [1, 2, 3, 4]}
    assert found["test"].to_pydict() == {"x": images[:1].tolist(), "y": [5]}
    assert [(part.split, part.name) for part in source.parts] == [
        ("train", "x_train.npy, y_train.npy"),
        ("test", "x_test.npy, y_test.npy"),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:150], "x.npy: damaged array: expected 208 bytes, found 150"),
        (lambda data: data[:10] + b"(" * 118, "x.npy: damaged array: "),
    ],
)
def test_an_array_that_is_damaged_meanwhile_is_an_error(tmp_path: Path, change: Any, message: str) -> None:
    np.save(tmp_path / "x.npy", np.arange(10))
    (part,) = opened(tmp_path).parts
    (tmp_path / "x.npy").write_bytes(change((tmp_path / "x.npy").read_bytes()))
    with pytest.raises(SourceError) as caught:
        list(part.read())
    assert str(caught.value).startswith(message)


def test_an_encrypted_archive_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.arange(3))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    data[6] |= 1
    data[data.rfind(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "x.npz").write_bytes(data)
    assert error_of(tmp_path) == "x.npz contains 'a.npy', which is encrypted"


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_an_archive(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "mnist.npz", x_train=np.eye(3), y_train=[0, 1, 2], x_test=np.eye(3).T[:2], y_test=[0, 1])
    source = opened(tmp_path)
    assert source.split_reason == "from the names of arrays"
    found = tables(source)
    assert found["train"].to_pydict() == {"x": np.eye(3).tolist(), "y": [0, 1, 2]}
    assert found["test"].to_pydict() == {"x": np.eye(3)[:2].tolist(), "y": [0, 1]}
    save(tmp_path / "mnist.npz", a=np.asfortranarray(np.arange(6.0).reshape(3, 2)))
    assert tables(opened(tmp_path))["train"].to_pydict() == {"a": [[0, 1], [2, 3], [4, 5]]}


@pytest.mark.parametrize(
    "array",
    [
        *(np.array([True, False]), np.array([1, 2], np.float16), np.array([2**64 - 1], np.uint64), np.array([0.1])),
        *(np.array(["a", "ß"]), np.array([b"a", b"bc"]), np.array(["2020-01-01"], "datetime64[s]")),
    ],
)
def test_dtypes_are_kept(tmp_path: Path, array: Any) -> None:
    np.save(tmp_path / "a.npy", array)
    source = opened(tmp_path)
    assert tables(source)["train"]["a"].to_pylist() == array.tolist()
    encoding = "bytes" if array.dtype == np.float64 else "none"  # without it, 0.1 would be stored as a float32
    dtype = bytes if array.dtype.kind == "S" else array.dtype
    hints = {"U": {"a": Text()}, "M": {}}
    if array.dtype.kind not in hints:
        hints[array.dtype.kind] = {"a": Tensor(shape=(), dtype=dtype, encoding=encoding)}
    assert source.hints == hints[array.dtype.kind]


def test_files_of_one_column_follow_each_other_in_bounded_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array_files, "MAX_BYTES", 8 * 2)
    for number, length in enumerate([4, 0, 2]):
        np.save(tmp_path / f"emb-{number:05}-of-00003.npy", np.arange(length) + 10 * number)
    source = opened(tmp_path)
    assert [part.name[:9] for part in source.parts] == ["emb-00000", "emb-00002"]
    assert [list(rows.lines) for part in source.parts for rows in part.read()] == [[1, 2], [3, 4], [1, 2]]
    assert tables(source)["train"].to_pydict() == {"emb": [0, 1, 2, 3, 20, 21]}


def test_columns_in_several_files_are_aligned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "MAX_BYTES", 16 * 2)
    for name, pieces in {"x": [range(3), range(3, 5)], "y": [range(1), range(1, 5)]}.items():
        for number, values in enumerate(pieces):
            np.save(tmp_path / f"{name}-{number}.npy", np.array(values))
    assert tables(opened(tmp_path))["train"].to_pydict() == {"x": [0, 1, 2, 3, 4], "y": [0, 1, 2, 3, 4]}


def test_arrays_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.array([{"a": 1}], object), allow_pickle=True)
    assert error_of(tmp_path) == (
        "a.npy contains Python objects, which are stored as a pickle and may run code when they are read"
    )
    np.save(path, np.float32(1))
    assert error_of(tmp_path) == "a.npy is a single value: expected an array whose first axis is the record"
    np.save(path, np.zeros(2, complex))
    assert error_of(tmp_path) == "a.npy: the dtype complex128 with the shape (2,) is not supported"
    np.save(path, np.zeros((2, 2), "U1"))
    assert error_of(tmp_path) == "a.npy: expected one axis for the dtype <U1, found the shape (2, 2)"
    np.save(path, np.zeros(0))
    assert error_of(tmp_path) == f"{tmp_path}: the arrays have no rows"
    np.save(path, np.zeros(100))
    path.write_bytes(path.read_bytes()[:-8])
    assert error_of(tmp_path) == "a.npy: damaged array: expected 928 bytes, found 920"
    np.save(path, np.zeros(1))
    path.write_bytes(path.read_bytes().replace(b"'descr'", b"'descr("))
    assert error_of(tmp_path).startswith("a.npy: damaged array: ")
    np.save(path, np.zeros(1))
    path.write_bytes(path.read_bytes().replace(b"False", b"false"))
    assert error_of(tmp_path) == "a.npy: damaged array: malformed node or string on line 1"
    path.write_bytes(b"hello")
    assert error_of(tmp_path).startswith("a.npy: damaged array: ")
    path.write_bytes(b"")
    assert error_of(tmp_path).startswith("a.npy: damaged array: ")


def test_arrays_that_do_not_fit_together(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    np.save(tmp_path / "y.npy", np.zeros(2))
    assert error_of(tmp_path) == "the arrays of the split 'train' have different lengths: x.npy 3, y.npy 2"
    (tmp_path / "y.npy").unlink()
    np.save(tmp_path / "x-1.npy", np.zeros((3, 2), np.float32))
    assert error_of(tmp_path) == ("column 'x': expected float32 of shape (2,) as in x-1.npy, found float64 in x.npy")
    (tmp_path / "x-1.npy").unlink()
    np.savez(tmp_path / "z.npz", y=np.zeros(3))
    with pytest.raises(SourceError) as caught:
        opened(tmp_path, train="x.npy", test="z.npz")
    assert str(caught.value) == "the split 'train' has no array for 'y'"


def test_text_that_is_not_unicode(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([0x110000], "<u4"))
    content = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(content.replace(b"<u4", b"<U1"))
    with pytest.raises(SourceError) as caught:
        tables(opened(tmp_path))
    assert str(caught.value) == (
        "a.npy: values of the dtype <U1 cannot be stored: a value is not text: it has a number above that of the last "
        "character (in the 1 values from number 1 on)"
    )


def test_a_split_of_empty_arrays_is_left_out(tmp_path: Path) -> None:
    for name, length in {"x_train": 2, "y_train": 2, "x_test": 0, "y_test": 0}.items():
        np.save(tmp_path / f"{name}.npy", np.arange(length))
    assert tables(opened(tmp_path)).keys() == {"train"}


def test_arrays_that_expand_to_far_more_than_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_FREE_BYTES", 2**20)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(2**20))
    assert error_of(tmp_path) == "a.npz expands to more than 200 times its size: a decompression bomb"
