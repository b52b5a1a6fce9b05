"""``Split``: a split of a dataset version, its shards, their lengths and the names of their files.

``ShardLengths`` and ``ShardSpan`` find the shards of a range of records in O(log shards). ``ShardedFileTemplate``
names the files as TFDS does. ``Promises`` provides readers with the published size and digest of a file.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, Protocol, overload

from registry.errors import UsageError
from registry.model.numbers import whole_number
from registry.model.reference import check_name
from registry.model.version import Version

_SPLIT_NAME = re.compile(r"(?=.*[a-zA-Z0-9])[a-zA-Z0-9_-]{1,200}")
_TFDS_SPLIT_NAME = re.compile(r"(?=.*[^\W_])[\w-]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A split of a dataset version: its shards, in order, and the names of their files.

    Attributes:
        name: e.g. ``train``. TFDS also writes letters of other scripts, and the slicing rule ``tfds-4`` reads them.
        shard_lengths: number of records in each shard.
        num_bytes: size of the serialized records, without framing, as TFDS counts it.
        files: the template of the file names.
    """

    name: str
    shard_lengths: AbstractShardLengths
    num_bytes: int = 0
    files: ShardedFileTemplate = field(default_factory=lambda: ShardedFileTemplate(dataset="dataset"))

    def __post_init__(self) -> None:
        if not _TFDS_SPLIT_NAME.fullmatch(self.name) or self.name == "all":
            check_split_name(self.name)
        if self.num_bytes < 0:
            raise UsageError(f"num_bytes must not be negative, not {self.num_bytes}")
        if self.num_shards > 1 and not self.files.has_index:
            raise UsageError(
                f"the split {self.name} has {self.num_shards} shards, but its template gives only one file name: "
                f"{self.files.template[:120]!r}",
                hint="Add SHARD_X_OF_Y to the template.",
            )

    @property
    def num_examples(self) -> int:
        """Number of records."""
        return self.shard_lengths.num_examples

    @property
    def num_shards(self) -> int:
        """Number of shards, empty ones included."""
        return len(self.shard_lengths)

    def filename(self, index: int) -> str:
        """Name of the file of shard ``index``, relative to the version's folder.

        Args:
            index: number of the shard, from 0.

        Raises:
            UsageError: ``index`` is not a non-negative whole number.
        """
        index = whole_number(index, "index", least=0)
        return self.files.filename(self.name, index, self.num_shards)

    @property
    def filenames(self) -> list[str]:
        """Names of all shard files, in shard order."""
        return [self.filename(index) for index in range(self.num_shards)]

    def shard(self, index: int, *, num_bytes: int, sha256: str, entity_tag: str | None = None) -> Shard:
        """A stored shard, with the records of ``shard_lengths``.

        Args:
            index: its number in the split.
            num_bytes: the size of its file.
            sha256: the digest of its file.
            entity_tag: the ETag of its file in an object store, if it is known.

        >>> split = Split(name="train", shard_lengths=ShardLengths([3, 2]))
        >>> split.shard(1, num_bytes=90, sha256="0" * 64).first_example
        3
        """
        return Shard(
            index=index,
            first_example=self.shard_lengths.start(index),
            num_examples=self.shard_lengths[index],
            num_bytes=num_bytes,
            sha256=sha256,
            entity_tag=entity_tag,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One stored file of a split.

    Attributes:
        index: number of the shard in its split, from 0.
        first_example: position in the split of its first record.
        num_examples: number of records.
        num_bytes: size of the file.
        sha256: 64 hex digits over the bytes of the file.
        entity_tag: the ETag that an object store gave the file when it was published; None on disks.
    """

    index: int
    first_example: int
    num_examples: int
    num_bytes: int
    sha256: str
    entity_tag: str | None = field(default=None, compare=False)


def shards_by_filename(splits: Iterable[Split], shards: Mapping[str, Sequence[Shard]]) -> dict[str, Shard]:
    """The shards of a version by the names of their files; ``shards`` has them by split."""
    return {split.filename(shard.index): shard for split in splits for shard in shards[split.name]}


def check_splits(splits: Sequence[Split], where: str) -> None:
    """Check that all splits have different names; ``where`` is the version, for the message."""
    names = [split.name for split in splits]
    if len(set(names)) != len(names):
        raise UsageError(f"{where}: a split name is used twice: {names}")


def check_split_name(name: str) -> str:
    """Check the name of a new split: ASCII letters, digits, ``_`` and ``-``, with a letter or digit; and return it.

    ``all`` is reserved.
    """
    if name == "all" or not _SPLIT_NAME.fullmatch(name):
        raise UsageError(
            f"invalid split name {name[:80]!r}",
            hint="A split name consists of ASCII letters, digits, '_' and '-'; 'all' means the union of all splits.",
            details={"split": name[:80]},
        )
    return name


class AbstractShardLengths(Sequence[int]):
    """The number of records in each shard, in shard order. Immutable.

    Objects are equal if their lengths are equal, regardless of where they are stored. They are pickled as
    ``ShardLengths``.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def num_examples(self) -> int:
        """Number of records in all shards."""

    @abstractmethod
    def start(self, index: int) -> int:
        """Position in the split of the first record of shard ``index``; ``start(len(self))`` is ``num_examples``."""

    @abstractmethod
    def shard_of(self, position: int) -> int:
        """Index of the shard that contains record ``position`` (0 <= position < num_examples), never an empty one."""

    @abstractmethod
    def empty_shards(self, first: int, stop: int) -> Sequence[int]:
        """Indices of the shards ``first``..``stop`` (stop excluded) without records, in order."""

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list):  # as TFDS gives them; a list has no hash that could differ
            return list(self) == other
        if not isinstance(other, AbstractShardLengths):
            return NotImplemented
        return self is other or (
            (len(self), self.num_examples) == (len(other), other.num_examples) and self[:] == other[:]
        )

    def __hash__(self) -> int:
        return hash((len(self), self.num_examples))

    def __reduce__(self) -> tuple[type[ShardLengths], tuple[list[int]]]:
        return ShardLengths, (list(self),)

    def __repr__(self) -> str:
        listing = ", ".join(map(str, self[:8])) + (", ..." if len(self) > 8 else "")
        return f"ShardLengths([{listing}])"


