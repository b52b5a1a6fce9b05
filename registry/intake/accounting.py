"""Accounts for the files of a source: one ``FileUse`` for each file if there are few, else one for each folder.

The readers call it for their summaries and for ``Source.files``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from registry.intake.source import Files, FileUse, Role
from registry.intake.split_names import NamedSplits

MAX_FILES: Final = 20
MAX_FOLDERS: Final = 100
"""Files are listed by folder if there are more files; folders by their parents if there are more folders."""


def account_for(
    files: Iterable[tuple[str, int]], role: Role, *, reason: str = "", split: str | None = None
) -> tuple[FileUse, ...]:
    """The uses of files that share role, reason and split, sorted by name.

    Args:
        files: names, relative to the source, and sizes in bytes.
        role: what happened to them.
        reason: why they were skipped, or what the metadata is for.
        split: the split of their records.

    >>> [(use.name, use.num_files) for use in account_for(((f"cat/{n}.png", 9) for n in range(2000)), "records")]
    [('cat', 2000)]
    """
    # Sums for each folder, and the files themselves as long as they are few: a source may have a million.
    few: list[tuple[str, int]] = []
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, num_bytes in files:
        if len(few) <= MAX_FILES:
            few.append((name, num_bytes))
        one = sums[name.rpartition("/")[0]]
        one[0] += 1
        one[1] += num_bytes
    if len(few) <= MAX_FILES:
        found = [(name, 1, num_bytes) for name, num_bytes in few]
    else:
        while len(sums) > MAX_FOLDERS:
            deepest = max(folder.count("/") + 1 if folder else 0 for folder in sums)
            merged: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
            for folder, (num_files, num_bytes) in sums.items():
                parts = folder.split("/") if folder else []
                one = merged["/".join(parts[: deepest - 1])]
                one[0] += num_files
                one[1] += num_bytes
            sums = merged
        found = [(folder or ".", num_files, num_bytes) for folder, (num_files, num_bytes) in sums.items()]
    return tuple(
        FileUse(name=name, role=role, reason=reason, split=split, num_files=num_files, num_bytes=num_bytes)
        for name, num_files, num_bytes in sorted(found)
    )


def account_for_source(files: Files, splits: NamedSplits, noun: str, *, metadata: Sequence[str] = ()) -> list[FileUse]:
    """The uses of all files of a source whose kind is decided by names.

    Args:
        files: all of them.
        splits: the files with records.
        noun: what a file with records is called, such as ``"image"``.
        metadata: files with columns of the records.
    """
    sizes = size_lookup(files)

    def pairs(some: Sequence[str]) -> list[tuple[str, int]]:
        return [(name, sizes(name)) for name in some]

    used = {*metadata, *splits.unmatched, *(name for some in splits.files.values() for name in some)}
    others = [name for name in files.names if name not in used] if len(used) < len(files.names) else []
    return [
        *(use for split, some in splits.files.items() for use in account_for(pairs(some), "records", split=split)),
        *account_for(pairs(metadata), "metadata", reason="columns of the records"),
        *account_for(pairs(splits.unmatched), "skipped", reason="no --split matches it"),
        *account_for(pairs(others), "skipped", reason=f"not {'an' if noun[0] in 'aeiou' else 'a'} {noun} by its name"),
        *files.skipped,
    ]


def size_lookup(files: Files) -> Callable[[str], int]:
    """A function from the name of a file to its size. A million names need no dict, because they are sorted."""
    return lambda name: files.sizes[bisect_left(files.names, name)]


def count(number: int, noun: tuple[str, str]) -> str:
    """A number with its noun.

    >>> count(1, ("file", "files")), count(1204, ("file", "files"))
    ('1 file', '1,204 files')
    """
    return f"{number:,} {noun[0] if number == 1 else noun[1]}"


def in_folders(names: Sequence[str]) -> str:
    """The number of folders of files, for people; empty if there are none.

    >>> in_folders(["a/1", "b/1"]), in_folders(["1"])
    (' in 2 folders', '')
    """
    folders = {name.rpartition("/")[0] for name in names} - {""}
    return f" in {count(len(folders), ('folder', 'folders'))}" if folders else ""
