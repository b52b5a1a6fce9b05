"""What the readers of objects of Python share: how they make a ``Source``, and their checks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from registry.errors import SourceError, require_extra
from registry.features import Feature
from registry.intake.source import MAX_BYTES, MAX_ROWS, Rows, Source, SourcePart
from registry.model import DatasetMetadata

FIRST_ROWS: Final = 1_024
"""The rows from which an opener learns what the columns hold, such as images."""

FEW_ROWS: Final = 16
"""The most rows of the first block; the size of each block decides how many rows the next one has."""


DEFAULT_SPLIT: Final = "train"
PART: Final = "data"
"""The name of the only part of an object, in messages: ``data:17``."""


def object_source(
    kind: str,
    summary: str,
    columns: Sequence[str],
    read: Callable[[], Iterator[Rows]],
    *,
    hints: Mapping[str, Feature] | None = None,
    may_lack_columns: bool = False,
    metadata: DatasetMetadata | None = None,
    split: str | None = None,
) -> Source:
    """The source of an object of Python; its rows are those of one split.

    Args:
        kind: the kind of the source, such as ``pandas``.
        summary: what it is, for people.
        columns: the names of its columns.
        read: reads it from its beginning.
        hints: features that the object defines, by column.
        may_lack_columns: whether other columns than ``columns`` may follow, or rows may lack some.
        metadata: description, license and so on.
        split: the split that the object names, or None.
    """
    return Source(
        kind=kind,
        summary=summary,
        parts=[SourcePart(split=split or DEFAULT_SPLIT, name=PART, read=read)],
        columns=() if may_lack_columns else tuple(columns),
        hints=hints or {},
        may_lack_columns=may_lack_columns,
        metadata=metadata or DatasetMetadata(),
        split_reason="the split that the dataset names" if split else "one object without splits",
    )


def import_arrow() -> Any:
    """Import ``pyarrow`` and ``pyarrow.compute``. Raises MissingExtraError if pyarrow is not installed."""
    with require_extra("arrow", package="pyarrow", needed_for="adding objects of Python"):
        import pyarrow as pa
        import pyarrow.compute  # ``import pyarrow`` alone leaves ``pa.compute`` undefined
    return pa


def check_columns(names: Sequence[Any]) -> tuple[str, ...]:
    """Column names as text: numbers become their digits.

    Raises:
        SourceError: there are no columns, a name is neither text nor a number, or two columns have one name.
    """
    if not names:
        raise SourceError("the object has no columns", hint="Pass data with at least one column.")
    result: dict[str, None] = {}
    for name in names:
        if not isinstance(name, (str, int, np.integer)) or isinstance(name, bool):
            raise SourceError(
                f"the name of a column must be text, not {name!r:.60}",
                hint="Rename the columns, for example: frame.columns = ['a', 'b']",
            )
        text = str(name)
        if not is_unicode(text):
            raise SourceError(
                f"the name of a column is not valid Unicode: {text!a:.60}",
                hint="Rename the column. Text that was decoded with surrogateescape has such characters.",
            )
        if text in result:
            raise SourceError(f"two columns are named {text!r}", hint="Rename one of them.")
        result[text] = None
    return tuple(result)


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode ``text``: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def next_step(step: int, row_bytes: int) -> int:
    """The number of rows of the next block, from that of the last one and the size of its rows in bytes."""
    return max(1, min(MAX_ROWS, 4 * step, MAX_BYTES // max(row_bytes, 1)))


def is_a(value: Any, module: str, name: str) -> bool:
    """Whether ``value`` is an instance of a class of a module; the module is not imported for that."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)
