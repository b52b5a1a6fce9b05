"""Opens what Python callers pass to ``catalog.add``: frames, arrays, datasets of other libraries, iterables of rows.

    object -> open_dataset | open_table | open_rows | open_columns -> Source

A library is never imported to find out whether an object is one of its own. Paths and URLs are left to ``detect``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from registry.errors import RegistryError, SourceError
from registry.intake.combining import combine_splits
from registry.intake.detect import open_source
from registry.intake.hugging_face import open_dataset
from registry.intake.object_rows import is_rows, open_rows
from registry.intake.object_source import PART
from registry.intake.object_tables import open_columns, open_table
from registry.intake.options import AddOptions
from registry.intake.source import Rows, Source

_KNOWN: Final = (
    "Pass a frame of pandas or polars, an Arrow table, a dict of arrays, a Hugging Face dataset, a torch dataset, "
    "a tf.data dataset, an iterable of dicts, a function that returns one, or {'train': ..., 'test': ...} of these."
)


def open_object(given: Any, options: AddOptions | None = None) -> Source | None:
    """Open an object of Python as a source; None if ``given`` is a path or URL.

    A dict is a dict of splits if all its values are tables or rows: frames, datasets, dicts, functions, iterators,
    lists of dicts, paths. It is a dict of columns if all its values are columns: arrays, series, lists of values. A
    list of dicts next to an array is a column.

    Args:
        given: the object.
        options: the columns that are requested as text, and the names of splits.

    Raises:
        SourceError: the object is of no known kind, is empty, mixes splits and columns, or fails.
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
        names = _splits_of(given, options) if isinstance(given, Mapping) else None
        if names is not None:
            return _open_splits({name: given[key] for key, name in names.items()}, options)
        source = _open(given, options.texts())
    return _named(source, PART).with_split_names(options.split_names(source.splits))


def _named(source: Source, name: str) -> Source:
    """``source`` with the name ``name`` of its part, whose errors are those of the object."""
    (part,) = source.parts
    return replace(source, parts=[replace(part, name=name, read=partial(_read_named, source.kind, part.read, name))])


@contextmanager
def _foreign_errors(problem: str) -> Iterator[None]:
    """Exceptions of the object's own code, or of its library, as SourceErrors.

    Any look at an object may run such code: its length, an attribute, the next batch of a stream.
    """
    try:
        yield
    except (RegistryError, MemoryError):
        raise
    except Exception as error:
        text = type(error).__name__
        with suppress(Exception):  # the text of an exception is code of the caller, too
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
    """The rows; bad ones are reported with the name of the part, as those of files are."""
    with _foreign_errors(f"the {kind} data cannot be read"):
        for rows in read():
            yield replace(rows, bad=tuple(replace(row, file=name) for row in rows.bad)) if rows.bad else rows


def _open_splits(given: Mapping[str, Any], options: AddOptions) -> Source:
    """The source of several splits. Tables must have the same columns, in any order."""
    sources: dict[str, Source] = {}
    tables: dict[str, Source] = {}
    for name, value in given.items():
        try:
            if isinstance(value, (str, os.PathLike)):
                sources[name] = open_source(value, AddOptions(paths=options.stores_paths()))
                continue
            opened = _open(value, options.texts())
        except SourceError as error:
            told = SourceError(f"split {name!r}: {error.message}", hint=error.hint, details=error.details)
            raise told from (error.__cause__ or error)
        if opened.columns:
            first_name, first = next(iter(tables.items()), (name, opened))
            _check_same_columns(first_name, first, name, opened)
            if opened.columns != first.columns:
                opened = _in_order(opened, first.columns)
            tables[name] = opened
        sources[name] = _named(opened, name)
    return combine_splits(sources, split_reason="the keys of the dict")


def _splits_of(given: Mapping[Any, Any], options: AddOptions) -> dict[Any, str] | None:
    """The names of the splits by key, if ``given`` is a dict of splits; None if it is a dict of columns."""
    if not given:
        raise SourceError("the dict is empty", hint="Pass {'NAME': ARRAY, ...} or {'train': TABLE, ...}")
    tables = {key for key, value in given.items() if is_table(value)}
    lists = {key for key, value in given.items() if key not in tables and is_rows(value)}
    columns = [key for key in given if key not in tables and key not in lists]
    if (tables or lists) and all(isinstance(given[key], list) and not given[key] for key in columns):
        columns = []  # splits without rows, which are reported
    if columns and tables:
        table = next(key for key in given if key in tables)
        raise SourceError(
            f"the dict mixes splits and columns: {table!r} is {_describe(given[table])}, "
            f"{columns[0]!r} is {_describe(given[columns[0]])}",
            hint="Pass {'train': TABLE, 'test': TABLE} for splits, or {'NAME': ARRAY, ...} for columns.",
        )
    if columns:
        return None
    renamed = options.split_names(map(str, given), "the keys of a dict of tables are names of splits: ")
    return {key: renamed[str(key)] for key in given}


def is_table(value: Any) -> bool:
    """Whether a value of a dict is a table or rows for certain; a list of dicts may be a column, too."""
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


def _check_same_columns(first_name: str, first: Source, name: str, opened: Source) -> None:
    for ours, theirs, owner, other in (
        (first.columns, opened.columns, first_name, name),
        (opened.columns, first.columns, name, first_name),
    ):
        if missing := [column for column in ours if column not in theirs]:
            raise SourceError(
                f"split {other!r} lacks the column {missing[0]!r}, which split {owner!r} has",
                hint="Give all splits the same columns. Null is a value, too.",
            )


def _in_order(source: Source, order: tuple[str, ...]) -> Source:
    """``source`` with the columns in the order of the first split."""
    (part,) = source.parts
    return replace(
        source, columns=order, parts=[part.mapped(lambda rows: replace(rows, table=rows.table.select(order)))]
    )


def _describe(value: Any) -> str:
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    name = kind.__name__ if module in ("builtins", "__main__") else f"{module} {kind.__name__}"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _hint(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return "Name the column: catalog.add({'x': array}, NAME)"
    return _KNOWN
