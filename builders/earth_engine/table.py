"""Reads and writes tables as TFRecords.

A row is a tf.train.Example with a feature for each property:

    number            float_list of one value, 32 bits
    array             float_list, its values row by row; the shape is not stored
    text, bytes       bytes_list of one value
    None              no feature

Columns are inferred by reading all rows. Earth Engine exports a table of any size as ``<prefix>.tfrecord.gz``, without
a number in its name.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.exporting.record_file import RecordFile, advancing, check_prefix
from registry.builders.earth_engine.stored.record_forms import StoredColumn, look_at_columns
from registry.errors import FeatureError, RegistryWarning, UsageError, suggest
from registry.storage import Store, open_parent, open_store
from registry.tfrecord import read_blocks, read_records
from registry.wire import FlatValue, decode_features, encode_example

INDEX: Final = "system:index"
"""The property of Earth Engine that names a feature."""

GEO: Final = ".geo"
"""The column of Earth Engine's CSV exports that holds a feature's geometry, as GeoJSON."""

LONGITUDE, LATITUDE = "longitude", "latitude"
"""The columns of which ``earthengine upload table`` makes points."""

_EXACT: Final = 2**24
"""Up to here every whole number is a float of 32 bits."""

_COUNTED: Final = 2**53
"""Larger floats are measurements, whole as all floats of their size are."""


class Table:
    """The rows of one file, in order. Each iteration reads the file again; one row is in memory at a time.

    Args:
        store: the folder.
        filename: name of the file; gzip is detected by the first bytes.
        columns: the properties to read, in order; None reads all, sorted by name.
        shapes: shapes of array columns, by name, because the file does not contain them.

    Attributes:
        filename: as given.

    Raises:
        UsageError: a shape is given for a column that does not exist, or does not fit its rows.
    """

    def __init__(
        self,
        store: Store,
        filename: str,
        *,
        columns: Sequence[str] | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self._store = store
        self.filename = filename
        self._wanted = None if columns is None else tuple(columns)
        self._shapes = {name: tuple(shape) for name, shape in (shapes or {}).items()}

    @property
    def columns(self) -> tuple[StoredColumn, ...]:
        """The columns; the whole file is read to infer them."""
        return self._form[0]

    def __len__(self) -> int:
        """Number of rows; the whole file is read to count them."""
        return self._form[1]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Read the rows: a float if a column has one number in each row, else float32 arrays; texts; None if missing.

        Raises:
            CorruptRecordError, CorruptExampleError: a record is damaged.
        """
        columns = self.columns
        for record in read_records(self._store, self.filename):
            values = decode_features(record)
            yield {column.name: self._value_of(values.get(column.name), column) for column in columns}

    @cached_property
    def _form(self) -> tuple[tuple[StoredColumn, ...], int]:
        """The columns, and the number of rows."""
        path = self._store.locate(self.filename)
        form = look_at_columns((path, block) for block, _ in read_blocks(self._store, self.filename))
        found = {column.name: column for column in form.columns}
        names = list(found) if self._wanted is None else self._wanted
        for name in [*names, *self._shapes]:
            if name not in found and form.num_rows:
                raise UsageError(
                    f"{path} has no column {name!r:.80}",
                    hint=suggest(name, list(found)),
                    details={"column": name, "known": list(found)[:100]},
                )
        for name, shape in self._shapes.items():
            if name in found:
                found[name].check_shape(shape)
        return tuple(found[name] for name in names if name in found), form.num_rows

    def _value_of(self, value: FlatValue | None, column: StoredColumn) -> Any:
        shape = self._shapes.get(column.name)
        if value is None:
            return None
        if isinstance(value, list):
            texts = [_to_text(item) for item in value]
            if column.is_single and shape is None:
                return texts[0] if texts else None  # a feature may be empty instead of missing
            return texts
        if shape is not None:
            return value.reshape(shape)
        return value[0].item() if column.size == 1 else value


