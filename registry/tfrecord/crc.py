"""What is the checksum of a TFRecord? CRC32C (Castagnoli), rotated and shifted so that a CRC of a CRC stays sound."""

from __future__ import annotations

from typing import Final

from fastcrc.crc32 import iscsi as crc32c

__all__ = ["MASK_DELTA", "crc32c", "masked_crc32c"]

MASK_DELTA: Final = 0xA282EAD8


def masked_crc32c(buffer: bytes | bytearray | memoryview) -> int:
    """The masked CRC32C of any buffer, 0..2**32-1: rotated right by 15 bits, plus a constant, as TFRecord stores it.

    >>> hex(crc32c(b"123456789")), hex(masked_crc32c(b"123456789"))
    ('0xe3069283', '0xc78ab0e5')
    """
    crc = crc32c(buffer)
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF
