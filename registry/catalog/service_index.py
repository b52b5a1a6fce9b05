"""What a service says at ``site.json``, where a site has its index: that it is a service, and what it speaks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

API_VERSION: Final = 1
API_PATH: Final = f"api/v{API_VERSION}/"
DATA_PATH: Final = f"{API_PATH}data"
"""Where a service has the files of a data directory on its own disk."""

SIGN_IN_PATH: Final = f"{API_PATH}sign-in"
"""Where a service says whose ID tokens it accepts, and exchanges them for access tokens."""

FORMAT: Final = "registry-service"


class ClientSetting(NamedTuple):
    """What a service may set for its clients: the variable that it is the default of, and its form."""

    variable: str
    form: str
    expected: str


_SECONDS: Final = r"[1-9][0-9]{0,2}(\.[0-9])?"
CLIENT_SETTINGS: Final = {
    "announcement": ClientSetting("", r".{1,300}", "a line of at most 300 characters"),
    "least_release": ClientSetting("", r"[0-9]{1,4}(\.[0-9]{1,4}){1,2}", "a release, e.g. 0.3.0"),
    "cache_bytes": ClientSetting("REGISTRY_CACHE_BYTES", r"[0-9]{1,15}([KMGT]i?)?B?", "bytes, e.g. 500GB"),
    "connect_timeout": ClientSetting("REGISTRY_CONNECT_TIMEOUT", _SECONDS, "seconds, at least 1"),
    "read_timeout": ClientSetting("REGISTRY_READ_TIMEOUT", _SECONDS, "seconds, at least 1"),
    "retry_timeout": ClientSetting("REGISTRY_RETRY_TIMEOUT", _SECONDS, "seconds, at least 1"),
    "tries": ClientSetting("REGISTRY_TRIES", r"[1-9][0-9]?", "a number from 1 to 99"),
    "publish_timeout": ClientSetting("REGISTRY_PUBLISH_TIMEOUT", r"[0-9]{1,5}[smhd]?", "a duration, e.g. 10m"),
}
"""All that a service may set. No path, host, token or command is among it: no server chooses those for a client."""


def is_client_setting(name: str, value: Any) -> bool:
    """Whether a service may set this value.

    >>> is_client_setting("tries", 3), is_client_setting("tries", "3; rm"), is_client_setting("cache_dir", "/tmp")
    (True, False, False)
    """
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    text, setting = str(value), CLIENT_SETTINGS.get(name)
    return setting is not None and is_plain and text.isprintable() and re.fullmatch(setting.form, text) is not None


def client_settings(index: Mapping[str, Any]) -> dict[str, str]:
    """The settings for clients that ``site.json`` has, without those that are malformed or unknown to this release."""
    values = index.get("clients")
    pairs = values.items() if isinstance(values, dict) else ()
    return {name: str(value) for name, value in pairs if is_client_setting(name, value)}


def make_service_index(made_by: str, clients: Mapping[str, Any] | None = None) -> bytes:
    """The content of ``site.json``; ``made_by`` is the software and its version, ``clients`` settings for clients."""
    values = {"format": FORMAT, "api": [API_VERSION], "made_by": made_by}
    return json.dumps(values | ({"clients": dict(clients)} if clients else {})).encode()


def service_index(content: bytes) -> dict[str, Any] | None:
    """The values of ``site.json`` if it says that there is a service; None for a site, or if it is malformed."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) and values.get("format") == FORMAT else None
