"""Laws of the gzip stream: one member, the same bytes for any chunks of writes, and zlib's bytes for one block."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.builders.earth_engine.exporting import record_file
from registry.builders.earth_engine.exporting.record_file import GzipStream

BLOCK_BYTES = 2**15
"""Smaller blocks than are written, and the same code: their dictionary is a whole block."""


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_file, "BLOCK_BYTES", BLOCK_BYTES)
        yield


def compress(*pieces: bytes) -> bytes:
    file = io.BytesIO()
    stream = GzipStream(file)
    for piece in pieces:
        stream.write(piece)
    stream.finish()
    return file.getvalue()


def content_of(size: int, seed: int) -> bytes:
    """Some that compresses well, with matches over any distance."""
    words = np.random.default_rng(seed).integers(0, 4, (size + 3) // 4, np.uint8)
    return np.repeat(words, 4).tobytes()[:size]


SIZES = st.one_of(
    st.integers(0, 5000),
    st.integers(-2, 2).map(BLOCK_BYTES.__add__),
    st.integers(-2, 2).map((2 * BLOCK_BYTES).__add__),
    st.integers(3 * BLOCK_BYTES, 4 * BLOCK_BYTES),
)


@given(SIZES, st.integers(0, 9), st.data())
def test_it_is_one_member_and_the_same_in_any_pieces(size: int, seed: int, data: st.DataObject) -> None:
    content = content_of(size, seed)
    whole = compress(content)
    inflated = zlib.decompressobj(31)
    assert inflated.decompress(whole) == content
    assert inflated.eof
    assert inflated.unused_data == b""
    cuts = sorted(data.draw(st.lists(st.integers(0, size), max_size=4)))
    pieces = [content[start:stop] for start, stop in zip([0, *cuts], [*cuts, size], strict=True)]
    assert compress(*pieces) == whole
    if size <= BLOCK_BYTES:
        zlibs = zlib.compressobj(6, zlib.DEFLATED, 31, 9)
        assert whole == zlibs.compress(content) + zlibs.flush()


def test_blocks_cost_little() -> None:
    """Each knows the end of the one before, so that matches across their border are found."""
    content = content_of(40 * BLOCK_BYTES, 1)
    one = zlib.compressobj(6, zlib.DEFLATED, 31, 9)
    assert len(compress(content)) < 1.01 * len(one.compress(content) + one.flush())
    assert gzip.decompress(compress(content)) == content
