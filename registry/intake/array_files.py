"""Opens arrays of NumPy, ``.npy`` and ``.npz``. The first axis is the record; nothing is unpickled.

    x_train.npy y_train.npy x_test.npy y_test.npy   ->  splits train and test, columns x and y
    mnist.npz with x_train, y_train ...             ->  the same
    emb-00000-of-00002.npy emb-00001-of-00002.npy   ->  column emb, one file after the other

Files are mapped, so that memory is bounded. The arrays of an ``.npz`` file are extracted to a temporary folder.
"""

from __future__ import annotations

import shutil
import tokenize
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from registry.errors import SourceError, spell
from registry.features import Feature, Tensor, Text
from registry.intake.archives import archive_errors, require_ratio
from registry.intake.file_parts import account_for_source, refuse_folder_columns
from registry.intake.options import AddOptions
from registry.intake.python_values import array_column, is_storable
from registry.intake.source import MAX_BYTES, MAX_ROWS, Files, Rows, Source, SourcePart, root_of
from registry.intake.split_names import NamedSplits, find_splits, without_split
from registry.shards.arrow_values import import_pyarrow
from registry.splits import counted
from registry.storage import Store
from registry.storage.faults import storage_errors
from registry.storage.temporary import TemporaryStore, check_free_space

_HEADER_FAULTS: Final = (ValueError, SyntaxError, TypeError, RecursionError, tokenize.TokenError)  # it is a Python dict
_UNNAMED: Final = "array"
_PIECE_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArray:
    """An array in a file, described by its header.

    Attributes:
        file: the name of the file.
        member: its name in an ``.npz`` file; None for ``.npy``.
        store: the store of its ``.npy`` file.
        name: the name of that file in ``store``.
        shape: its shape; the first axis is the record.
        dtype: its dtype, with its byte order.
    """

    file: str
    member: str | None
    store: Store
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def label(self) -> str:
        """The name that messages show."""
        return self.file if self.member is None else f"{self.file}[{self.member}]"

    @property
    def row_bytes(self) -> int:
        """The size of a record in bytes."""
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize

    @property
    def form(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """The dtype and the shape of a record, which all arrays of a column share."""
        return self.shape[1:], self.dtype.newbyteorder("=")

    def mapped(self) -> npt.NDArray[Any]:
        """Map the values into memory. Raises SourceError if the file is damaged, or was replaced by another array."""
        array = _read_header(self.store, self.name, self.file, self.member)
        if array != self:
            raise _fault(
                self.file,
                f"{self.label}: the array changed while it was added: "
                f"expected {_shown(self.shape, self.dtype)}, found {_shown(array.shape, array.dtype)}",
                "Wait until the program that writes the file has ended, then try again.",
            )
        path = root_of(self.store) / self.name
        with storage_errors("read", str(path)), archive_errors(self.file), warnings.catch_warnings(action="ignore"):
            values: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
        return values


def open_arrays(files: Files, options: AddOptions) -> Source:
    """Open ``.npy`` and ``.npz`` files; see the module.

    The columns are named after the files, or after the arrays in them, without the names of splits and the numbers of
    shards. The arrays of a split must have the same length.

    Raises:
        SourceError: a file is damaged or contains Python objects, an array has no first axis or an unsupported dtype,
            lengths differ, or the names of splits are ambiguous.
        StorageError: a file cannot be read.
    """
    refuse_folder_columns(files.names, options.splits, hint="Rename the folders.")
    splits = find_splits(files.names, options)
    arrays = {name: _read_headers(files.store, name) for names in splits.files.values() for name in names}
    columns, reason = _columns_by_split(splits, arrays, has_globs=bool(options.splits))
    forms = _check(columns)
    hints = {column: feature for column, form in forms.items() if (feature := _feature(*form)) is not None}
    described = ", ".join(f"{name} ({_shown(*form)})" for name, form in forms.items())
    num_rows = sum(_length(next(iter(those.values()))) for those in columns.values())
    if not num_rows:
        raise SourceError(
            f"{files.location}: the arrays have no rows", hint="Check the path.", details={"location": files.location}
        )
    return Source(
        kind="arrays",
        summary=f"{num_rows:,} rows in {counted(len(arrays), 'array file')}: {described}",
        parts=[part for split, those in columns.items() for part in _parts(split, those)],
        hints=hints,
        is_typed=len(hints) == len(forms),
        files=account_for_source(files, splits, "array file"),
        split_reason=reason,
    )


def _read_headers(store: Store, name: str) -> list[StoredArray]:
    path = root_of(store) / name
    with storage_errors("read", str(path)), path.open("rb") as file:
        if not file.read(4).startswith(b"PK"):
            return [_read_header(store, name, name, None)]
        target = TemporaryStore()
        folder = root_of(target)
        result = []
        with archive_errors(name), zipfile.ZipFile(file) as archive:
            num_bytes = sum(info.file_size for info in archive.infolist())
            require_ratio(name, path, num_bytes)
            check_free_space(str(folder), num_bytes, f"the arrays of {name}")
            for number, info in enumerate(archive.infolist()):
                is_encrypted = bool(info.flag_bits & 1)
                if is_encrypted or not info.filename.endswith(".npy"):
                    problem = "is encrypted" if is_encrypted else "is not an array"
                    raise SourceError(
                        f"{name} contains {info.filename!r}, which {problem}",
                        hint="Write it with numpy.savez, or extract it and add the folder.",
                        details={"file": name, "member": info.filename},
                    )
                copy = f"{number}.npy"
                with (
                    storage_errors("write", str(folder / copy)),
                    archive.open(info) as member,
                    (folder / copy).open("xb") as extracted,
                ):
                    shutil.copyfileobj(member, extracted, _PIECE_BYTES)
                result.append(_read_header(target, copy, name, info.filename.removesuffix(".npy")))
    if not result:
        raise SourceError(f"{name} contains no arrays", hint="Write it again.", details={"file": name})
    return result


def _read_header(store: Store, place: str, name: str, member: str | None) -> StoredArray:
    """Read the header of the ``.npy`` file ``place``. Messages show ``name`` and ``member``."""
    path = root_of(store) / place
    text = name if member is None else f"{name}[{member}]"
    try:
        with (
            storage_errors("read", str(path)),
            path.open("rb") as file,
            warnings.catch_warnings(action="ignore"),  # Python 2 wrote such headers
        ):
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
            offset = file.tell()
    except _HEADER_FAULTS as error:
        reason = str(error).partition(". ")[0].partition(": <ast.")[0]  # the rest is the address of an object of Python
        raise _fault(name, f"{text}: damaged array: {reason}", "Write it again.") from error
    if dtype.hasobject:
        raise _fault(
            name,
            f"{text} contains Python objects, which are stored as a pickle and may run code when they are read",
            "Convert the array to a dtype of numbers or text, such as array.astype(str), and save it again.",
        )
    if not shape:
        raise _fault(
            name,
            f"{text} is a single value: expected an array whose first axis is the record",
            f"Save it as an array with one record: numpy.save({name!r}, array[None])",
        )
    if not is_storable(dtype) or not dtype.itemsize or 0 in shape[1:]:
        raise _fault(
            name,
            f"{text}: the dtype {dtype} with the shape {shape} is not supported",
            "Save numbers, text or times, with each field of a structured or complex array on its own.",
        )
    if dtype.kind in "SUmM" and len(shape) > 1:
        raise _fault(
            name,
            f"{text}: expected one axis for the dtype {dtype}, found the shape {shape}",
            "Save each column on its own.",
        )
    array = StoredArray(file=name, member=member, store=store, name=place, shape=shape, dtype=dtype)
    expected, num_bytes = offset + shape[0] * array.row_bytes, path.stat().st_size
    if num_bytes < expected:
        raise _fault(
            name,
            f"{text}: damaged array: expected {expected:,} bytes, found {num_bytes:,}",
            "Write or download it again.",
        )
    return array


def _columns_by_split(
    splits: NamedSplits, arrays: Mapping[str, Sequence[StoredArray]], *, has_globs: bool
) -> tuple[dict[str, dict[str, list[StoredArray]]], str]:
    """Return the arrays of each column of each split, in order, and the reason for the splits."""
    result: dict[str, dict[str, list[StoredArray]]] = {}
    reason = splits.reason
    is_named = {array.member: array for those in arrays.values() for array in those if array.member is not None}
    inside = {}
    if list(splits.files) == ["train"] and not has_globs and is_named:
        of_members = find_splits([f"{member}.npy" for member in is_named], AddOptions())
        inside = {name.removesuffix(".npy"): split for split, those in of_members.files.items() for name in those}
        if len(of_members.files) > 1:
            reason = "from the names of arrays"
    for split, names in splits.files.items():
        for name in names:
            for array in arrays[name]:
                own = split if array.member is None else inside.get(array.member, split)
                label = name if array.member is None else f"{array.member}.npy"
                column = without_split(label) or _UNNAMED
                result.setdefault(own, {}).setdefault(column, []).append(array)
    return result, reason


def _check(columns: Mapping[str, Mapping[str, Sequence[StoredArray]]]) -> dict[str, Any]:
    """Check that each column has one form in all arrays, and that lengths are equal.

    Returns the form of each column.
    """
    forms: dict[str, Any] = {}
    first: dict[str, StoredArray] = {}
    for split, those in columns.items():
        lengths = {name: _length(arrays) for name, arrays in those.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{those[name][0].label} {length:,}" for name, length in lengths.items())
            raise SourceError(
                f"the arrays of the split {split!r} have different lengths: {told}",
                hint="The first axis is the record. Add unrelated arrays as separate datasets.",
                details={"split": split, "lengths": lengths},
            )
        for name, arrays in those.items():
            for array in arrays:
                other = first.setdefault(name, array)
                if array.form != other.form:
                    raise SourceError(
                        f"column {name!r}: expected {_shown(*other.form)} as in {other.label}, "
                        f"found {_shown(*array.form)} in {array.label}",
                        hint="Save the arrays with the same dtype and shape, or under different names.",
                        details={"column": name, "files": [other.file, array.file]},
                    )
                forms[name] = array.form
    for split, those in columns.items():
        if missing := [name for name in forms if name not in those]:
            raise SourceError(
                f"the split {split!r} has no array for {', '.join(map(repr, missing))}",
                hint=f"Every split needs the same columns. Name splits by {spell('splits', {'NAME': 'GLOB'})}.",
                details={"split": split, "missing": missing},
            )
    return forms


def _length(arrays: Sequence[StoredArray]) -> int:
    return sum(array.shape[0] for array in arrays)


def _shown(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    return f"{dtype} of shape {shape}" if shape else str(dtype)


def _feature(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Feature | None:
    """Return the feature of a column, or None for times, whose feature depends on their unit."""
    if dtype.kind == "U":
        return Text()
    if dtype.kind in "mM":
        return None
    # Without an encoding, a record stores float64 as float32.
    encoding = "bytes" if dtype == np.float64 else "none"
    return Tensor(shape=shape, dtype=bytes if dtype.kind == "S" else dtype, encoding=encoding)


def _parts(split: str, columns: Mapping[str, Sequence[StoredArray]]) -> Iterator[SourcePart]:
    """The part of a split, if it has rows; with one column, a part for each such file, whose rows count from 1."""
    groups: list[Mapping[str, Sequence[StoredArray]]] = [columns]
    if len(columns) == 1:
        groups = [{name: [array]} for name, arrays in columns.items() for array in arrays]
    for group in groups:
        if not _length(next(iter(group.values()))):
            continue
        names = list(dict.fromkeys(array.file for arrays in group.values() for array in arrays))
        shown = ", ".join(names[:4]) + (" ..." if names[4:] else "")
        yield SourcePart(split=split, name=shown, read=partial(_read, group))


def _read(columns: Mapping[str, Sequence[StoredArray]]) -> Iterator[Rows]:
    """Yield the rows of the arrays of a split, in order."""
    row_bytes = sum(arrays[0].row_bytes for arrays in columns.values()) or 1
    step = max(1, min(MAX_ROWS, MAX_BYTES // row_bytes))
    for start in range(0, _length(next(iter(columns.values()))), step):
        values = {name: _read_column(arrays, start, start + step) for name, arrays in columns.items()}
        table = import_pyarrow().table(values)
        yield Rows(table=table, lines=range(start + 1, start + table.num_rows + 1))


def _read_column(arrays: Sequence[StoredArray], start: int, stop: int) -> Any:
    """Return the values ``start``..``stop`` of a column, which may continue from one array to the next."""
    chunks = []
    for array in arrays:
        num_rows = array.shape[0]
        if start < num_rows and stop > 0:
            chunks.append(_as_arrow(array, max(start, 0), min(stop, num_rows)))
        start, stop = start - num_rows, stop - num_rows
    return import_pyarrow().chunked_array(chunks)


def _as_arrow(array: StoredArray, start: int, stop: int) -> Any:
    values = array.mapped()[start:stop]
    try:
        return array_column(values)
    except (import_pyarrow().ArrowException, ValueError, SystemError) as error:
        # Half of a surrogate pair, or a time beyond the range of its unit, for example.
        raise SourceError(
            f"{array.label}: values of the dtype {array.dtype} cannot be stored: "
            f"{str(error).partition(chr(10))[0]:.200} (in the {stop - start:,} values from number {start + 1:,} on)",
            hint="Write it again.",
            details={"file": array.label},
        ) from error


def _fault(name: str, message: str, hint: str) -> SourceError:
    return SourceError(message, hint=hint, details={"file": name})
