"""Is stored text UTF-8? Decoded for tools whose users expect text; what is not UTF-8 is named and refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from registry.errors import FeatureError, UsageError
from registry.features import Ragged


def check_text_form(text: str) -> bool:
    """Whether text is to be decoded; UsageError for anything but ``str`` and ``bytes``."""
    if text not in ("str", "bytes"):
        raise UsageError(f'text is "str" or "bytes", not {text!r:.60}')
    return text == "str"


def decode_texts(values: npt.NDArray[Any], path: str) -> list[Any]:
    """Each of ``values`` with ``str`` for ``bytes``: a text, an array of them, or a Ragged.

    Raises:
        FeatureError: a text is no UTF-8.
    """
    try:
        if values.ndim == 1 and len(values) and isinstance(values[0], bytes):
            return [str(value, "utf-8") for value in values]
        return [_decode(value) for value in values]
    except UnicodeDecodeError as error:
        raise FeatureError(
            f"feature {path!r}: {error.object[:20]!r} is no UTF-8: {error.reason} at byte {error.start}",
            hint='Ask for text="bytes", which takes it as it is stored.',
            details={"feature": path},
        ) from error


def _decode(value: Any) -> Any:
    if isinstance(value, Ragged):
        return Ragged(_decode(value.flat_values), value.row_lengths)
    if isinstance(value, np.ndarray):
        return np.fromiter(map(_decode, value.flat), object, value.size).reshape(value.shape)
    return str(value, "utf-8")
