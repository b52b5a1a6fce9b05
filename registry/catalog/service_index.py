"""What a service says at ``site.json``, where a site has its index: that it is a service, and what it speaks."""

from __future__ import annotations

import json
from typing import Any, Final

API_VERSION: Final = 1
API_PATH: Final = f"api/v{API_VERSION}/"
DATA_PATH: Final = f"{API_PATH}data"
"""Where a service has the files of a data directory on its own disk."""

SIGN_IN_PATH: Final = f"{API_PATH}sign-in"
"""Where a service says whose ID tokens it accepts, and exchanges them for access tokens."""

FORMAT: Final = "registry-service"


def make_service_index(made_by: str) -> bytes:
    """The content of ``site.json``; ``made_by`` is the software and its version."""
    return json.dumps({"format": FORMAT, "api": [API_VERSION], "made_by": made_by}).encode()


def service_index(content: bytes) -> dict[str, Any] | None:
    """The values of ``site.json`` if it says that there is a service; None for a site, or if it is malformed."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) and values.get("format") == FORMAT else None