class ShardLengths(AbstractShardLengths):
    """Shard lengths in memory: 16 bytes a shard.

    >>> lengths = ShardLengths([3, 0, 4])
    >>> list(lengths), lengths.num_examples, lengths.start(2)
    ([3, 0, 4], 7, 3)
    >>> lengths.shard_of(3), list(lengths.empty_shards(0, 3))
    (2, [1])
    """

    __slots__ = ("_empty", "_lengths", "_starts")

    def __init__(self, lengths: Iterable[int]) -> None:
        if isinstance(lengths, bytes | bytearray | memoryview | str):
            raise UsageError("shard lengths must be a list of whole numbers, not bytes or text")
        try:
            self._lengths = array("q", lengths)
            self._starts = array("q", accumulate(self._lengths, initial=0))
        except (OverflowError, TypeError) as error:
            raise UsageError("shard lengths must be whole numbers with a sum below 2**63") from error
        shortest = min(self._lengths, default=1)
        if shortest < 0:
            raise UsageError(f"a shard length must not be negative, not {shortest}")
        # Almost no split has an empty shard, and then nothing has to be searched.
        self._empty = array(
            "q", (index for index, length in enumerate(self._lengths) if not length) if not shortest else ()
        )

    @property
    def num_examples(self) -> int:
        """Number of records in all shards."""
        return self._starts[-1]

    def start(self, index: int) -> int:
        """Position in the split of the first record of shard ``index``; ``start(len(self))`` is ``num_examples``."""
        return self._starts[index]

    def shard_of(self, position: int) -> int:
        """Index of the shard that contains record ``position`` (0 <= position < num_examples), never an empty one."""
        return bisect_right(self._starts, position) - 1

    def empty_shards(self, first: int, stop: int) -> Sequence[int]:
        """Indices of the shards ``first``..``stop`` (stop excluded) without records, in order."""
        if not self._empty:
            return ()
        # A view, not a copy: a union may request the same million again and again.
        return memoryview(self._empty)[bisect_left(self._empty, first) : bisect_left(self._empty, stop)]

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return self._lengths[index]

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        return iter(self._lengths)


