"""``Webhook``: a URL that receives the events of a catalog, and the signature of messages to it.

Messages follow the specification of Standard Webhooks (standardwebhooks.com): they have three headers, one of which is
a signature of the other two and the body. The secret of a webhook is derived from a key that only the service has, so
the catalog stores no secrets.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from registry.errors import UsageError
from registry.masking import has_secret
from registry.model.access import AccessToken, Role
from registry.model.event import ACTIONS

_ID: Final = re.compile(r"[0-9a-f]{12}")
_URL: Final = re.compile(r"https?://[!-~]{1,2000}")
_PREFIX: Final = "whsec_"
_LEAST_KEY_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A receiver of events, and the state of its deliveries.

    Attributes:
        id: 12 lower-case hex digits.
        url: the URL to which the events are sent.
        datasets: patterns for the datasets whose events are sent, as for a token; ``*`` also includes events that
            concern no dataset.
        actions: the kinds of events that are sent. Empty means all.
        created_at, created_by: when and by whom it was created.
        delivered_through: the id of the newest event that was delivered or does not match.
        failures: number of failed attempts since the last successful one.
        failing_since: the time of the first of these failures, or None.
        next_try_at: the time of the next attempt, or None for at once.
        last_error: why the last attempt failed, or "".
        disabled_at, disabled_because: when and why delivery was disabled, or None.

    Raises:
            UsageError: the id, the URL, a pattern or an action is invalid.
    """

    id: str
    url: str
    datasets: tuple[str, ...] = ("*",)
    actions: tuple[str, ...] = ()
    created_at: datetime
    created_by: str
    delivered_through: int
    failures: int = 0
    failing_since: datetime | None = None
    next_try_at: datetime | None = None
    last_error: str = ""
    disabled_at: datetime | None = None
    disabled_because: str | None = None

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise UsageError(f"the id of a webhook must be 12 lower-case hex digits, not {self.id[:40]!r}")
        if not _URL.fullmatch(self.url) or not _has_host(self.url):
            raise UsageError(f"invalid webhook URL {self.url[:80]!r}", hint="Write https://host/path, in ASCII.")
        if "@" in urlsplit(self.url).netloc or "#" in self.url or has_secret(self.url):
            raise UsageError(
                "the URL of a webhook must not contain a password, a key or a fragment, because it is stored",
                hint="Leave it out: the receiver verifies messages by their signature.",
            )
        for action in self.actions:
            if action not in ACTIONS:
                raise UsageError(f"no action {action[:60]!r}", hint=f"The actions are: {', '.join(ACTIONS)}.")
        self._access()

    def wants(self, action: str, datasets: tuple[str, ...]) -> bool:
        """Whether it gets an event of this kind about a dataset, which is given by each name that it has had."""
        if self.actions and action not in self.actions:
            return False
        access = self._access()
        return access.covers_all or any(
            dataset and access.covers(name, config or None)
            for dataset in datasets
            for name, _, config in (dataset.partition("/"),)
        )

    def _access(self) -> AccessToken:
        """What a token with these patterns covers."""
        by = {"created_at": self.created_at, "created_by": self.created_by}
        return AccessToken(id=self.id, name="webhook", role=Role.READER, datasets=self.datasets, **by)  # type: ignore[arg-type]  # the two have their types


def webhook_secret(key: str, webhook_id: str) -> str:
    """The secret that the receiver of a webhook needs; ``key`` is the setting of the service.

    >>> webhook_secret("0123456789abcdef", "3f9a5c0d71be")
    'whsec_o1J96TvkjS2WoOQdDc15GaZWtad95VCX51nyUDa4Hko='
    """
    digest = hmac.digest(key.encode(), f"webhook {webhook_id}".encode(), hashlib.sha256)
    return _PREFIX + base64.b64encode(digest).decode()


def sign_message(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The signature of a message, ``v1,<base64>``; ``timestamp`` in seconds since 1970.

    Raises:
        UsageError: the secret is not one of a webhook. The message does not repeat it.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        key = b""
    if len(key) < _LEAST_KEY_BYTES:  # with an empty one, anybody could sign
        raise UsageError("this is not the secret of a webhook", hint="The secret begins with whsec_.")
    content = f"{message_id}.{timestamp}.".encode() + body
    return f"v1,{base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()}"


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
