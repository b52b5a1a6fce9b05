"""Calls the Image handler on one record for its tests, and returns the array or the error."""

from __future__ import annotations

import io
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from registry.errors import CorruptExampleError
from registry.slim.image_handler import Image
from support.golden import check_errors

RAMP = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
COLORS = bytes(range(12))


def decode(image: Any, form: Any = b"", **options: Any) -> Any:
    return Image(**options).tensors_to_item({"image/encoded": image, "image/format": form})


def problem(image: Any, form: Any = b"", **options: Any) -> tuple[str, str | None]:
    with pytest.raises(CorruptExampleError) as caught:
        decode(image, form, **options)
    assert caught.value.details["feature"] == "image/encoded"
    return caught.value.message.removeprefix("feature 'image/encoded': "), caught.value.hint


def check_problems(path: Path, cases: Iterable[tuple[Any, ...]]) -> None:
    """Compare the errors of images with a golden file. A case is an image, its format, and options of the handler."""
    calls = (partial(decode, *case[:2], **(case[2] if len(case) > 2 else {})) for case in cases)
    check_errors(path, calls, details=["feature"])


def strings(*values: bytes) -> np.ndarray[Any, Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def pillow_file(array: np.ndarray[Any, Any], form: str, mode: str | None = None, **options: Any) -> bytes:
    file = io.BytesIO()
    image = Pillow.fromarray(array) if mode is None else Pillow.frombytes(mode, array.shape[1::-1], array.tobytes())
    image.save(file, form, **options)
    return file.getvalue()


def drafted(data: bytes, mode: str) -> Any:
    """A JPEG as libjpeg itself converts it."""
    image = Pillow.open(io.BytesIO(data))
    image.draft(mode, image.size)
    return image
