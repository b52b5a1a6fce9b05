"""Reads and writes rows as CSV, GeoJSON, JSON and JSON lines, by the suffix of the file.

    .csv                 a header and rows, as ``registry add`` reads them; a column is numbers if every cell is one
                         without leading zeros, else text; [1, 2] is an array
    .geojson             a FeatureCollection; the geometry of a feature is under ``.geo``, its id under ``system:index``
    .geojsonl .ndjson    a feature, or a row, in each line, as ``.jsonl``
    .json                a list of rows, or a FeatureCollection

Geometries are handled as in Earth Engine's own CSV exports: as a text of GeoJSON under ``.geo``.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from registry.builders.earth_engine.exporting.record_file import advancing
from registry.builders.earth_engine.table import GEO, INDEX, LATITUDE, LONGITUDE, Row, Table, read_geometry
from registry.errors import FeatureError, PreparedFormatError, RegistryWarning, UsageError
from registry.shards import import_pyarrow
from registry.storage import Store, open_parent

if TYPE_CHECKING:
    import pyarrow as pa

    from registry.intake import Source

_CSV: Final = (".csv",)
_LINES: Final = (".geojsonl", ".jsonl", ".ndjson")
_COLLECTIONS: Final = (".geojson", ".json")
SUFFIXES: Final = (*_CSV, *_COLLECTIONS, *_LINES)
"""The files that hold rows."""

_WHOLE: Final = 2**53
_MAX_LINE: Final = 2**28
_MAX_DOCUMENT: Final = 2**30


def is_table_file(path: str | os.PathLike[str]) -> bool:
    """Whether the suffix of ``path`` is that of a file of rows."""
    return Path(path).suffix.lower() in SUFFIXES


def read_rows(path: str | os.PathLike[str], *, text: Iterable[str] = ()) -> Iterator[Row]:
    """The rows of a file, in order, as ``write_table`` takes them.

    CSV and lines are read in bounded memory, CSV twice: the first time to learn which columns are numbers. A collection
    is read as a whole.

    Args:
        path: path of the file; its suffix decides the format.
        text: columns of a CSV file that are text, though each cell is a number.

    Raises:
        UsageError: the suffix is unknown, or a column in ``text`` does not exist.
        PreparedFormatError: the file is malformed; the message names the row.
        SourceError: a CSV file has no header or no rows, or is not text.
        MissingExtraError: pyarrow, which reads CSV, is not installed.
        StorageError: it cannot be read.
    """
    store, name = open_parent(path)
    suffix = Path(name).suffix.lower()
    if suffix in _CSV:
        return _read_csv(path, name, frozenset(text))
    if list(text):
        raise UsageError("only the columns of a CSV file can be told to be text", hint="In JSON a text has quotes.")
    if suffix in _LINES:
        return _read_lines(store, name)
    if suffix in _COLLECTIONS:
        return _read_collection(store, name)
    raise _no_format(name)


def write_rows(
    table: Table, path: str | os.PathLike[str], *, overwrite: bool = False, advance: Callable[[int], None] | None = None
) -> int:
    """Write the rows of a table to a file, and return their number.

    Numbers are written with as many digits as tell them from every other float of 32 bits. CSV has an array as
    ``[1, 2]`` and nothing where a value is missing. GeoJSON has the geometry of ``.geo``, else the point of
    ``longitude`` and ``latitude``, and leaves out properties that are missing.

    Raises:
        UsageError: the suffix is unknown.
        AlreadyStoredError: the file exists, and ``overwrite`` is False.
    """
    store, name = open_parent(path)
    suffix = Path(name).suffix.lower()
    if suffix not in SUFFIXES:
        raise _no_format(name)
    with store.create(name, overwrite=overwrite) as raw, _text_file(raw) as file:
        rows = advancing(table, advance)
        if suffix in _CSV:
            _write_csv(rows, table, file)
        elif suffix in _LINES:
            file.writelines(f"{text}\n" for text in _to_texts(rows, as_features=suffix.startswith(".geo")))
        else:
            _write_collection(rows, file, as_features=suffix.startswith(".geo"))
    return len(table)


def _no_format(name: str) -> UsageError:
    return UsageError(
        f"unknown format of rows {name!r:.120}",
        hint=f"Use one of these suffixes: {', '.join(SUFFIXES)}.",
        details={"file": name[:120]},
    )


@contextmanager
def _text_file(file: BinaryIO) -> Iterator[io.TextIOWrapper]:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", errors="strict")
    try:
        yield text
        text.flush()
    finally:
        text.detach()


# CSV


def _read_csv(path: str | os.PathLike[str], name: str, text: frozenset[str]) -> Iterator[Row]:
    from registry.intake import AddOptions, open_source

    source = open_source(path, AddOptions(kind="csv", header=True, has_csv_options=False))
    columns, numeric = _find_numbers(source, name, text)
    if unknown := text - set(columns):
        raise UsageError(
            f"{name} has no column {min(unknown)!r:.80}",
            hint=f"Its columns are: {', '.join(columns[:20])}.",
            details={"column": min(unknown), "known": columns[:100]},
        )
    return _csv_rows(source, numeric, text)


def _csv_rows(source: Source, numeric: set[str], text: frozenset[str]) -> Iterator[Row]:
    for block in _csv_blocks(source):
        texts, numbers = block.cells.to_pylist(), block.numbers.to_pylist()
        columns: list[Sequence[Any]] = []
        for place, column in enumerate(block.columns):
            cells = slice(place * block.num_rows, (place + 1) * block.num_rows)
            if column in numeric:
                columns.append(numbers[cells])
            elif column in text or column in (GEO, INDEX):
                columns.append(texts[cells])
            else:
                columns.append([None if cell is None else _array_or_text(cell) for cell in texts[cells]])
        for values in zip(*columns, strict=True):
            yield dict(zip(block.columns, values, strict=True))


def _find_numbers(source: Source, name: str, text: frozenset[str]) -> tuple[Sequence[str], set[str]]:
    """The columns, and those that are numbers: each cell that holds anything is one, and has no leading zeros."""
    columns: Sequence[str] = ()
    filled: set[int] = set()
    others: set[int] = set()
    codes: dict[int, str] = {}
    for block in _csv_blocks(source):
        columns = block.columns
        filled |= block.columns_of(block.cells.is_valid())
        others |= {place // block.num_rows for place in block.faults}
        has_zeros = import_pyarrow().compute.match_substring_regex(block.cells, "^[-+]?0[0-9]")
        for place in np.flatnonzero(has_zeros.fill_null(fill_value=False)).tolist():
            codes.setdefault(place // block.num_rows, block.cells[place].as_py())
    not_numbers = {GEO, INDEX, *text}
    for place, code in codes.items():
        if place not in others and columns[place] not in not_numbers:
            warnings.warn(
                f"column {columns[place]!r} of {name} is text, because a number is not written like {code:.40}",
                RegistryWarning,
                stacklevel=4,
            )
    return columns, {columns[place] for place in filled - others - codes.keys()} - not_numbers


@dataclass(frozen=True, slots=True)
class _CsvBlock:
    """Some rows of a CSV file, column after column: there may be a hundred thousand columns of one row.

    Attributes:
        columns: the names of the columns.
        num_rows: the number of rows.
        cells: the texts of all cells, the rows of the first column first; null where a cell is empty.
        numbers: the cells as float64; null where a cell is not a number.
        faults: why a cell that is not null is not a number, by its index in ``cells``.
    """

    columns: Sequence[str]
    num_rows: int
    cells: pa.Array
    numbers: pa.Array
    faults: Mapping[int, str]

    def columns_of(self, is_used: pa.Array) -> set[int]:
        """The indices of the columns with a cell for which ``is_used`` is true."""
        return set(np.unique(np.flatnonzero(is_used) // self.num_rows).tolist())


def _csv_blocks(source: Source) -> Iterator[_CsvBlock]:
    """Yield the rows of a file. Raises PreparedFormatError if a row has more or fewer cells than the header."""
    from registry.intake import parse_texts

    arrow = import_pyarrow()
    for part in source.parts:
        for rows in part.read():
            if rows.bad:
                raise PreparedFormatError(
                    str(rows.bad[0]),
                    hint="Is a comma in a text without quotes?",
                    details={"file": rows.bad[0].file, "line": rows.bad[0].line},
                )
            cells = arrow.concat_arrays([chunk for column in rows.table.columns for chunk in column.chunks])
            cells = arrow.compute.if_else(arrow.compute.equal(cells, ""), None, cells)
            numbers, faults = parse_texts(cells, arrow.float64(), is_requested=True)
            is_spaced = arrow.compute.not_equal(arrow.compute.utf8_trim_whitespace(cells), cells)
            spaced = np.flatnonzero(is_spaced.fill_null(fill_value=False)).tolist()
            faults = {**faults, **dict.fromkeys(spaced, "it has spaces around it")}
            yield _CsvBlock(rows.table.column_names, rows.table.num_rows, cells, numbers, faults)


def _array_or_text(cell: str) -> Any:
    """Parse a cell that is not a number: an array if it is JSON of one, else text."""
    if cell.startswith("[") and cell.endswith("]"):
        try:
            document = json.loads(cell)
            array = np.asarray(document)
        except (ValueError, RecursionError):
            return cell
        return document if array.dtype.kind in "bif" else cell
    return cell


def _write_csv(rows: Iterable[Row], table: Table, file: io.TextIOWrapper) -> None:
    writer = csv.writer(file)  # lines end as RFC 4180 has it: then a lone \r or \n in a text is quoted
    names = [column.name for column in table.columns]
    writer.writerow(names)
    writer.writerows([_to_cell(row[name]) for name in names] for row in rows)


def _to_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        raise _no_text(value)
    if isinstance(value, np.ndarray | list):
        return json.dumps(_to_json(value, finite=False), ensure_ascii=False)
    return str(_to_json(value, finite=False))


# JSON


def _read_collection(store: Store, name: str) -> Iterator[Row]:
    try:
        document = json.loads(store.read_bytes(name, limit=_MAX_DOCUMENT).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise _no_utf8(store, name, error) from error
    except (ValueError, RecursionError) as error:
        raise PreparedFormatError(f"{store.locate(name)} is invalid JSON: {error}", details={"file": name}) from error
    features = document
    if isinstance(document, Mapping):
        features = [document] if document.get("type") == "Feature" else document.get("features")
    if not isinstance(features, list):
        raise PreparedFormatError(
            f"{store.locate(name)} is neither a FeatureCollection nor a list of rows",
            hint='A collection is {"type": "FeatureCollection", "features": [...]}.',
            details={"file": name},
        )
    return (_to_row(feature, number, store.locate(name)) for number, feature in enumerate(features))


def _read_lines(store: Store, name: str) -> Iterator[Row]:
    with store.open(name) as file:
        number = 0
        while line := file.readline(_MAX_LINE):
            if len(line) == _MAX_LINE:
                raise PreparedFormatError(f"{store.locate(name)}: the line of row {number} is longer than 256 MiB")
            # Some writers put a record separator before each feature (RFC 8142).
            line = line.removeprefix(codecs.BOM_UTF8).removeprefix(b"\x1e").strip()
            if not line:
                continue
            try:
                document = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise PreparedFormatError(
                    f"{store.locate(name)}: row {number} is invalid JSON: {error}",
                    details={"file": name, "row": number},
                ) from error
            yield _to_row(document, number, store.locate(name))
            number += 1


def _to_row(found: Any, number: int, path: str) -> Row:
    """A row as it is, or a feature's properties, geometry and id."""
    if not isinstance(found, Mapping):
        raise PreparedFormatError(f"{path}: row {number} is not an object", details={"file": path, "row": number})
    if found.get("type") != "Feature":
        return found
    properties = found.get("properties") or {}
    if not isinstance(properties, Mapping):
        raise PreparedFormatError(f"{path}: the properties of feature {number} are not an object")
    row = dict(properties)
    if found.get("geometry") is not None:
        row[GEO] = found["geometry"]
    if found.get("id") is not None:
        row.setdefault(INDEX, found["id"])
    return row


