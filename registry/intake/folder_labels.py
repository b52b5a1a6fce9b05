"""Derives class labels from folders, for sources whose files are records. Pure; used for media and text files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from registry.errors import FeatureError
from registry.features import ClassLabel


def find_labels(splits: Mapping[str, Sequence[str]]) -> tuple[ClassLabel | None, str]:
    """The label of files, if folders are classes, and the reason, for people.

    Folders are classes if the files of each split are exactly one folder below the same folder, and a split has at
    least two of these folders. The names of all splits are sorted, by code points.

    Args:
        splits: the names of the files of each split, joined by ``/``.

    >>> label, reason = find_labels({"train": ["train/dog/1.png", "train/cat/1.png"], "test": ["test/cat/1.png"]})
    >>> label.names, reason
    (('cat', 'dog'), 'the names of 2 folders, sorted')
    >>> find_labels({"train": ["cat/1.png", "2.png"]})
    (None, 'no label: not every file is exactly one folder below the same folder')
    """
    names: set[str] = set()
    most = 0
    for files in splits.values():
        folders = {name.rpartition("/")[0] for name in files}
        if len({folder.rpartition("/")[0] for folder in folders}) > 1 or ("" in folders and len(folders) > 1):
            return None, "no label: not every file is exactly one folder below the same folder"
        names.update(folder.rpartition("/")[2] for folder in folders)
        most = max(most, len(folders))
    if most < 2:
        return None, "no label: no split has two folders"
    try:
        return ClassLabel(names=sorted(names)), f"the names of {len(names):,} folders, sorted"
    except FeatureError as error:  # such as a space at the end of a name
        return None, f"no label: {error.message}"


def label_of(name: str) -> str:
    """The class of a file.

    >>> label_of("train/dog/1.png")
    'dog'
    """
    return name.rpartition("/")[0].rpartition("/")[2]
