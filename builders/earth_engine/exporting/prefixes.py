"""Which names have the files of an image export, and which files of a folder are of its prefix?"""

from __future__ import annotations

import re
from typing import Final

from registry.builders.earth_engine.exporting.record_file import check_prefix
from registry.storage import Store

_FIVE_DIGITS: Final = 100_000


def check_image_prefix(prefix: str) -> str:
    """``prefix`` if the names of an image's files can begin with it, folders before them included.

    Raises:
        UsageError: a part of it is no name, or one that this registry gives to unfinished files.
    """
    for part in prefix.split("/"):
        check_prefix(part)
    return prefix


def find_files(store: Store, prefix: str) -> list[str]:
    """The files of the image export that ``prefix`` has: its mixer first, then the others by number.

    Also those of the older style, without a dash, whose numbers have five digits. A longer number is of a file among
    so many others, else a date: ``samples-20240131.tfrecord.gz`` is a table of another prefix.
    """
    folder, _, last = prefix.rpartition("/")
    ours = re.compile(
        rf"{re.escape(last)}(?:(?P<mixer>-?mixer\.json)|(?:-(?P<number>\d{{5,}})|(?P<old>\d{{5}}))\.tfrecord(?:\.gz)?)",
        re.ASCII,
    )
    inside = len(folder) + 1 if folder else 0
    found = [(one, name) for name in store.list(folder) if (one := ours.fullmatch(name[inside:])) is not None]
    numbered = sorted((-1 if one["mixer"] else int(one["number"] or one["old"]), name) for one, name in found)
    names: list[str] = []
    before = -1
    for number, name in numbered:
        if number >= _FIVE_DIGITS and number > before + 1:
            break
        names.append(name)
        before = number
    return names
