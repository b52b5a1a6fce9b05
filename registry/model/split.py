"""What does a split hold: how many records, in which shards, in which files?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from registry.errors import UsageError
from registry.model.filenames import ShardedFileTemplate
from registry.model.shard_lengths import ShardLengths

_SPLIT_NAME = re.compile(r"(?=.*[a-zA-Z0-9])[a-zA-Z0-9_-]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A named part of a dataset version: its shards, in order, and what their files are called.

    ``num_bytes`` is the sum of the serialized records, without framing, as TFDS counts it.
    """

    name: str
    shard_lengths: ShardLengths
    num_bytes: int = 0
    files: ShardedFileTemplate = field(default_factory=lambda: ShardedFileTemplate(dataset="dataset"))

    def __post_init__(self) -> None:
        check_split_name(self.name)
        if self.num_bytes < 0:
            raise UsageError("num_bytes is never negative")
        if self.num_shards > 1 and not self.files.has_index:
            raise UsageError(
                f"the split {self.name} has {self.num_shards} shards, and its files are all named "
                f"{self.files.template[:120]!r}",
                hint="A template of several shards has SHARD_X_OF_Y in it.",
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
        """Name of the file of shard ``index``, relative to the version's folder."""
        return self.files.filename(self.name, index, self.num_shards)

    @property
    def filenames(self) -> list[str]:
        """Names of all shard files, in shard order."""
        return [self.filename(index) for index in range(self.num_shards)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One stored file of a split. ``num_bytes`` is the file's size, ``sha256`` 64 hex digits over its bytes.

    ``entity_tag`` is the ETag that an object store gave these bytes when they were published; None on disks.
    """

    index: int
    first_example: int
    num_examples: int
    num_bytes: int
    sha256: str
    entity_tag: str | None = field(default=None, compare=False)


def check_splits(splits: Sequence[Split], where: str) -> None:
    """Refuse splits of which two have one name; ``where`` says whose they are."""
    names = [split.name for split in splits]
    if len(set(names)) != len(names):
        raise UsageError(f"{where}: a split name is used twice: {names}")


def check_split_name(name: str) -> str:
    """``name`` if it may name a split: letters, digits, ``_`` and ``-``, at least one letter or digit, not ``all``."""
    if name == "all" or not _SPLIT_NAME.fullmatch(name):
        raise UsageError(
            f"invalid split name {name[:80]!r}",
            hint="A split name holds letters, digits, '_' and '-'; 'all' is kept for the union of all splits.",
            details={"split": name[:80]},
        )
    return name
