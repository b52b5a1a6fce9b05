"""Laws of kept columns: any rows give the values of the records that they were made from."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from property.test_block_laws import as_bytes, exact, schemas_and_records
from support.block_checks import joined

from registry.columns import AttachedFolder, ColumnFolder, KeptColumn, Layout
from registry.features import ExampleBlock, FeaturesDict, NestedExamples, Ragged, codec_of
from registry.features.codec import fill_tree
from registry.features.nested import plain_tree
from registry.storage.cache import FileCache
from registry.storage.local import LocalStore


def parts_of(records: list[bytes], sizes: list[int]) -> list[list[bytes]]:
    """``records`` in parts of these sizes, and the rest."""
    parts = []
    for size in sizes:
        parts.append(records[:size])
        records = records[size:]
    return [part for part in (*parts, records) if part]


def flat_parts(features: FeaturesDict, parts: list[list[bytes]]) -> list[tuple[int, Any]]:
    """The first record and the flat values of each part."""
    firsts = np.cumsum([0, *map(len, parts)]).tolist()
    codec = codec_of(features)
    return [(first, codec.flat_records(*joined(part)).flats) for first, part in zip(firsts, parts, strict=False)]


def in_memory(layout: Layout, place: int, parts: list[tuple[int, Any]]) -> KeptColumn:
    arrays = [[np.zeros(int(form.has_zero), form.dtype)] * int(form.has_zero) for form in layout.forms]
    lengths = [0] * len(arrays)
    for first, flats in parts:
        for number, entries in enumerate(layout.append(flats[place], first, list(lengths))):
            arrays[number].append(entries)
            lengths[number] += len(entries)
    none = [np.empty((0, *form.shape), form.dtype) for form in layout.forms]
    whole = [np.concatenate(some or [one]) for some, one in zip(arrays, none, strict=True)]
    for array in whole:
        array.flags.writeable = False
    return KeptColumn(layout, whole, None, ())


def same_bits(value: Any) -> Any:
    """A key that is equal for values with equal types, dtypes, shapes and bits, writable or not."""
    if isinstance(value, Ragged):
        return Ragged, same_bits(value.flat_values), [same_bits(level) for level in value.row_lengths]
    if isinstance(value, dict):
        return {name: same_bits(inner) for name, inner in value.items()}
    if isinstance(value, NestedExamples):
        return NestedExamples, repr(value._tree), same_bits(value.columns())
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value.shape, [same_bits(item) for item in value.flat]
    return exact(as_bytes(value))


def check_rows(
    features: FeaturesDict, columns: list[KeptColumn], records: list[bytes], rows: Any, *, copy: bool
) -> None:
    """The columns give the values of ``rows`` of ``records``: in blocks, as arrays, and one by one."""
    key = exact if copy else same_bits
    codec = codec_of(features)
    places = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
    chosen = [records[place] for place in places]
    expected = [key(codec.decode(record)) for record in chosen]
    pairs = list(zip(columns, codec.columns, strict=True))
    blocks = [column.values.block(reader, rows, copy=copy) for column, reader in pairs]
    block = ExampleBlock(codec.tree, blocks, len(expected))
    assert [key(example) for example in block.examples()] == expected
    if chosen:
        arrays = same_bits(codec.decode_block(*joined(chosen)).columns())
        assert same_bits(block.columns()) == arrays
        if not isinstance(rows, slice):
            taken = [column.values.taker(reader, copy=copy)(rows) for column, reader in pairs]
            assert same_bits(fill_tree(plain_tree(codec.tree), taken)) == arrays
    getters = [column.values.getter(reader, copy=copy) for column, reader in pairs]
    assert [key(fill_tree(codec.tree, [getter(place) for getter in getters])) for place in places] == expected


@given(schemas_and_records(), st.lists(st.integers(1, 40), max_size=4), st.booleans(), st.data())
def test_any_rows_have_the_values_of_their_records(
    given_: tuple[FeaturesDict, list[bytes]], sizes: list[int], copy: bool, data: st.DataObject
) -> None:
    features, records = given_
    layouts = [Layout(reader) for reader in codec_of(features).columns]
    if not all(layout.forms for layout in layouts):
        return
    parts = flat_parts(features, parts_of(records, sizes))
    columns = [in_memory(layout, place, parts) for place, layout in enumerate(layouts)]
    start = data.draw(st.integers(0, len(records)))
    stop = data.draw(st.integers(start, len(records)))
    check_rows(features, columns, records, slice(start, stop), copy=copy)
    if records:
        rows = data.draw(st.lists(st.integers(0, len(records) - 1), max_size=30))
        check_rows(features, columns, records, np.array(rows, np.int64), copy=copy)


@given(schemas_and_records(), st.sampled_from([1, 2, 16]), st.booleans(), st.data())
def test_attached_files_have_the_values_of_their_records(
    given_: tuple[FeaturesDict, list[bytes]], size: int, in_place: bool, data: st.DataObject
) -> None:
    features, records = given_
    layouts = [Layout(reader) for reader in codec_of(features).columns]
    if not all(layout.forms for layout in layouts) or not records:
        return
    parts = flat_parts(features, [records[at : at + size] for at in range(0, len(records), size)])
    rows = np.array(data.draw(st.lists(st.integers(0, len(records) - 1), min_size=1, max_size=9)), np.int64)
    with tempfile.TemporaryDirectory() as root:
        columns = []
        for place, layout in enumerate(layouts):
            attached, source, is_shared = FileCache(f"{root}/attached"), '["", "a split"]', data.draw(st.booleans())
            origin = ColumnFolder(attached, source, layout, len(records), size, is_shared=is_shared)
            writer = origin.write()
            assert writer is not None
            with writer:
                for first, flats in parts:
                    assert writer.append(layout.append(flats[place], first, writer.lengths))
                writer.finish()
            store = LocalStore(origin.folder)
            if in_place:
                folder: ColumnFolder = AttachedFolder(origin, store.read_bytes("column.json"), store.open)
                column = folder.open()
            else:
                folder = ColumnFolder(FileCache(f"{root}/cache"), origin.source, layout, len(records), size)
                column = folder.reserve(store.read_bytes("column.json"))
            assert column is not None
            every = range(folder.num_blocks)
            for blocks in (sorted({int(row) // size for row in rows}), every):
                missing = {block: 1 for block in every if column.is_searched and not column.is_sound(block, 1)}
                missing |= {block: len(column.arrays) for block in blocks if not column.is_sound(block)}
                for name, ranges in folder.ranges(column.blocks, missing).items():
                    assert not in_place
                    for index, view in store.read_ranges(name, ranges):
                        folder.put(name, ranges[index][0], view)
                assert all(column.is_sound(block) for block in blocks)
            columns.append(column)
        check_rows(features, columns, records, rows, copy=False)
        check_rows(features, columns, records, slice(0, len(records)), copy=True)


@given(schemas_and_records(), st.sampled_from([1, 2, 16]), st.data())
def test_files_have_the_values_of_their_records_however_often_their_writer_is_stopped(
    given_: tuple[FeaturesDict, list[bytes]], size: int, data: st.DataObject
) -> None:
    features, records = given_
    layouts = [Layout(reader) for reader in codec_of(features).columns]
    if not all(layout.forms for layout in layouts):
        return
    parts = flat_parts(features, [records[at : at + size] for at in range(0, len(records), size)])
    with tempfile.TemporaryDirectory() as root:
        columns = []
        for place, layout in enumerate(layouts):
            folder = ColumnFolder(FileCache(f"{root}/cache"), "a split", layout, len(records), size)
            assert folder.open() is None
            is_finished = False
            while not is_finished:
                writer = folder.write()
                assert writer is not None
                with writer:
                    done = writer.num_records // size if writer.num_records < len(records) else len(parts)
                    stop = data.draw(st.integers(min(done + 1, len(parts)), len(parts)))
                    for first, flats in parts[done:stop]:
                        assert writer.append(layout.append(flats[place], first, writer.lengths))
                    if stop == len(parts):
                        writer.finish()
                        is_finished = True
            column = folder.open()
            assert column is not None
            assert all(column.is_sound(block) for block in range(folder.num_blocks))
            columns.append(column)
        check_rows(features, columns, records, slice(0, len(records)), copy=True)
        check_rows(features, columns, records, np.arange(len(records))[::-1], copy=False)
