"""Makes the parts of a source whose files are tables: one part per file, in the splits that the names show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from registry.errors import SourceError
from registry.intake.source import Files, FileUse, Options, Part, Rows
from registry.intake.split_names import find_splits


@dataclass(frozen=True, slots=True, kw_only=True)
class FileParts:
    """The parts of a source; ``files`` and ``split_reason`` are those of ``Source``."""

    parts: Sequence[Part]
    files: Sequence[FileUse]
    split_reason: str


def make_parts(
    files: Files, options: Options, open_file: Callable[[str], Callable[[], Iterator[Rows]] | None], *, noun: str
) -> FileParts:
    """Open each file that belongs to a split.

    Args:
        files: the files of the source.
        options: how they are opened.
        open_file: returns ``Part.read`` of a file, or None if the file has no rows.
        noun: what a file is called in messages, such as ``CSV file``.

    Raises:
        SourceError: no file has rows, or the names of the files are ambiguous; see ``find_splits``.
    """
    splits = find_splits(files.names, options.splits)
    sizes = dict(zip(files.names, files.sizes, strict=True))
    uses: list[FileUse] = []
    parts: list[Part] = []
    for split, names in splits.files.items():
        for name in names:
            read = open_file(name)
            if read is None:
                uses.append(FileUse(name=name, role="skipped", reason="it has no rows", num_bytes=sizes[name]))
            else:
                parts.append(Part(split=split, name=name, read=read, num_bytes=sizes[name]))
                uses.append(FileUse(name=name, role="records", split=split, num_bytes=sizes[name]))
    uses += [
        FileUse(name=name, role="skipped", reason="no --split matches it", num_bytes=sizes[name])
        for name in splits.unmatched
    ]
    if not parts:
        problem = f"no row in {count(len(uses), noun)}, such as {uses[0].name!r}" if uses else f"there is no {noun}"
        raise SourceError(
            f"{files.location}: {problem}", hint="Check the path.", details={"files": [use.name for use in uses[:100]]}
        )
    return FileParts(parts=parts, files=[*uses, *files.skipped], split_reason=splits.reason)


def count(number: int, noun: str) -> str:
    """The number with its noun.

    >>> count(1, "file"), count(2000, "file")
    ('1 file', '2,000 files')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
