"""How many records have the files of an export, and are all alike? Read file by file, many records at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from registry.builders.earth_engine.kinds import Kind
from registry.builders.earth_engine.places.mixer import Mixer
from registry.builders.earth_engine.stored.found_files import FoundExport
from registry.builders.earth_engine.stored.record_forms import check_alike
from registry.errors import PreparedFormatError, ShardMismatchError
from registry.splits import counted
from registry.tfrecord import RecordBlock, is_gzip, read_blocks

Advance = Callable[[int], None]

_MOST_FILES: Final = 10


def check_files(found: FoundExport) -> Iterator[str]:
    """Sentences on files that are not what their names say. Raises PreparedFormatError where one is empty."""
    for name in found.filenames:
        with found.store.open(name) as file:
            start = file.read(12)
        if not start:
            raise PreparedFormatError(
                f"{found.store.locate(name)} is empty: 0 bytes, a download that was broken off",
                hint="Download it again.",
                details={"file": name},
            )
        if is_gzip(start) != name.lower().endswith(".gz"):
            told = "is compressed, and its name does not say so" if is_gzip(start) else "is named .gz, and is none"
            yield f"{name} {told}: it is read as what it is."


def blocks_of(found: FoundExport, name: str, most: int = 1024) -> Iterator[RecordBlock]:
    """The records of one file, many at a time."""
    for block, _ in read_blocks(found.store, name, most=most, verify="block"):
        yield block


def all_blocks(found: FoundExport, advance: Advance | None) -> Iterator[tuple[str, RecordBlock]]:
    """The records of all files in order, each block with the path of its file."""
    for name in found.filenames:
        for block in blocks_of(found, name):
            yield found.store.locate(name), block
            if advance is not None:
                advance(block.num_records)


def count_records(
    found: FoundExport, sizes: Mapping[str, tuple[Kind, int]] | None, advance: Advance | None
) -> tuple[tuple[int, ...], int]:
    """The records of each file, and the bytes of all; each has to hold ``sizes``, where these are given.

    Raises:
        As ``check_alike``.
    """
    counts, num_bytes = [], 0
    for name in found.filenames:
        count = 0
        for block in blocks_of(found, name):
            if sizes is not None:
                check_alike(block, sizes, path=found.store.locate(name), first=count)
            count += block.num_records
            num_bytes += block.num_bytes
            if advance is not None:
                advance(block.num_records)
        counts.append(count)
    return tuple(counts), num_bytes


def check_counts(
    found: FoundExport, counts: Sequence[int], mixer: Mixer, *, patches: Sequence[int] | None, is_sequence: bool
) -> None:
    """Refuse files that do not hold as many records as the mixer says, or as ``patches`` were not left out.

    Raises:
        ShardMismatchError: with both numbers, and those of the files.
    """
    num_patches = mixer.total_patches if patches is None else len(patches)
    expected = num_patches
    what = f"{expected:,} patches" if patches is None else f"{expected:,} patches that were not left out"
    if is_sequence:
        expected *= mixer.patch.width * mixer.patch.height
        what = f"{what} of {counted(expected // max(num_patches, 1), 'pixel')}, {expected} records"
    total = sum(counts)
    if total == expected:
        return
    listed = "".join(
        f"\n  {name}: {count}" for name, count in list(zip(found.filenames, counts, strict=True))[:_MOST_FILES]
    )
    more = len(counts) - _MOST_FILES
    raise ShardMismatchError(
        f"{found.store.url}: {found.mixer_name or 'the mixer'} has {what}, and the files hold "
        f"{counted(total, 'record')}{listed}" + (f"\n  and {counted(more, 'more file')}" if more > 0 else ""),
        hint="Were all files downloaded, the last one too? Or is it the mixer of another export?",
        details={"expected": expected, "found": total, "counts": list(counts[:100])},
    )
