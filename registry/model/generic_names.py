"""Generic names of files and folders, which describe the purpose and not the data: ``train``, ``part_00000``.

A dataset is never named after such a path; the parent folder provides the name. This is a list of words, not a rule.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_OF_SPLITS: Final = (
    *("train", "training", "test", "testing", "val", "valid", "validation", "dev", "eval", "evaluation", "holdout"),
    *("all", "split", "splits", "fold", "full", "sample", "samples", "subset", "set", "sets"),
    *("trainset", "testset", "valset", "devset", "traindata", "testdata", "unseen"),
)
_OF_CONTENTS: Final = (
    *("data", "dataset", "datasets", "db", "database", "table", "tables", "sheet", "records", "record", "example"),
    *("examples", "item", "items", "feature", "features", "label", "labels", "annotation", "annotations", "class"),
    *("classes", "target", "targets", "image", "images", "img", "imgs", "picture", "pictures", "video", "videos"),
    *("value", "values", "df", "dataframe", "frame", "mydata", "mydataset", "rawdata", "tfrecord", "tfrecords", "npy"),
    *("audio", "array", "arrays", "csv", "tsv", "json", "jsonl", "parquet", "arrow", "npz"),
)
_OF_FILES: Final = (
    *("file", "files", "folder", "directory", "dir", "part", "parts", "of", "chunk", "batch"),
    *("input", "inputs", "output", "outputs", "in", "out", "result", "results", "export", "exports", "dump", "dumps"),
    *("download", "downloads", "archive", "archives", "backup", "copy", "raw", "processed", "clean", "cleaned"),
    *("interim", "external", "untitled", "unnamed", "unknown", "tmp", "temp", "cache", "cached", "attachment"),
    *("my", "new", "final", "latest", "current", "saved", "query", "misc"),
    *("index", "main", "master", "metadata", "meta", "croissant", "info", "default", "content", "contents"),
    *("resolve", "blob", "tree", "refs", "heads", "convert"),  # in URLs of files of a repository
)
_OF_SYSTEMS: Final = ("home", "users", "user", "root", "mnt", "media", "srv", "var", "opt", "desktop", "documents")
# Words that add nothing to a generic name: "x_train", "text_data", "shard_00000".
_BESIDE_OTHERS: Final = frozenset(("x", "y", "old", "text", "texts", "rows", "shard", "shards"))
_GENERIC: Final = frozenset((*_OF_SPLITS, *_OF_CONTENTS, *_OF_FILES, *_OF_SYSTEMS))
_COUNTED: Final = re.compile(
    r"[vc]?[0-9]*|(?=[a-f]*[0-9])[0-9a-f]{4,}|snappy"  # of "part-00000-5f0a9c31-c000.snappy.parquet"
    r"|(book|workbook)[0-9]+"  # as spreadsheets name what nobody named
)
_LETTERS: Final = str.maketrans(  # letters that Unicode does not decompose
    {"ß": "ss", "ø": "o", "Ø": "O", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE"}
    | {"ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "þ": "th", "ı": "i"}
)


def plain_name(part: str) -> str:
    """The letters and digits of a part of a path, without accents, with ``_`` for anything else.

    >>> plain_name("données (1)"), plain_name("Straßen-Łódź")
    ('donnees_1', 'Strassen_Lodz')
    """
    letters = part.translate(_LETTERS)
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", letters) if not unicodedata.combining(letter))
    return re.sub("[^A-Za-z0-9]+", "_", plain).strip("_")


def is_generic(name: str) -> bool:
    """Whether a name describes only the purpose or the number of a file, and not its data.

    >>> [name for name in ("train", "test_images", "part_00000", "2024", "data_v2", "x_train") if not is_generic(name)]
    []
    >>> is_generic("prices"), is_generic("cars_train")
    (False, False)
    """
    words = name.lower().split("_")
    words = [word for word in words if word not in _BESIDE_OTHERS] or words
    return all(_COUNTED.fullmatch(word) or word.rstrip("0123456789") in _GENERIC for word in words)
