"""Laws of the names of an export's files: they are ordered by number, and every gap is named."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.builders.earth_engine.stored.found_files import find_export
from registry.errors import PreparedFormatError

PREFIXES = st.text("abc_-. 0189%{}é", min_size=1, max_size=8).filter(
    lambda text: not text.startswith((".", " ")) and not text[-1].isdigit() and not text.endswith((" ", "-", "."))
)


@given(
    PREFIXES, st.integers(1, 12), st.sampled_from(["-", ""]), st.sampled_from([".tfrecord", ".TFRecord.gz"]), st.data()
)
def test_names_in_any_order_on_disk_are_one_order(
    prefix: str, count: int, dash: str, suffix: str, data: st.DataObject
) -> None:
    names = [f"{prefix}{dash}{index:05d}{suffix}" for index in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        for name in data.draw(st.permutations(names)):
            (Path(folder) / name).touch()
        found = find_export(folder)
        assert (found.prefix, found.filenames) == (prefix, tuple(names))
        for again in (find_export(folder, prefix=prefix), find_export(Path(folder) / names[-1])):
            assert (again.prefix, again.filenames) == (prefix, tuple(names))


@given(st.sets(st.integers(0, 11), min_size=1))
def test_every_gap_is_named(lost: set[int]) -> None:
    names = {index: f"p-{index:05d}.tfrecord" for index in range(13)}
    with tempfile.TemporaryDirectory() as folder:
        for index in set(names) - lost:
            (Path(folder) / names[index]).touch()
        with pytest.raises(PreparedFormatError) as caught:
            find_export(folder)
    assert caught.value.details["missing"] == [names[index] for index in sorted(lost)]
    assert caught.value.details["doubled"] == []
