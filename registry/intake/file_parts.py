"""Makes the parts of a source whose files are tables: one part per file, in the splits that the names show.

``read_ahead`` parses the next rows of a part in a thread while its caller works on the last ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from registry.errors import SourceError
from registry.intake.accounting import account_for, count, size_lookup
from registry.intake.folder_columns import add_folder_columns
from registry.intake.options import AddOptions
from registry.intake.source import Files, FileUse, Part, Rows
from registry.intake.split_names import find_splits


@dataclass(frozen=True, slots=True, kw_only=True)
class FileParts:
    """The parts of a source; ``files`` and ``split_reason`` are those of ``Source``."""

    parts: Sequence[Part]
    files: Sequence[FileUse]
    split_reason: str


def make_parts(
    files: Files,
    options: AddOptions,
    open_file: Callable[[str], Callable[[], Iterator[Rows]] | None],
    *,
    noun: tuple[str, str],
) -> FileParts:
    """Open each file that belongs to a split. Folders such as ``year=2022`` are columns; see ``folder_columns``.

    Args:
        files: the files of the source.
        options: how they are opened.
        open_file: returns ``Part.read`` of a file, or None if the file has no rows.
        noun: one file and several files, for messages.

    Raises:
        SourceError: no file has rows, or the names of the files are ambiguous; see ``find_splits``.
    """
    splits = find_splits(files.names, options)
    sizes = size_lookup(files)
    uses: list[FileUse] = []
    parts: list[Part] = []
    empty: list[tuple[str, int]] = []
    for split, names in splits.files.items():
        used: list[tuple[str, int]] = []
        for name in names:
            read = open_file(name)
            if read is None:
                empty.append((name, sizes(name)))
            else:
                used.append((name, sizes(name)))
                parts.append(Part(split=split, name=name, read=read, num_bytes=sizes(name)))
        uses += account_for(used, "records", split=split)
    if not parts:
        problem = f"no row in {count(len(empty), noun)}, such as {empty[0][0]!r}" if empty else f"there is no {noun[0]}"
        raise SourceError(
            f"{files.location}: {problem}",
            hint="Check the path.",
            details={"files": [name for name, _ in empty[:100]]},
        )
    uses += account_for(empty, "skipped", reason="it has no rows")
    unmatched = [(name, sizes(name)) for name in splits.unmatched]
    uses += account_for(unmatched, "skipped", reason="no --split matches it")
    parts = add_folder_columns(parts, options.wishes())
    return FileParts(parts=parts, files=[*uses, *files.skipped], split_reason=splits.reason)


def read_ahead(rows: Generator[Rows, None, None]) -> Iterator[Rows]:
    """Yield ``rows``, and read the next ones in a thread meanwhile. The thread ends with the iterator."""
    with closing(rows), ThreadPoolExecutor(1, thread_name_prefix="registry-read") as thread:
        waiting: deque[Future[Rows | None]] = deque()
        try:
            while True:
                while len(waiting) < _MOST_AHEAD:
                    waiting.append(thread.submit(next, rows, None))
                found = waiting.popleft().result()
                if found is None:
                    return
                yield found
        finally:
            for future in waiting:
                future.cancel()


_MOST_AHEAD: Final = 3


def list_names(names: Sequence[str]) -> str:
    """The first names, and the number of the others.

    >>> list_names(["a", "b", "c", "d", "e", "f"])
    "'a', 'b', 'c', 'd', 'e' and 1 more"
    """
    more = f" and {len(names) - _MOST_SHOWN:,} more" if len(names) > _MOST_SHOWN else ""
    return ", ".join(map(repr, names[:_MOST_SHOWN])) + more


_MOST_SHOWN: Final = 5
