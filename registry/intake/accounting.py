"""Accounts for the files of a source: one ``FileUse`` for each file if there are few, else one for each folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from registry.intake.source import FileUse, Role

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