def read_table(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Table:
    """The table in a file that Earth Engine exported, or ``write_table`` wrote.

        for row in read_table("Training_demo.tfrecord.gz", shapes={"patch": (3, 3)}):
            print(row["landcover"], row["patch"])

    Args:
        path: path or URL of the file.
        columns: the properties to read, in order; None reads all, sorted by name.
        shapes: shapes of array columns, by name, because the file does not contain them.
    """
    store, filename = open_parent(path)
    return Table(store, filename, columns=columns, shapes=shapes)


def _to_text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


Row: TypeAlias = Mapping[str, Any]
Geometry: TypeAlias = Literal["lonlat", "geojson"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTable:
    """The file that ``write_table`` wrote. ``columns`` are in the requested order, or in order of first occurrence."""

    filename: str
    num_rows: int
    columns: tuple[str, ...]
    num_bytes: int


def write_table(
    rows: Iterable[Row],
    folder: str | os.PathLike[str] | Store,
    prefix: str,
    *,
    columns: Sequence[str] | None = None,
    geometry: Geometry | None = None,
    include_index: bool | str = False,
    overwrite: bool = False,
    advance: Callable[[int], None] | None = None,
) -> ExportedTable:
    """Write rows as Earth Engine exports a feature collection: one Example a row, in order, in one gzip file.

    Args:
        rows: mappings of properties to numbers, truth values, texts, bytes, arrays or lists of numbers, lists of texts,
            or None, which is not written. Under ``.geo`` a row may have its geometry, GeoJSON as a mapping or a text,
            and its name under ``system:index``.
        folder: path or URL of the folder.
        prefix: the name of the file is ``<prefix>.tfrecord.gz``.
        columns: the properties to write; None writes all. Earth Engine calls them selectors.
        geometry: None writes none; ``lonlat`` writes ``longitude`` and ``latitude`` of points; ``geojson`` writes the
            text of each under ``.geo``.
        include_index: write ``system:index``; a text is the name under which to write it.
        overwrite: replace an existing file.
        advance: called with the number of rows written since the last call.

    Raises:
        FeatureError: a value cannot be stored; ``details`` has row and column.
        UsageError: with ``lonlat``, a geometry is not a point; no row has a requested column; or the prefix is invalid.
        AlreadyStoredError: the file exists, and ``overwrite`` is False.

    Warns:
        RegistryWarning: a whole number that a float of 32 bits does not hold, such as a date in milliseconds.
    """
    store = folder if isinstance(folder, Store) else open_store(folder)
    filename = f"{check_prefix(prefix)}.tfrecord.gz"
    if geometry not in (None, "lonlat", "geojson"):
        raise UsageError(f"invalid geometry {geometry!r:.60}", hint="Use None, 'lonlat' or 'geojson'.")
    encoder = _Encoder(columns=columns, geometry=geometry, include_index=include_index)
    with store.create(filename, overwrite=overwrite) as file, RecordFile(file, compressed=True) as records:
        for number, row in enumerate(advancing(rows, advance)):
            _check_row(row, number)
            records.write(encode_example(encoder.encode(row, number)))
        encoder.check_end(records.num_records)
    return ExportedTable(
        filename=filename,
        num_rows=records.num_records,
        columns=tuple(encoder.written),
        num_bytes=store.size(filename),
    )


def _check_row(row: Any, number: int) -> None:
    if not isinstance(row, Mapping):
        raise FeatureError(
            f"row {number}: expected a mapping of names to values, found a {type(row).__name__}",
            details={"row": number},
        )


class _Encoder:
    """Encodes rows; remembers the columns it has seen, and those it has warned about."""

    def __init__(self, *, columns: Sequence[str] | None, geometry: Geometry | None, include_index: bool | str) -> None:
        if isinstance(columns, str):
            raise UsageError(f"columns is the text {columns!r:.60}", hint=f"Write columns=[{columns!r:.60}].")
        self._columns = None if columns is None else list(columns)
        self._geometry = geometry
        self._index = INDEX if include_index is True else include_index or None
        self._warned: set[str] = set()
        self._seen: dict[str, None] = {}
        self.written: dict[str, None] = dict.fromkeys(self._columns or ())

    def encode(self, row: Row, number: int) -> dict[str, FlatValue]:
        given = {name: value for name, value in row.items() if name not in (GEO, INDEX)}
        self._seen |= dict.fromkeys(given)
        chosen = given if self._columns is None else {name: given.get(name) for name in self._columns}
        chosen |= self._index_of(row, number) | self._geometry_of(row, number, chosen)
        values: dict[str, FlatValue] = {}
        name: Any
        for name, value in chosen.items():
            if not isinstance(name, str) or not name:
                raise FeatureError(
                    f"row {number} has a column {name!r:.60}; columns have names", details={"row": number}
                )
            if value is not None:
                values[name] = self._flat(value, name, number)
            self.written.setdefault(name)
        return values

    def check_end(self, num_rows: int) -> None:
        """Refuse requested columns that no row has."""
        for name in self._columns or ():
            if num_rows and name not in self._seen:
                raise UsageError(
                    f"no row has the column {name!r:.80}",
                    hint=suggest(name, self._seen),
                    details={"column": name, "known": list(self._seen)[:100]},
                )

    def _index_of(self, row: Row, number: int) -> dict[str, Any]:
        if self._index is None:
            return {}
        return {self._index: str(row[INDEX]) if row.get(INDEX) is not None else str(number)}

    def _geometry_of(self, row: Row, number: int, given: Mapping[str, Any]) -> dict[str, Any]:
        if self._geometry is None:
            return {}
        geometry = read_geometry(row.get(GEO), number)
        if self._geometry == "geojson":
            return {GEO: None if geometry is None else json.dumps(geometry, separators=(",", ":"))}
        if geometry is None:
            return {name: given.get(name) for name in (LONGITUDE, LATITUDE) if name in given}
        if geometry.get("type") != "Point":
            raise UsageError(
                f"row {number} is a {geometry.get('type')}, which has no longitude and latitude",
                hint="Write whole geometries: geometry='geojson'; --geometry geojson.",
                details={"row": number, "type": geometry.get("type")},
            )
        try:
            longitude, latitude = map(float, geometry["coordinates"][:2])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FeatureError(f"row {number} is a Point without two coordinates", details={"row": number}) from error
        for name in (LONGITUDE, LATITUDE):
            if given.get(name) is not None:
                raise UsageError(
                    f"row {number} has a property {name!r}, and a geometry that would be written under this name",
                    hint="Leave the property out with columns, or the geometry.",
                    details={"row": number, "column": name},
                )
        return {LONGITUDE: longitude, LATITUDE: latitude}

    def _flat(self, value: Any, name: str, number: int) -> FlatValue:
        if isinstance(value, str | bytes):
            return [_to_bytes(value, name, number)]
        if isinstance(value, list | tuple) and value and all(isinstance(item, str | bytes) for item in value):
            return [_to_bytes(item, name, number) for item in value]
        try:
            array = np.asarray(value)
            if array.dtype.kind == "O" and all(item is None or isinstance(item, int | float) for item in array.flat):
                array = array.astype(np.float64)  # an integer beyond 64 bits; a null of JSON in a list, which is NaN
        except (ValueError, OverflowError) as error:  # a ragged list, an integer beyond all floats
            raise _no_feature(value, name, number) from error
        if array.dtype.kind not in "buif":
            raise _no_feature(value, name, number)
        self._warn_of_large(array, name, number)
        with np.errstate(over="ignore"):  # beyond float32 is infinite
            return np.ascontiguousarray(array, np.float32).reshape(-1)

    def _warn_of_large(self, array: npt.NDArray[Any], name: str, number: int) -> None:
        """Warn once for each column about a whole number that float32 changes."""
        if name in self._warned or not array.size or array.dtype.kind == "b":
            return
        if array.dtype.kind == "f":
            array = array[(np.abs(array) <= _COUNTED) & (array == np.trunc(array))]
        changed = array[np.abs(array.astype(np.float64)) > _EXACT]
        with np.errstate(over="ignore"):
            changed = changed[changed.astype(np.float32).astype(np.float64) != changed.astype(np.float64)]
        if changed.size:
            self._warned.add(name)
            stored = np.float32(changed.flat[0])
            warnings.warn(
                f"column {name!r}: {changed.flat[0]} of row {number} is stored as {stored:.0f}, because tables store "
                "numbers as float32, which is exact to 16,777,216. Store it as text, or split it",
                RegistryWarning,
                stacklevel=5,
            )


def read_geometry(value: Any, number: int) -> dict[str, Any] | None:
    """The geometry under ``.geo`` of row ``number``: GeoJSON as given, or parsed from text; None if there is none."""
    if value is None or value in ("", b""):
        return None
    if isinstance(value, str | bytes):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise FeatureError(f"row {number}: {GEO} is not GeoJSON: {value!r:.80}", details={"row": number}) from error
    if value is None:
        return None
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise FeatureError(
            f"row {number}: {GEO} is not a GeoJSON geometry: {value!r:.80}",
            hint='Write an object such as {"type": "Point", "coordinates": [8.5, 47.4]}.',
            details={"row": number},
        )
    return dict(value)


def _to_bytes(value: str | bytes, name: str, number: int) -> bytes:
    try:
        return value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError as error:
        raise FeatureError(
            f"row {number}, column {name!r}: {value!r:.80} is not valid Unicode text",
            details={"row": number, "column": name},
        ) from error


def _no_feature(value: Any, name: str, number: int) -> FeatureError:
    return FeatureError(
        f"row {number}, column {name!r:.80}: expected a number, text or array of numbers, found {value!r:.80}",
        hint="Convert it, or choose other columns: columns=[...]; --column NAME.",
        details={"row": number, "column": str(name)},
    )