def _write_collection(rows: Iterable[Row], file: io.TextIOWrapper, *, as_features: bool) -> None:
    file.write('{"type": "FeatureCollection", "features": [' if as_features else "[")
    for number, text in enumerate(_to_texts(rows, as_features=as_features)):
        file.write(f",\n{text}" if number else f"\n{text}")
    file.write("\n]}\n" if as_features else "\n]\n")


def _to_texts(rows: Iterable[Row], *, as_features: bool) -> Iterator[str]:
    """The JSON of each row."""
    for number, row in enumerate(rows):
        value = _to_feature(row, number) if as_features else {name: _to_json(value) for name, value in row.items()}
        yield json.dumps(value, ensure_ascii=False, allow_nan=False)


def _to_feature(row: Row, number: int) -> dict[str, Any]:
    """The row as a GeoJSON feature."""
    properties = {name: _to_json(value) for name, value in row.items() if value is not None}
    geometry = read_geometry(properties.pop(GEO, None), number)
    if geometry is None and LONGITUDE in properties and LATITUDE in properties:
        place = [properties.pop(LONGITUDE), properties.pop(LATITUDE)]
        geometry = {"type": "Point", "coordinates": place}
    index = properties.pop(INDEX, None)
    feature = {"type": "Feature", "geometry": geometry, "properties": properties}
    return feature if index is None else feature | {"id": index}


def _to_json(value: Any, *, finite: bool = True) -> Any:
    """A value of a row as JSON has it; of floats the shortest digits that tell them, those not ``finite`` as null."""
    if isinstance(value, np.ndarray):
        return _to_json(value.tolist(), finite=finite)
    if isinstance(value, list):
        return [_to_json(item, finite=finite) for item in value]
    if isinstance(value, bytes):
        raise _no_text(value)
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None if finite else value
    if value.is_integer() and abs(value) <= _WHOLE and (value or math.copysign(1, value) > 0):
        return int(value)
    return float(str(np.float32(value)))  # the shortest text that parses to this float of 32 bits


def _no_text(value: bytes) -> FeatureError:
    return FeatureError(
        f"a file of rows cannot store the bytes {value!r:.80}",
        hint="Choose other columns: columns=[...]; --band NAME.",
    )


def _no_utf8(store: Store, name: str, error: UnicodeDecodeError) -> PreparedFormatError:
    return PreparedFormatError(
        f"{store.locate(name)}: expected UTF-8 text: {error.reason} at byte {error.start}",
        hint="Write the file as UTF-8.",
        details={"file": name},
    )
