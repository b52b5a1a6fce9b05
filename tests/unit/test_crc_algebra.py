"""The CRC32C of joined pieces is computed from the CRC32C of each piece."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from registry.tfrecord import frame_record, masked_crc32c
from registry.tfrecord.block import mask, masked_length_crcs, run_crc32c, unmask
from registry.tfrecord.framing import crc32c


@given(length=st.integers(0, 300), count=st.integers(1, 70), seed=st.integers(0, 2**32 - 1))
def test_the_checksum_of_a_run_of_frames_follows_from_their_own(length: int, count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    records = [random.bytes(length) for _ in range(count)]
    stored = np.array([masked_crc32c(record) for record in records], np.uint32)
    assert run_crc32c(length, stored) == crc32c(b"".join(map(frame_record, records)))


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
def test_lengths_have_the_checksums_of_their_eight_bytes(lengths: list[int]) -> None:
    expected = [masked_crc32c(length.to_bytes(8, "little")) for length in lengths]
    assert masked_length_crcs(np.array(lengths)).tolist() == expected
    short = [length % 4096 for length in lengths]
    expected = [masked_crc32c(length.to_bytes(8, "little")) for length in short]
    assert masked_length_crcs(np.array(short)).tolist() == expected


@given(st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_masks_are_taken_off_again(crcs: list[int]) -> None:
    array = np.array(crcs, np.uint32)
    assert unmask(mask(array)).tolist() == crcs
