"""Laws of the cache: any reads, with a cache of any size and in any state, give the bytes of the file."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from support.cache_samples import (
    CONTENT,
    KEPT_BLOCK_BYTES,
    SHA256,
    SIZE,
    Source,
    block_files,
    num_bytes_of,
    open_cached,
)
from support.levels import examples

from registry.storage.cache import BLOCK_BYTES, CachedBlocks, CachedFile, FileCache


@st.composite
def one_range(draw: st.DrawFn) -> tuple[int, int]:
    near = st.sampled_from([0, 1000, BLOCK_BYTES, 2 * BLOCK_BYTES, 5 * BLOCK_BYTES, SIZE - 1000, SIZE])
    start = min(max(0, draw(near) + draw(st.integers(-300, 300))), SIZE)
    num_bytes = draw(st.one_of(st.just(0), st.integers(0, 500), st.sampled_from([BLOCK_BYTES, 3 * BLOCK_BYTES, SIZE])))
    return start, min(start + num_bytes, SIZE)


READS = st.one_of(
    st.tuples(st.sampled_from(["in order", "any order"]), st.lists(one_range(), max_size=8)),
    st.tuples(st.just("seek"), one_range()),
    st.tuples(st.sampled_from(["pieces", "reopen", "hash", "prove"]), st.none()),
)
DAMAGE = st.tuples(
    st.sampled_from(["cut", "change", "delete", "empty", "folder", "size", "pipe", "clear"]),
    st.integers(0, 6),
)
LIMITS = st.sampled_from([None, 0, 1000, KEPT_BLOCK_BYTES, 3 * KEPT_BLOCK_BYTES + 5, 100 * KEPT_BLOCK_BYTES])


def read(file: CachedFile, way: str, what: list[tuple[int, int]] | tuple[int, int] | None) -> None:
    if way == "pieces":
        assert b"".join(map(bytes, file.pieces())) == CONTENT
    elif way == "seek":
        start, stop = what
        file.seek(start)
        assert file.read(stop - start) == CONTENT[start:stop]
        assert file.tell() == stop
    else:
        found = [(index, bytes(view)) for index, view in file.read_ranges(what, in_order=way == "in order")]
        assert sorted(index for index, _ in found) == list(range(len(what)))
        if way == "in order":
            assert [index for index, _ in found] == list(range(len(what)))
        assert all(content == CONTENT[slice(*what[index])] for index, content in found)


def damage(cache: FileCache, kind: str, number: int) -> None:
    """Damage the folder as a broken disk, a careless person or another program would."""
    path = block_files(cache).get(number)
    if kind == "folder":
        shutil.rmtree(cache.folder, ignore_errors=True)
    elif kind == "clear":
        cache.clear()
    elif kind == "size":
        (cache.folder / kind).unlink(missing_ok=True)
    elif path is not None and (path.is_file() or kind not in ("cut", "change")):  # to open a pipe would wait for ever
        if kind == "cut":
            os.truncate(path, 100)
        elif kind == "change":
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
        else:
            path.unlink()
            if kind == "empty":
                path.touch()
            elif kind == "pipe":
                os.mkfifo(path)


@settings(max_examples=examples(200))
@given(LIMITS, st.lists(st.one_of(READS, DAMAGE), max_size=12), st.booleans())
def test_any_reads_give_the_bytes_of_the_file(limit: int | None, steps: list, is_one_object: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cache = FileCache(Path(folder) / "blocks", max_bytes=limit)
        file = open_cached(cache)
        for way, what in steps:
            if way == "reopen":
                cache = cache if is_one_object else FileCache(cache.folder, max_bytes=limit)
                file = open_cached(cache)
            elif way == "hash":
                blocks = CachedBlocks(cache, SHA256, SIZE)
                with blocks.fill() as filling:
                    for piece in Source().pieces():
                        filling.add(piece)
                    filling.is_right = True
            elif way == "prove":
                blocks = CachedBlocks(cache, SHA256, SIZE)
                if blocks.prove():
                    assert (
                        b"".join(bytes(blocks.load(number, *blocks.range_of(number))) for number in range(7)) == CONTENT
                    )
            elif isinstance(what, int):
                damage(cache, way, what)
            else:
                read(file, way, what)
            if limit is not None:
                assert num_bytes_of(cache) <= limit


@given(st.integers(1, 8), st.lists(st.integers(0, 6), min_size=1, max_size=30))
def test_the_least_recently_used_block_makes_room(room: int, order: list[int]) -> None:
    """The cache holds what a list of the last used blocks holds; a block that is held is not fetched."""
    with tempfile.TemporaryDirectory() as folder:
        cache = FileCache(folder, max_bytes=room * KEPT_BLOCK_BYTES)
        source, expected, fetched = Source(), [], []
        for number in order:
            start, stop = number * BLOCK_BYTES, min((number + 1) * BLOCK_BYTES, SIZE)
            [(_, view)] = open_cached(cache, source).read_ranges([(start, stop)])
            assert bytes(view) == CONTENT[start:stop]
            if number not in expected:
                fetched.append(number)
            expected = [*(one for one in expected if one != number), number]
            while sum(min(BLOCK_BYTES, SIZE - one * BLOCK_BYTES) + 32 for one in expected) > room * KEPT_BLOCK_BYTES:
                expected.pop(0)
            assert sorted(block_files(cache)) == sorted(expected)
        assert source.blocks == fetched


@given(st.lists(st.lists(one_range(), min_size=1, max_size=3), min_size=2, max_size=4), st.randoms())
def test_reads_that_begin_together_fetch_each_block_once(many: list[list[tuple[int, int]]], random: Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Source()
        file = open_cached(FileCache(folder), source)
        waiting = [(ranges, file.read_ranges(ranges)) for ranges in many]
        while waiting:  # in any order, one view after the other
            place = random.randrange(len(waiting))
            ranges, views = waiting[place]
            found = next(views, None)
            if found is None:
                waiting.pop(place)
            else:
                assert bytes(found[1]) == CONTENT[slice(*ranges[found[0]])]
        assert len(source.blocks) == len(set(source.blocks))
