"""Opens the Python objects that ``catalog.add`` accepts: frames, arrays, datasets of libraries, and iterables of rows.

    object -> open_dataset | open_table | open_rows | open_columns -> Source

A library is never imported to determine whether an object belongs to it. ``detect`` opens paths and URLs.

``open_rows`` opens objects that yield rows one by one: iterables and functions, map-style datasets of torch, and
tf.data. A row is a dict; the columns are the keys of all rows, in the order in which they appear. Blocks of rows become
Arrow tables. An iterator that can be read only once is stored in a temporary file (``Spool``) during the first pass.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from registry.errors import RegistryError, SourceError
from registry.features import ClassLabel, Feature
from registry.intake.arrow_files import open_dataset
from registry.intake.detect import open_source
from registry.intake.file_parts import combine_splits, compare_columns
from registry.intake.object_tables import (
    FIRST_ROWS,
    PART,
    Spool,
    check_columns,
    is_a,
    next_step,
    object_source,
    open_columns,
    open_table,
    require_rows,
)
from registry.intake.options import AddOptions
from registry.intake.python_values import ValueConverter, columns_of, convert_block, estimate_bytes
from registry.intake.source import MAX_BYTES, BadRow, Rows, Source, is_unicode
from registry.intake.split_names import rename_splits
from registry.shards.arrow_values import import_pyarrow
from registry.splits import counted

_KNOWN: Final = (
    "Pass a frame of pandas or polars, an Arrow table, a dict of arrays, a Hugging Face dataset, a torch dataset, "
    "a tf.data dataset, an iterable of dicts, a function that returns one, or {'train': ..., 'test': ...} of these."
)


def open_object(given: Any, options: AddOptions | None = None) -> Source | None:
    """Open a Python object as a source. Returns None if ``given`` is a path or URL.

    A dict has splits if all its values are tables or rows: frames, datasets, dicts, functions, iterators, lists of
    dicts, or paths. It has columns if all its values are arrays, series or lists of values. A list of dicts next to an
    array is a column.

    Args:
        given: the object.
        options: the columns that are requested as text, and the names of splits.

    Raises:
        SourceError: the object has an unsupported type, is empty, mixes splits and columns, or raises an error.
        NotStoredError: a path in a dict of splits does not exist.
        MissingExtraError: pyarrow is not installed.

    >>> source = open_object({"text": ["a", "b"], "label": [0, 1]})
    >>> source.summary, source.splits
    ('dict of 2 arrays: 2 rows, 2 columns', ('train',))
    """
    if isinstance(given, (str, os.PathLike)):
        return None
    options = options or AddOptions()
    with _foreign_errors(f"data cannot be read from {_describe(given)}"):
        if isinstance(given, Mapping) and _has_splits(given):
            source = _open_splits(given, options)
        else:
            source = _named(_open(given, options.texts()), PART)
    return rename_splits(source, options)


def _named(source: Source, name: str) -> Source:
    """Give the part of ``source`` the name ``name``, and convert the errors of the object."""
    (part,) = source.parts
    return replace(source, parts=[replace(part, name=name, read=partial(_read_named, source.kind, part.read, name))])


@contextmanager
def _foreign_errors(problem: str) -> Iterator[None]:
    """Convert exceptions of the object's own code, or of its library, to SourceErrors.

    Any access to an object may run such code: its length, an attribute, the next batch of a stream.
    """
    try:
        yield
    except (RegistryError, MemoryError):
        raise
    except Exception as error:
        text = type(error).__name__
        with suppress(Exception):  # the caller's code may also format the text of an exception
            text = f"{text}: {error}".rstrip(": ")
        raise SourceError(f"{problem}: {text}", hint="The traceback shows the line that failed.") from error


def _open(given: Any, texts: Collection[str]) -> Source:
    opened = open_dataset(given) or open_table(given) or open_rows(given, texts)
    if opened is None and isinstance(given, Mapping):
        opened = open_columns(given)
    if opened is None:
        raise SourceError(f"data cannot be read from {_describe(given)}", hint=_hint(given))
    return opened


def _read_named(kind: str, read: Callable[[], Iterator[Rows]], name: str) -> Iterator[Rows]:
    """Yield the rows. Bad rows are reported with the name of the part, as for files."""
    with _foreign_errors(f"the {kind} data cannot be read"):
        for rows in read():
            yield replace(rows, bad=tuple(replace(row, file=name) for row in rows.bad)) if rows.bad else rows


def _open_splits(given: Mapping[Any, Any], options: AddOptions) -> Source:
    """Open several splits as a source. Tables must have the same columns, in any order."""
    sources: dict[str, Source] = {}
    tables: dict[str, Sequence[str]] = {}
    for key, value in given.items():
        if (name := str(key)) in sources:
            raise SourceError(f"two splits are named {name!r}", hint="Rename one of them.")
        try:
            if isinstance(value, (str, os.PathLike)):
                paths = options.paths if options.stores_paths() else False
                sources[name] = open_source(value, AddOptions(paths=paths, remembered=options.remembered))
                continue
            opened = _open(value, options.texts())
        except SourceError as error:
            told = SourceError(f"split {name!r}: {error.message}", hint=error.hint, details=error.details)
            raise told from (error.__cause__ or error)
        if opened.columns:
            tables[f"split {name!r}"] = opened.columns
        sources[name] = _named(opened, name)
    lacks = bool(tables) and compare_columns(tables, options)
    source = combine_splits(sources, split_reason="the keys of the dict")
    return replace(source, may_lack_columns=source.may_lack_columns or lacks)


def _has_splits(given: Mapping[Any, Any]) -> bool:
    """Whether the keys of a dict are the names of splits, and not of columns."""
    if not given:
        raise SourceError("the dict is empty", hint="Pass {'NAME': ARRAY, ...} or {'train': TABLE, ...}")
    tables = {key for key, value in given.items() if is_table(value)}
    lists = {key for key, value in given.items() if key not in tables and is_rows(value)}
    columns = [key for key in given if key not in tables and key not in lists]
    if (tables or lists) and all(isinstance(given[key], list) and not given[key] for key in columns):
        columns = []  # splits without rows are reported later
    if columns and tables:
        table = next(key for key in given if key in tables)
        raise SourceError(
            f"the dict mixes splits and columns: {table!r} is {_describe(given[table])}, but "
            f"{columns[0]!r} is {_describe(given[columns[0]])}",
            hint="Pass {'train': TABLE, 'test': TABLE} for splits, or {'NAME': ARRAY, ...} for columns.",
        )
    return not columns


def is_table(value: Any) -> bool:
    """Whether a value of a dict is certainly a table or rows; a list of dicts may also be a column."""
    if isinstance(value, (str, os.PathLike)):
        return True
    if isinstance(value, (list, tuple, bytes)):
        return False
    module, name = type(value).__module__.partition(".")[0], type(value).__name__
    if module in ("pandas", "polars"):
        return name not in ("Series", "Index")
    if module == "pyarrow" and name.endswith("Array"):
        return False
    return isinstance(value, Mapping) or is_rows(value) or hasattr(value, "__arrow_c_stream__") or module == "datasets"


def _describe(value: Any) -> str:
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    name = kind.__name__ if module in ("builtins", "__main__") else f"{module} {kind.__name__}"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _hint(value: Any) -> str:
    if getattr(getattr(value, "dtype", None), "names", None):
        return "Pass its columns: catalog.add({name: array[name] for name in array.dtype.names}, NAME)"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return "Name the column: catalog.add({'x': array}, NAME)"
    return _KNOWN


_PAIR: Final = ("input", "label")
"""The columns of rows that are pairs, as in datasets of torchvision, and of TFDS with ``as_supervised``."""

_SAMPLED: Final = 64
"""The size is estimated from one row in this number of rows."""

_ROW_HINT: Final = "Yield one dict for each row, e.g. {'text': 'abc', 'label': 1}"


def open_rows(given: Any, texts: Collection[str] = ()) -> Source | None:
    """Open an object that yields rows. Returns None for other objects.

    Args:
        given: the object.
        texts: the columns that are requested as text, in which a dict or list becomes JSON text.

    Raises:
        SourceError: the object yields no rows, or rows that are not dicts or tuples, or raises an error.
    """
    reader = _reader_of(given)
    return None if reader is None else reader.open(texts)


def _reader_of(given: Any) -> _ObjectReader | None:
    if is_a(given, "torch.utils.data", "DataLoader"):
        raise SourceError("a DataLoader yields batches, not rows", hint="Pass its dataset: loader.dataset")
    if hasattr(given, "element_spec") and hasattr(given, "as_numpy_iterator"):
        return _open_tf_data(given)
    if isinstance(given, (str, bytes, bytearray, Mapping)) or hasattr(given, "dtype"):
        return None
    if isinstance(given, (list, tuple)):
        return _ObjectReader("iterable", type(given).__name__, lambda: iter(given), num_rows=len(given))
    is_map_style = hasattr(given, "__getitem__") and hasattr(given, "__len__")
    if is_map_style and (_is_torch(given) or not hasattr(given, "__iter__")):
        return _open_map_style(given)
    if hasattr(given, "__iter__"):
        name = type(given).__name__
        if hasattr(given, "__next__"):  # a generator or another iterator
            return _ObjectReader("iterable", name, lambda: iter(given), is_once=True)
        return _ObjectReader("iterable", name, lambda: iter(given))
    if callable(given) and not isinstance(given, type):
        return _open_function(given)
    return None


def _open_function(function: Callable[[], Any]) -> _ObjectReader:
    name = f"function {getattr(function, '__name__', type(function).__name__)}"

    def rows() -> Iterator[Any]:
        result = function()
        if not hasattr(result, "__iter__") or isinstance(result, (str, bytes, Mapping)):
            raise SourceError(
                f"{name} returned {type(result).__name__}, not an iterable of rows",
                hint="Return a list or a generator of dicts, or pass the returned object itself.",
            )
        return iter(result)

    return _ObjectReader("iterable", name, rows)


def _open_map_style(dataset: Any) -> _ObjectReader:
    def rows() -> Iterator[Any]:
        return (dataset[place] for place in range(len(dataset)))

    kind = "torch" if _is_torch(dataset) else "iterable"
    reader = _ObjectReader(kind, type(dataset).__name__, rows, num_rows=len(dataset))
    classes = getattr(dataset, "classes", None)
    names = list(classes) if isinstance(classes, (list, tuple)) else []
    if names and all(isinstance(name, str) for name in names):
        reader.class_names = names
    return reader


def _open_tf_data(dataset: Any) -> _ObjectReader:
    cardinality = getattr(dataset, "cardinality", None)
    if callable(cardinality) and int(cardinality()) == -1:  # tf.data.INFINITE_CARDINALITY
        raise SourceError(
            "the tf.data dataset is infinite", hint="Leave out .repeat(), or limit it: dataset.take(1000)"
        )
    return _ObjectReader("tf_data", "tf.data dataset", dataset.as_numpy_iterator)


def _is_torch(value: Any) -> bool:
    return is_a(value, "torch.utils.data", "Dataset") and "torch" in sys.modules


@dataclass(slots=True)
class _ObjectReader:
    """Reads the rows of one object.

    Attributes:
        kind: the kind of the source.
        name: a description of the object for messages.
        rows: returns an iterator that starts at the first row.
        is_once: whether ``rows`` can be read only once.
        num_rows: the number of rows, if it is known.
        class_names: the names of the classes of the dataset.
        form: the form of the first row, which all rows need to have.
        count: the number of rows in the previous pass.
        texts: the columns that are requested as text.
    """

    kind: str
    name: str
    rows: Callable[[], Iterator[Any]]
    is_once: bool = False
    num_rows: int | None = None
    class_names: Sequence[str] = ()
    form: str = "a dict"
    count: int | None = None
    texts: Collection[str] = ()

    def open(self, texts: Collection[str]) -> Source:
        """Read the first rows, which determine the columns."""
        self.texts = texts
        stream = self._numbered(self.rows)
        first = _take(stream, FIRST_ROWS)
        require_rows(self.name, first)
        self.form, row = _as_dict(first[0])
        if row is None:
            raise SourceError(f"the {self.name} yields {self.form}, not dicts", hint=_ROW_HINT)
        columns = check_columns(list(row))
        converter = ValueConverter(self.texts)
        for _ in self._convert(first, 1, converter):  # detects images
            pass
        about = self.name if self.num_rows is None else f"{self.name} of {counted(self.num_rows, 'row')}"
        if self.form.startswith("a tuple"):
            about += f"; tuples become the columns {', '.join(map(repr, columns))}"
        read = self._read
        if self.is_once:
            about += "; read once and kept in a temporary file"
            rows = self._blocks(itertools.chain(first, stream), ValueConverter(self.texts))
            read = Spool(rows, f"the {self.name}").read
        hints = converter.hints() | self._label_hint(first)
        return object_source(self.kind, about, columns, read, may_lack_columns=True, hints=hints)

    def _label_hint(self, first: Sequence[Any]) -> dict[str, Feature]:
        """A ClassLabel for the column ``label``, if the dataset has ``classes`` and its labels are their numbers."""
        rows = [row for form, row in map(_as_dict, first) if form == self.form]
        labels = [row.get("label") for row in rows if row is not None]
        names = self.class_names
        if not names or not all(type(label) is int and 0 <= label < len(names) for label in labels):
            return {}
        return {"label": ClassLabel(names=names)}

    def _numbered(self, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """The rows, with errors of the caller's code as SourceErrors that name the row."""
        count = 0
        try:
            for row in _kept(start()):
                yield row
                count += 1
        except (RegistryError, GeneratorExit):
            raise
        except Exception as error:
            raise SourceError(
                f"the {self.name} raised {type(error).__name__} at row {count + 1:,}: {error}",
                hint="The traceback shows the line of your code.",
                details={"row": count + 1},
            ) from error
        if self.count is not None and count != self.count:
            raise SourceError(
                f"the {self.name} yielded {count:,} rows, but {self.count:,} rows in the pass before",
                hint="Data is read more than once: yield the same rows each time, or pass a generator object.",
                details={"rows": count, "before": self.count},
            )
        self.count = count

    def _blocks(self, stream: Iterator[Any], converter: ValueConverter) -> Iterator[Rows]:
        start, step = 1, FIRST_ROWS
        while block := _take(stream, step):
            num_bytes = 0
            for rows in self._convert(block, start, converter):
                num_bytes += rows.table.nbytes
                yield rows
            step = next_step(len(block), num_bytes // len(block))
            start += len(block)

    def _read(self) -> Iterator[Rows]:
        return self._blocks(self._numbered(self.rows), ValueConverter(self.texts))

    def _convert(self, block: Sequence[Any], start: int, converter: ValueConverter) -> Iterator[Rows]:
        """Convert a block of rows. Bad rows are left out and reported."""
        rows, lines, bad = self._check_rows(block, start)
        if bad:
            yield Rows(table=import_pyarrow().table({}), lines=(), bad=tuple(bad))
        if rows:
            yield from convert_block(columns_of(rows), 0, len(rows), converter, name="", lines=lines)

    def _check_rows(
        self, block: Sequence[Any], start: int
    ) -> tuple[list[Mapping[str, Any]], Sequence[int], list[BadRow]]:
        """Return the rows as dicts, their numbers, and reports of the rows whose form differs from the first row."""
        if self.form == "a dict" and set(map(type, block)) == {dict} and all(block):  # these loops run in C
            keys = set(itertools.chain.from_iterable(block))
            if all(isinstance(key, str) and is_unicode(key) for key in keys):
                return list(block), range(start, start + len(block)), []
        rows: list[Mapping[str, Any]] = []
        lines: list[int] = []
        bad: list[BadRow] = []
        known: set[Any] = set()
        for line, given in enumerate(block, start):
            form, row = _as_dict(given)
            if row is None or form != self.form:
                reason = f"expected {self.form}, as in row 1, found {type(given).__name__}"
                bad.append(BadRow(file="", line=line, reason=reason))
                continue
            if not row.keys() <= known:
                if odd := [key for key in row if not isinstance(key, str) or not is_unicode(key)]:
                    reason = f"the key {odd[0]!a:.60} is not {'valid Unicode' if type(odd[0]) is str else 'text'}"
                    bad.append(BadRow(file="", line=line, reason=reason))
                    continue
                known.update(row)
            if not row:
                bad.append(BadRow(file="", line=line, reason="the dict is empty"))
                continue
            rows.append(row)
            lines.append(line)
        # A range takes no memory; the numbers of a generator would be kept.
        return rows, lines if bad else range(start, start + len(block)), bad


def _take(stream: Iterator[Any], step: int) -> list[Any]:
    """Take the next ``step`` rows, or fewer if a sample shows that they are large."""
    result: list[Any] = []
    size = 0
    while size < MAX_BYTES:
        count = min(len(result) + 1, _SAMPLED, step - len(result))
        some = list(itertools.islice(stream, count))
        if not some:
            break
        result += some
        size += estimate_bytes(some[-1]) * len(some)
    return result


def _kept(rows: Iterator[Any]) -> Iterator[Any]:
    """Yield rows that do not change, even if a generator reuses the same dict or array for the next row.

    A block is converted after all of its rows were yielded. Dicts and lists are therefore copied. Another mutable value
    is copied only if the first two rows share it, so that there is no cost for a new array in each row.
    """
    before: dict[Any, Any] = {}
    shared: set[Any] = set()
    for place, row in enumerate(rows):
        if isinstance(row, dict):
            kept: Any = dict(row)
        elif type(row) in (list, tuple):
            kept = list(row)
        elif isinstance(row, np.ndarray):
            yield row.copy()
            continue
        else:
            yield copy(row) if hasattr(type(row), "__dataclass_fields__") else row
            continue
        if place < 2:
            mutable = {key: value for key, value in _items(kept) if _is_mutable(value)}
            shared = {key for key, value in mutable.items() if place == 0 or before.get(key) is value}
            before = mutable
        for key in shared:
            if (key in kept if isinstance(kept, dict) else key < len(kept)) and _is_mutable(kept[key]):
                kept[key] = kept[key].detach().clone() if is_a(kept[key], "torch", "Tensor") else deepcopy(kept[key])
        yield tuple(kept) if type(row) is tuple else kept


def _items(row: dict[Any, Any] | list[Any]) -> Iterable[tuple[Any, Any]]:
    return row.items() if isinstance(row, dict) else enumerate(row)


def _is_mutable(value: Any) -> bool:
    return isinstance(value, (list, dict, bytearray, np.ndarray)) or is_a(value, "torch", "Tensor")


def _as_dict(row: Any) -> tuple[str, Mapping[Any, Any] | None]:
    """Return the form of a row, for messages, and the row as a dict, or None if it has no columns."""
    kind = type(row)
    if isinstance(row, Mapping):
        return "a dict", row
    if hasattr(kind, "__dataclass_fields__") or hasattr(kind, "_fields"):
        fields = getattr(kind, "__dataclass_fields__", None) or kind._fields
        return f"an instance of {kind.__name__}", {field: getattr(row, field) for field in fields}
    if isinstance(row, (tuple, list)) and row:
        names = _PAIR[: len(row)] if len(row) <= len(_PAIR) else map(str, range(len(row)))
        return f"a tuple of {len(row)} values", dict(zip(names, row, strict=True))
    if hasattr(kind, "__array__") and not isinstance(row, (str, bytes)):
        return "an array", {_PAIR[0]: row}
    return kind.__name__, None


def is_rows(value: Any) -> bool:
    """Whether a value of a dict is rows: a function, an iterator, a dataset, or a list of dicts."""
    if isinstance(value, (list, tuple)):
        return bool(value) and isinstance(value[0], Mapping)
    if isinstance(value, (str, bytes, Mapping)) or hasattr(value, "dtype"):
        return False
    if hasattr(value, "element_spec") or _is_torch(value) or (callable(value) and not isinstance(value, type)):
        return True
    return hasattr(value, "__iter__") and not hasattr(value, "__len__")
