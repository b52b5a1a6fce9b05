"""Laws of versions with several locations, and of files that continue in another copy."""

from __future__ import annotations

import io
import shutil
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.prepared_samples import animals, prepare

import registry
from registry.errors import MirrorWarning, NotStoredError, StorageUnavailableError, VerificationError
from registry.model import LocationStep, current_locations
from registry.shards.mirrored import FallOverFile
from registry.storage.faults import Range, StoredFile

COUNT, SHARDS = 20, 4
NAMES = [f"animals-train.tfrecord-{index:05}-of-{SHARDS:05}" for index in range(SHARDS)]
STATES = ["sound", "missing", "flipped", "truncated", "swapped"]


def spoil(path: Path, state: str, other: bytes) -> None:
    content = path.read_bytes()
    if state == "missing":
        path.unlink()
    elif state == "flipped":
        path.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    elif state == "truncated":
        path.write_bytes(content[:-1])
    elif state == "swapped":
        path.write_bytes(other)


@given(st.lists(st.lists(st.sampled_from(STATES), min_size=SHARDS, max_size=SHARDS), min_size=2, max_size=3))
def test_a_read_gives_the_published_records_exactly_if_each_file_is_sound_somewhere(
    tmp_path_factory: pytest.TempPathFactory, states: list[list[str]]
) -> None:
    top = tmp_path_factory.mktemp("law")

    def ages(catalog: Any) -> list[int]:
        return [int(example["age"]) for example in catalog.dataset("animals").read("train")]

    prepare(top / "0", splits={"train": animals(COUNT)}, shards=SHARDS)
    with registry.connect(top / "catalog.db") as catalog, warnings.catch_warnings():
        warnings.simplefilter("ignore", MirrorWarning)
        catalog.import_tfds(top / "0").require_all()
        for place in range(1, len(states)):
            catalog.mirrors.add("animals", shutil.copytree(top / "0", top / str(place)))
        expected, sound = ages(catalog), [(top / "0" / name).read_bytes() for name in NAMES]
        for place, of_files in enumerate(states):
            for index, state in enumerate(of_files):
                spoil(top / str(place) / NAMES[index], state, sound[index - 1])

        is_whole = all("sound" in of_file for of_file in zip(*states, strict=True))
        assert [one.is_sound for one in catalog.mirrors.check("animals")] == [
            set(of_files) == {"sound"} for of_files in states
        ]
        if is_whole:
            assert ages(catalog) == expected
        else:
            with pytest.raises((VerificationError, NotStoredError)):
                ages(catalog)


LOCATIONS = ["home", "/a", "s3://b"]


@given(st.lists(st.builds(LocationStep, st.sampled_from(["add", "first", "remove"]), st.sampled_from(LOCATIONS))))
def test_locations_are_those_last_recorded_each_once(steps: list[LocationStep]) -> None:
    found = current_locations("home", steps)
    last = {step.location: step.kind for step in steps}
    assert len(set(found)) == len(found)
    assert set(found) == {one for one in LOCATIONS if last.get(one, "add" if one == "home" else "remove") != "remove"}
    if steps and steps[-1].kind == "first":
        assert found[0] == steps[-1].location


class Failing(StoredFile):
    """A file in memory that fails after some bytes, in whatever way it is read."""

    def __init__(self, content: bytes, num_readable: int) -> None:
        self._left = num_readable
        self._content = content
        super().__init__(_Failing(self, content), path="memory", buffer_bytes=7)

    @property
    def num_bytes(self) -> int:
        return len(self._content)

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise StorageUnavailableError("cannot read memory: it broke off")

    def read_ranges(self, ranges: Sequence[Range], *, in_order: bool = False) -> Iterator[tuple[int, memoryview]]:
        numbered = list(enumerate(ranges))
        for index, (start, stop) in numbered if in_order else reversed(numbered):
            self.take(stop - start)
            yield index, memoryview(self._content)[start:stop]


class _Failing(io.BytesIO):
    def __init__(self, file: Failing, content: bytes) -> None:
        super().__init__(content)
        self._file = file

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer)
        self._file.take(count)
        return count


@given(st.data(), st.binary(min_size=1, max_size=60), st.lists(st.integers(0, 80), max_size=4), st.booleans())
def test_a_file_that_breaks_off_continues_in_the_next_copy(
    data: st.DataObject, content: bytes, breaks: list[int], in_order: bool
) -> None:
    copies = iter([*(Failing(content, count) for count in breaks), Failing(content, 10**9)])
    errors: list[Exception] = []

    def open_next(error: Exception) -> StoredFile:
        errors.append(error)
        return next(copies)

    file = FallOverFile(next(copies), open_next)
    bounds = st.tuples(st.integers(0, len(content)), st.integers(0, len(content))).map(lambda pair: tuple(sorted(pair)))
    ranges: list[Any] = data.draw(st.lists(bounds, max_size=8))

    found = [(index, bytes(view)) for index, view in file.read_ranges(ranges, in_order=in_order)]
    whole = [(index, content[start:stop]) for index, (start, stop) in enumerate(ranges)]
    assert (found if in_order else sorted(found)) == whole

    place = data.draw(st.integers(0, len(content)))
    file.seek(place)
    assert file.read(5) == content[place : place + 5]
    assert file.read() == content[place + 5 :]
    assert b"".join(map(bytes, file.pieces())) == content
    assert file.num_bytes == len(content)
    assert len(errors) <= len(breaks)
    file.close()


def test_if_no_copy_is_left_the_error_of_the_last_one_is_raised() -> None:
    def open_next(error: Exception) -> StoredFile:
        raise error

    file = FallOverFile(Failing(b"0123456789", 4), open_next)
    ranges = file.read_ranges([(0, 4), (4, 8)], in_order=True)
    assert bytes(next(ranges)[1]) == b"0123"
    with pytest.raises(StorageUnavailableError, match="it broke off"):
        next(ranges)
    with pytest.raises(StorageUnavailableError):
        file.read(4)
