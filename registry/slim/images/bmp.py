"""How does a BMP become pixels? As TensorFlow reads it: 8, 24 or 32 bits, not compressed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from registry.slim.images.channels import as_channels
from registry.slim.images.codec import ImageFault, check_pixels

_CHANNELS = {8: 1, 24: 3, 32: 4}
_MEND = "Store it as PNG: of BMP, 8, 24 and 32 bits are read, not compressed."


def decode_bmp(data: bytes, *, channels: int, limit: int) -> npt.NDArray[np.uint8]:
    """The pixels (height, width, channels); 0 channels are those of the file.

    With 8 bits they are the stored numbers, whatever the palette says, as in TensorFlow.

    Raises:
        ImageFault: damaged, cut off, of another kind, more pixels than ``limit``, or one channel is asked for, which
            TensorFlow does not give of a BMP.
    """
    if channels == 1:
        raise ImageFault("a BMP is not made grey", "Give channels=3 to Image, or 0 for those stored.")
    if len(data) < 34:
        raise ImageFault(f"a damaged BMP: it has {len(data)} bytes, and its header alone 34")
    start, header_size = (int.from_bytes(data[place : place + 4], "little") for place in (10, 14))
    width, stored_height = (int.from_bytes(data[place : place + 4], "little", signed=True) for place in (18, 22))
    bits, compression = int.from_bytes(data[28:30], "little"), int.from_bytes(data[30:34], "little")
    stored = _CHANNELS.get(bits, 0)
    is_plain = compression == 0 or (compression == 3 and bits == 32)  # 3 names the places of the channels
    if header_size < 40 or not stored or not is_plain:
        raise ImageFault(f"a BMP of {bits} bits, header {header_size}, compression {compression}", _MEND)
    height = abs(stored_height)
    check_pixels(height, width, limit)
    row = (width * stored + 3) // 4 * 4
    # The padding of the last row may be missing.
    used = row * (height - 1) + width * stored
    if len(data) - start < used:
        raise ImageFault(f"a damaged BMP: it has {len(data)} bytes, where {start + used} belong")
    rows = np.lib.stride_tricks.as_strided(
        np.frombuffer(data, np.uint8, used, start), (height, width, stored), (row, stored, 1), writeable=False
    )
    if stored_height > 0:
        rows = rows[::-1]
    color = rows if stored == 1 else rows[:, :, 2::-1]
    alpha = rows[:, :, 3] if stored == 4 else 255
    wanted = channels or stored
    return np.array(as_channels(color, alpha, wanted), order="C")