@dataclass(frozen=True, slots=True)
class ShardSpan:
    """Records ``start``..``stop`` of a split (at least one), and the shards ``first``..``last`` that contain them.

    A *place* counts the shards of the span from 0, without the ``empty`` ones. Each method takes O(log shards).

    >>> span = ShardSpan.of(ShardLengths([3, 0, 4]), 1, 5)
    >>> span.count, span.shard_at(1), span.place_of(2), list(span.takes(0, 2))
    (2, 2, 1, [2, 2])
    """

    lengths: AbstractShardLengths
    start: int
    stop: int
    first: int
    last: int
    empty: Sequence[int] = field(compare=False)

    @classmethod
    def of(cls, lengths: AbstractShardLengths, start: int, stop: int) -> ShardSpan:
        """The shards that contain records ``start``..``stop``, at least one record."""
        first, last = lengths.shard_of(start), lengths.shard_of(stop - 1)
        return cls(lengths, start, stop, first, last, lengths.empty_shards(first, last))

    def __reduce__(self) -> tuple[Callable[..., ShardSpan], tuple[AbstractShardLengths, int, int]]:
        return ShardSpan.of, (self.lengths, self.start, self.stop)  # the empty shards may be a view: not pickled

    @property
    def count(self) -> int:
        """Number of shards that contain records of the span."""
        return self.last - self.first + 1 - len(self.empty)

    def shard_at(self, place: int) -> int:
        """Index of the shard at ``place``: after ``place`` non-empty shards of the span."""
        shard = self.first + place
        if self.empty:
            # The empty shards before it have at most ``place`` non-empty shards before them.
            ranks = range(len(self.empty))
            shard += bisect_right(ranks, place, key=lambda rank: self.empty[rank] - self.first - rank)
        return shard

    def place_of(self, shard: int) -> int:
        """The place of a non-empty shard: the number of non-empty shards of the span before it."""
        return shard - self.first - bisect_left(self.empty, shard)

    def cut(self, shard: int) -> tuple[int, int]:
        """The number of records of a non-empty shard that come before the span, and the number that are in it."""
        begin = self.lengths.start(shard)
        skip = max(self.start - begin, 0)
        return skip, min(self.stop - begin, self.lengths[shard]) - skip

    def takes(self, start: int, stop: int) -> array[int]:
        """The number of records in the span, for each shard at the places ``start``..``stop`` (stop excluded)."""
        takes = array("q")
        if start < stop:
            takes.extend(self.lengths[self.shard_at(start) : self.shard_at(stop - 1) + 1])
            if len(takes) > stop - start:
                takes = array("q", filter(None, takes))
            for place in {0, self.count - 1} & {start, stop - 1}:
                takes[place - start] = self.cut(self.shard_at(place))[1]
        return takes


DEFAULT_TEMPLATE: Final = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"


def version_folder(name: str, config: str | None, version: Version) -> str:
    """The folder of a version below a data directory, as TFDS lays it out: ``name[/config]/version``.

    >>> version_folder("mnist", "plain", Version(3, 0, 1))
    'mnist/plain/3.0.1'
    """
    return "/".join((name, str(version)) if config is None else (name, config, str(version)))


def tfds_id(filename: str, record: int) -> str:
    """The TFDS id of record ``record`` of a file: the name of the file without its folder, and the index.

    >>> tfds_id("mnist/3.0.1/mnist-train.tfrecord-00001-of-00004", 17)
    'mnist-train.tfrecord-00001-of-00004__17'
    """
    return f"{filename.rpartition('/')[2]}__{record}"


_VARIABLES: Final = {
    "DATASET": r"(?P<dataset>[a-zA-Z][a-zA-Z0-9_]*)",
    "SPLIT": r"(?P<split>[\w-]+)",
    "FILEFORMAT": r"(?P<format>[a-zA-Z0-9_]+)",
    "SHARD_INDEX": r"(?P<index>[0-9]{5,})",
    "NUM_SHARDS": r"(?P<num_shards>[0-9]{5,})",
    "SHARD_X_OF_Y": r"(?P<index>[0-9]{5,})-of-(?P<num_shards>[0-9]{5,})",
}
_VARIABLE = re.compile(r"\{([A-Z_]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedFileTemplate:
    """The names of the shard files of a dataset version, after ShardedFileTemplate of TFDS 4.9.

    ``template`` may use DATASET, SPLIT, FILEFORMAT, and SHARD_X_OF_Y or SHARD_INDEX with NUM_SHARDS. Numbers are padded
    with zeros to 5 digits, or to as many digits as the number of shards has. In the format ``parquet_columns``, which
    TFDS does not write, a split may be one file: ``{SPLIT}.parquet``. In this format, ``tfrecord`` and
    ``array_record``, a template without a variable is the name of the only file of a split, as Earth Engine exports
    tables: ``Training_demo.tfrecord.gz``.

    >>> files = ShardedFileTemplate(dataset="mnist")
    >>> files.filename("train", 3, 10)
    'mnist-train.tfrecord-00003-of-00010'
    >>> files.parse("mnist-train.tfrecord-00003-of-00010")
    ('train', 3, 10)

    Raises:
        UsageError: a variable is unknown, the shard index is missing, a name or format is invalid, or the path leaves
            the folder.
    """

    dataset: str
    template: str = DEFAULT_TEMPLATE
    file_format: str = "tfrecord"

    def __post_init__(self) -> None:
        check_name(self.dataset)
        if not re.fullmatch(r"[a-zA-Z0-9_]{1,40}", self.file_format):
            raise UsageError(
                f"invalid file format {self.file_format[:40]!r}",
                hint="The name of a format consists of letters, digits and '_', e.g. tfrecord.",
            )
        names = _VARIABLE.findall(self.template)
        rest = _VARIABLE.sub("", self.template)
        if unknown := [name for name in names if name not in _VARIABLES]:
            raise self._refuse(f"it uses the unknown variable {unknown[0]}")
        names_one_file = not names or ("SPLIT" in names and self.file_format == "parquet_columns")
        if not self.has_index and not (
            names_one_file and self.file_format in ("parquet_columns", "tfrecord", "array_record")
        ):
            raise self._refuse("it does not use SHARD_X_OF_Y or SHARD_INDEX")
        if len(set(names)) != len(names) or {"SHARD_X_OF_Y", "SHARD_INDEX"} <= set(names):
            raise self._refuse("it uses a variable twice")
        if re.search(r"[{}\\\0]", rest) or {"", ".", ".."} & set(self.template.split("/")):
            raise self._refuse("it is not a path below the version's folder")

    @property
    def has_index(self) -> bool:
        """Whether file names contain the index of the shard. If not, each split is one file: ``test.parquet``."""
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
        """``filename`` as a function of the index: twenty times as fast for many files."""
        digits = max(5, len(str(num_shards)))
        total = f"{num_shards:0{digits}d}"
        # The index occurs once in the name, and no name contains a NUL.
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

        The split is ``""`` if the template has no SPLIT, and the number of shards is 0 if it has no NUM_SHARDS.
        """
        pieces = _VARIABLE.split(self.template)
        pattern = "".join(_VARIABLES[piece] if place % 2 else re.escape(piece) for place, piece in enumerate(pieces))
        match = re.fullmatch(pattern, filename)
        if match is None:
            return None
        groups = match.groupdict()
        if (
            groups.get("dataset", self.dataset) != self.dataset
            or groups.get("format", self.file_format) != self.file_format
        ):
            return None
        if not self.has_index:
            return groups.get("split", ""), 0, 1
        return groups.get("split", ""), int(groups["index"]), int(groups.get("num_shards") or 0)

    def _refuse(self, why: str) -> UsageError:
        return UsageError(
            f"invalid shard file template {self.template[:120]!r}: {why}",
            hint=f"The default is {DEFAULT_TEMPLATE}.",
            details={"template": self.template[:120]},
        )


class Promises(Protocol):
    """The published size and digest of files, from a catalog or a pin. It can be sent to other processes."""

    def find(self, name: str) -> Shard | None:
        """The published shard with the file ``name``, or None for another file, such as a description."""

    def within(self, splits: Collection[str]) -> Promises:
        """The promises for only the files of these splits, to send along with their reader."""


class UntaggedShards:
    """The promises for copies of published files in another place, where their ETags are unknown."""

    def __init__(self, promises: Promises) -> None:
        """``promises`` are those for the place where the files were published."""
        self._promises = promises

    def find(self, name: str) -> Shard | None:
        """The published shard with the file ``name``, without its ETag, or None."""
        result = self._promises.find(name)
        return None if result is None else replace(result, entity_tag=None)

    def within(self, splits: Collection[str]) -> UntaggedShards:
        """The promises for the files of these splits only."""
        return UntaggedShards(self._promises.within(splits))


class KnownShards:
    """The promises for files that are listed one by one, as in a pin."""

    def __init__(self, shards: Mapping[str, Shard]) -> None:
        """``shards`` are the shards by file name."""
        self._shards = dict(shards)

    def find(self, name: str) -> Shard | None:
        """The published shard with the file ``name``, or None."""
        return self._shards.get(name)

    def within(self, splits: Collection[str]) -> KnownShards:  # noqa: ARG002 (they are few)
        """These promises: a pin names only the files that it reads."""
        return self
