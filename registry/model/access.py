"""Access to a shared catalog: tokens, their roles, the datasets that they cover, and refused calls.

A token is a secret text: a prefix that secret scanners recognize, a public id, 256 random bits, and a checksum. The
catalog stores only its digest, so a reader of the catalog, or of a backup, cannot use the tokens.

    shb_3f9a5c0d71be_<43 characters of random bits><6 characters of checksum>
"""

from __future__ import annotations

import hashlib
import re
import string
import zlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from registry.errors import UsageError
from registry.masking import may_hide_secret
from registry.model.reference import covers

_ID: Final = re.compile(r"[0-9a-f]{12}")
_TEXT: Final = re.compile(r"(shb_[0-9a-f]{12}_[A-Za-z0-9_-]{43})([0-9A-Za-z]{6})")
_PATTERN: Final = re.compile(r"[a-zA-Z0-9_*?]{1,200}(/[a-zA-Z0-9_+.*?-]{1,200})?")
_DIGITS: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_MAX_NAME: Final = 200
_MAX_PATTERNS: Final = 100


class Role(StrEnum):
    """The rights of a token's holder; each role includes the rights of those before it."""

    READER = "reader"
    PUBLISHER = "publisher"
    MAINTAINER = "maintainer"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        """Whether this role may do everything that ``other`` may do.

        >>> Role.ADMIN.includes(Role.READER), Role.READER.includes(Role.PUBLISHER)
        (True, False)
        """
        roles = list(Role)
        return roles.index(self) >= roles.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """A token as the catalog records it, without its text.

    Attributes:
        id: the public part of its text: 12 lower-case hex digits.
        name: the person or program that holds it, e.g. ``ann`` or ``ci``: the actor of its changes.
        role: its rights.
        datasets: patterns with ``*`` and ``?`` for the datasets that it covers, ``name`` or ``name/config``.
        created_at, created_by: the time and the creator: a person, or the URL of an issuer of ID tokens.
        expires_at: when it becomes invalid, or None.
        last_used_at: when it was last used, to the minute, or None.
        revoked_at, revoked_by: when and by whom it was revoked, or None.

    Raises:
        UsageError: the id, the name or a pattern is invalid.
    """

    id: str
    name: str
    role: Role
    datasets: tuple[str, ...] = ("*",)
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    revoked_by: str | None = None

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise UsageError(f"the id of a token must be 12 lower-case hex digits, not {self.id[:40]!r}")
        for text in (self.name, *self.datasets):
            if "://" in text or may_hide_secret(text):
                raise UsageError("a name or pattern of a token looks like a URL or a password, so it is not shown")
        if not 0 < len(self.name) <= _MAX_NAME or not self.name.isprintable() or self.name != self.name.strip():
            raise UsageError(
                f"invalid token name {self.name[:40]!r}: expected 1 to {_MAX_NAME} printable characters",
                hint="Name the person or the program that uses the token, e.g. ann or ci.",
            )
        if not 0 < len(self.datasets) <= _MAX_PATTERNS:
            raise UsageError(f"a token must have 1 to {_MAX_PATTERNS} patterns, not {len(self.datasets)}")
        for pattern in self.datasets:
            if not _PATTERN.fullmatch(pattern):
                raise UsageError(
                    f"invalid pattern {pattern[:80]!r} of a token: no dataset can match it",
                    hint="Write name or name/config, with * for any characters and ? for one, e.g. lab_* or c4/en.",
                )

    @property
    def is_exchanged(self) -> bool:
        """Whether somebody got it for an ID token. No name of a person or a program contains ``://``."""
        return "://" in self.created_by

    @property
    def covers_all(self) -> bool:
        """Whether it covers every dataset, including future ones."""
        return "*" in self.datasets

    def covers(self, name: str, config: str | None = None) -> bool:
        """Whether it covers a config of a dataset, or, without a config, the whole dataset.

        A pattern ``name`` covers all configs, and ``name/config`` only the configs that it matches.

        >>> from datetime import UTC, datetime
        >>> access = {"id": "0" * 12, "name": "ann", "created_at": datetime.now(UTC), "created_by": "bob"}
        >>> token = AccessToken(role=Role.READER, datasets=("lab_*", "c4/en"), **access)
        >>> token.covers("lab_digits", "plain"), token.covers("c4", "en"), token.covers("c4", "de"), token.covers("c4")
        (True, True, False, False)
        """
        return covers(self.datasets, name, config)

    def is_valid(self, now: datetime) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCall:
    """A call of a shared catalog that was refused.

    Attributes:
        id: increases with each refusal.
        at: the time, by the clock of the catalog.
        token: the id of the token, or None if the call had no token of this catalog.
        principal: the name of the token, or "".
        call: the call of the protocol, e.g. ``aliases.set``.
        dataset: the dataset that the call concerns, or "".
        reason: the reason for the refusal.
    """

    id: int
    at: datetime
    token: str | None
    principal: str
    call: str
    dataset: str
    reason: str


def new_secret() -> tuple[str, str, str]:
    """The id, the text and the digest of a new token. The catalog stores the id and the digest, but never the text."""
    import secrets  # look-ups do not need it

    token_id = secrets.token_hex(6)
    begin = f"shb_{token_id}_{secrets.token_urlsafe(32)}"
    text = begin + _checksum(begin)
    return token_id, text, digest_of(text)


def digest_of(text: str) -> str:
    """The sha256 of a token's text, in hex digits.

    Raises:
        UsageError: the text is not a token, or is truncated or mistyped. The message does not repeat it.
    """
    match = _TEXT.fullmatch(text)
    if match is None or _checksum(match[1]) != match[2]:
        raise UsageError(
            "this is not a valid access token: it may be truncated or mistyped, or another secret",
            hint="A token begins with shb_. To create one: registry token create NAME",
        )
    return hashlib.sha256(text.encode()).hexdigest()


def _checksum(text: str) -> str:
    """The CRC-32 of ``text`` in six digits of base 62."""
    number, digits = zlib.crc32(text.encode()), ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        digits = _DIGITS[digit] + digits
    return digits
