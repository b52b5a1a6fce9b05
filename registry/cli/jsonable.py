"""How does a decoded example stand in JSON?"""

from __future__ import annotations

import base64
import math
from typing import Any


def jsonable(value: Any) -> Any:
    """``value`` of a decoded example as JSON holds it; floats that JSON has no word for become strings."""
    import numpy as np

    from registry.features import NestedExamples, Ragged

    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, Ragged):
        return jsonable(value.to_list())
    if isinstance(value, (np.ndarray, np.generic)):
        return jsonable(value.tolist())
    if isinstance(value, (list, NestedExamples)):
        return [jsonable(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
