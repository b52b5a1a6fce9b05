"""``catalog.tokens``: the access tokens for the server of a shared catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from registry.api.locations import log_actor
from registry.argument_types import typed_methods
from registry.errors import UsageError, suggest
from registry.model import AccessToken, Role, new_secret, parse_duration

if TYPE_CHECKING:
    from registry.catalog.backend import AccessCalls


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A token that was just created.

    Attributes:
        token: the token as the catalog records it.
        text: the secret that its holder sends. It is not stored anywhere, so it cannot be shown again.
    """

    token: AccessToken
    text: str = field(repr=False)


@typed_methods
class Tokens:
    """``catalog.tokens``: the access tokens of a shared catalog, which ``registry serve`` requires.

    >>> created = catalog.tokens.create("ci", role="publisher", datasets=["lab_*"], expires="90d", dry_run=True)
    >>> created.token.role.value, created.token.datasets, created.text[:4]
    ('publisher', ('lab_*',), 'shb_')
    """

    def __init__(self, calls: AccessCalls) -> None:
        self._calls = calls

    def create(
        self,
        name: str,
        *,
        role: str = "reader",
        datasets: Sequence[str] = ("*",),
        expires: str | timedelta | None = None,
        dry_run: bool = False,
    ) -> NewToken:
        """Create a token. Its text is generated on this machine, and the catalog stores only a digest of it.

        Args:
            name: the person or program that will hold the token. The event log records it as the actor of every change.
            role: ``reader``, ``publisher``, ``maintainer`` or ``admin``; each role includes the rights of those before
                it.
            datasets: the datasets that the token covers: ``name`` or ``name/config``, with ``*`` and ``?``.
            expires: how long the token is valid, e.g. ``"90d"``. None sets no limit.
            dry_run: only check the arguments.

        Raises:
            UsageError: an unknown role, or an invalid name, pattern or duration.
        """
        if role not in list(Role):
            raise UsageError(f"no role {role[:40]!r}", hint=suggest(role, list(Role)))
        token_id, text, digest = new_secret()
        token = self._calls.create_token(
            token_id,
            digest,
            name,
            Role(role),
            datasets=datasets,
            expires_in=parse_duration(expires) if isinstance(expires, str) else expires,
            actor=log_actor(),
            dry_run=dry_run,
        )
        return NewToken(token=token, text=text)

    def list(self) -> tuple[AccessToken, ...]:
        """Every token, oldest first, including expired and revoked ones."""
        return self._calls.tokens()

    def revoke(self, token_id: str, *, dry_run: bool = False) -> AccessToken:
        """Make a token invalid as of its next request. Revoking it again changes nothing.

        Args:
            token_id: the id of the token, which ``list`` shows.
            dry_run: only look the token up.

        Raises:
            TokenNotFoundError: no token has this id; the hint suggests the nearest one.
        """
        return self._calls.revoke_token(token_id, actor=log_actor(), dry_run=dry_run)
