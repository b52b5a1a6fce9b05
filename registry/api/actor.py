"""Who claims to change the catalog: what the event log is told.

The log keeps beside it whom the operating system knows (``Event.recorded_by``).
"""

from __future__ import annotations

import getpass
import os


def current_actor() -> str:
    """Who publishes, for the event log: ``$REGISTRY_ACTOR``, else the login name."""
    try:
        return os.environ.get("REGISTRY_ACTOR") or getpass.getuser()
    except (OSError, KeyError):  # no entry for this user id, as in many containers
        return f"uid {os.getuid()}"
