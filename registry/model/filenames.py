"""What is the file of a shard called? TFDS's names, ``mnist-train.tfrecord-00003-of-00010``, both ways.

Follows ShardedFileTemplate of TFDS 4.9: the template is the default one or holds the same variables in another order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from registry.errors import UsageError
from registry.model.reference import check_name
from registry.model.version import Version

DEFAULT_TEMPLATE: Final = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"


def version_folder(name: str, config: str | None, version: Version) -> str:
    """The folder of a version below a data directory, as TFDS lays it out: ``name[/config]/version``.

    >>> version_folder("mnist", "plain", Version(3, 0, 1))
    'mnist/plain/3.0.1'
    """
    return "/".join((name, str(version)) if config is None else (name, config, str(version)))


def tfds_id(filename: str, record: int) -> str:
    """What TFDS calls the record with index ``record`` of a file: the file's name without its folder, and the index.

    >>> tfds_id("mnist/3.0.1/mnist-train.tfrecord-00001-of-00004", 17)
    'mnist-train.tfrecord-00001-of-00004__17'
    """
    return f"{filename.rpartition('/')[2]}__{record}"


_VARIABLES: Final = {
    "DATASET": r"(?P<dataset>[a-zA-Z][a-zA-Z0-9_]*)",
    "SPLIT": r"(?P<split>[a-zA-Z0-9_-]+)",
    "FILEFORMAT": r"(?P<format>[a-zA-Z0-9_]+)",
    "SHARD_INDEX": r"(?P<index>[0-9]{5,})",
    "NUM_SHARDS": r"(?P<num_shards>[0-9]{5,})",
    "SHARD_X_OF_Y": r"(?P<index>[0-9]{5,})-of-(?P<num_shards>[0-9]{5,})",
}
_VARIABLE = re.compile(r"\{([A-Z_]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedFileTemplate:
    """How the shard files of a dataset version are named.

    ``template`` may use DATASET, SPLIT, FILEFORMAT, and SHARD_X_OF_Y or SHARD_INDEX with NUM_SHARDS. Numbers are padded
    with zeros to 5 digits, or to the digits of the number of shards where that is longer. Of ``parquet_columns``, which
    TFDS does not write, a split may be one file: ``{SPLIT}.parquet``. A ``tfrecord`` template without any variable is
    the name of a split's only file, as Earth Engine exports a table: ``Training_demo.tfrecord.gz``.

    >>> files = ShardedFileTemplate(dataset="mnist")
    >>> files.filename("train", 3, 10)
    'mnist-train.tfrecord-00003-of-00010'
    >>> files.parse("mnist-train.tfrecord-00003-of-00010")
    ('train', 3, 10)

    Raises:
        UsageError: an unknown variable, no shard index, a name or format that is none, or a path out of the folder.
    """

    dataset: str
    template: str = DEFAULT_TEMPLATE
    file_format: str = "tfrecord"

    def __post_init__(self) -> None:
        check_name(self.dataset)
        if not re.fullmatch(r"[a-zA-Z0-9_]{1,40}", self.file_format):
            raise UsageError(
                f"invalid file format {self.file_format[:40]!r}",
                hint="A format is named by letters, digits and '_', e.g. tfrecord.",
            )
        names = _VARIABLE.findall(self.template)
        rest = _VARIABLE.sub("", self.template)
        if unknown := [name for name in names if name not in _VARIABLES]:
            raise self._refuse(f"it uses the unknown variable {unknown[0]}")
        names_one_file = not names if self.file_format == "tfrecord" else "SPLIT" in names
        if not self.has_index and not (names_one_file and self.file_format in ("parquet_columns", "tfrecord")):
            raise self._refuse("it does not use SHARD_X_OF_Y or SHARD_INDEX")
        if len(set(names)) != len(names) or {"SHARD_X_OF_Y", "SHARD_INDEX"} <= set(names):
            raise self._refuse("it uses a variable twice")
        if re.search(r"[{}\\\0]", rest) or {"", ".", ".."} & set(self.template.split("/")):
            raise self._refuse("it is no path of a file below the version's folder")

    @property
    def has_index(self) -> bool:
        """Whether the name of a file tells its place; without, each split is one file: ``test.parquet``."""
        return bool({"SHARD_X_OF_Y", "SHARD_INDEX"} & set(_VARIABLE.findall(self.template)))

    def with_literal_dataset(self) -> ShardedFileTemplate:
        """A template of the same file names that does not depend on the dataset's name.

        >>> ShardedFileTemplate(dataset="mnist").with_literal_dataset().template
        'mnist-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}'
        """
        return replace(self, template=self.template.replace("{DATASET}", self.dataset))

    def filename(self, split: str, index: int, num_shards: int) -> str:
        """Name of the file of shard ``index`` of ``num_shards`` of ``split``, relative to the version's folder."""
        return self.namer(split, num_shards)(index)

    def namer(self, split: str, num_shards: int) -> Callable[[int], str]:
        """``filename`` as a function of the index alone, twenty times as fast for one who names many files."""
        digits = max(5, len(str(num_shards)))
        total = f"{num_shards:0{digits}d}"
        # The index stands in the name once, and no name holds a NUL.
        before, index, after = self.template.format(
            DATASET=self.dataset,
            SPLIT=split,
            FILEFORMAT=self.file_format,
            SHARD_INDEX="\0",
            NUM_SHARDS=total,
            SHARD_X_OF_Y=f"\0-of-{total}",
        ).partition("\0")
        # A bound method of a pattern: a call without a frame of Python. %.0s writes nothing.
        number = f"%0{digits}d" if index else "%.0s"
        return f"{before.replace('%', '%%')}{number}{after.replace('%', '%%')}".__mod__

    def parse(self, filename: str) -> tuple[str, int, int] | None:
        """``(split, index, num_shards)`` of a shard file of this dataset and format, or None for any other name.

        Split is ``""`` where the template has no SPLIT, the number of shards 0 where it has none.
        """
        pieces = _VARIABLE.split(self.template)
        pattern = "".join(_VARIABLES[piece] if place % 2 else re.escape(piece) for place, piece in enumerate(pieces))
        match = re.fullmatch(pattern, filename)
        if match is None:
            return None
        found = match.groupdict()
        if (
            found.get("dataset", self.dataset) != self.dataset
            or found.get("format", self.file_format) != self.file_format
        ):
            return None
        if not self.has_index:
            return found.get("split", ""), 0, 1
        return found.get("split", ""), int(found["index"]), int(found.get("num_shards") or 0)

    def _refuse(self, why: str) -> UsageError:
        return UsageError(
            f"invalid shard file template {self.template[:120]!r}: {why}",
            hint=f"The default is {DEFAULT_TEMPLATE}.",
            details={"template": self.template[:120]},
        )
