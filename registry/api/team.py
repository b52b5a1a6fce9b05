"""``catalog.tokens`` and ``catalog.webhooks``: the access tokens of a shared catalog, and the receivers of its events.

``verify_webhook`` is for programs that receive events.
"""

from __future__ import annotations

import hmac
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from registry.api.locations import log_actor
from registry.argument_types import typed_methods
from registry.catalog import EventFilter
from registry.errors import SignatureError, UsageError, suggest
from registry.model import AccessToken, Role, Webhook, new_secret, parse_duration, sign_message

if TYPE_CHECKING:
    from registry.catalog.backend import AccessCalls, CatalogBackend


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


_TOLERANCE_SECONDS: Final = 300
_TEST_SECONDS: Final = 30
_PAUSE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWebhook:
    """A webhook that was just created.

    Attributes:
        webhook: the webhook as the catalog records it.
        secret: the secret with which the receiver verifies messages; None for a dry run.
    """

    webhook: Webhook
    secret: str | None = field(repr=False)


@typed_methods
class Webhooks:
    """``catalog.webhooks``: URLs to which the catalog's service sends events. Requires an admin of all datasets."""

    def __init__(self, catalog: CatalogBackend) -> None:
        self._catalog = catalog
        self._calls = catalog.webhooks

    def create(
        self,
        url: str,
        *,
        datasets: Sequence[str] = ("*",),
        actions: Sequence[str] = (),
        after: int | None = None,
        dry_run: bool = False,
    ) -> NewWebhook:
        """Create a webhook that sends events to ``url``, each at least once and in order.

        Args:
            url: the https URL of the receiver.
            datasets: the datasets whose events are sent: ``name`` or ``name/config``, with ``*`` and ``?``.
            actions: the kinds of events that are sent, e.g. ``["publish"]``. Empty means all.
            after: the ``id`` of the event to begin after; 0 sends all events, and None only those from now on.
            dry_run: only check the arguments.

        Raises:
            UsageError: an invalid URL, pattern or action, or the service has no key for signatures.
        """
        webhook = self._calls.create(
            secrets.token_hex(6),
            url,
            datasets=tuple(datasets),
            actions=tuple(actions),
            after=after,
            actor=log_actor(),
            dry_run=dry_run,
        )
        return NewWebhook(webhook=webhook, secret=None if dry_run else self.secret(webhook.id))

    def list(self) -> tuple[Webhook, ...]:
        """Every webhook, oldest first, with its progress and the reason for its last failure."""
        return self._calls.list()

    def secret(self, webhook_id: str) -> str:
        """The secret with which the receiver verifies messages, derived from the newest key of the service."""
        return self._calls.secret(webhook_id)

    def remove(self, webhook_id: str, *, dry_run: bool = False) -> Webhook:
        """Remove a webhook: no more events are sent to it.

        Args:
            webhook_id: its id, which ``list`` shows.
            dry_run: only look the webhook up.

        Raises:
            WebhookNotFoundError: no webhook has this id; the hint suggests the nearest one.
        """
        return self._calls.remove(webhook_id, actor=log_actor(), dry_run=dry_run)

    def resume(self, webhook_id: str, *, after: int | None = None, dry_run: bool = False) -> Webhook:
        """Retry at once, even if the webhook was disabled.

        Args:
            webhook_id: its id, which ``list`` shows.
            after: continue after the event with this ``id``: an earlier id sends events again, and a later id skips
                some. None continues at the current position.
            dry_run: only look the webhook up.

        Raises:
            WebhookNotFoundError: no webhook has this id.
            UsageError: the event does not exist.
        """
        return self._calls.resume(webhook_id, after=after, actor=log_actor(), dry_run=dry_run)

    def test(self, webhook_id: str, *, dry_run: bool = False) -> Webhook:
        """Send the newest matching event again, and wait up to half a minute for the result.

        The result is in ``failures`` and ``last_error``. If a webhook still has events to send, delivery is only
        retried.

        Args:
            webhook_id: its id, which ``list`` shows.
            dry_run: only look the webhook up.

        Raises:
            WebhookNotFoundError: no webhook has this id.
            UsageError: none of the newest thousand events matches the webhook, or no service tried to deliver in this
                time.
        """
        webhook = self.resume(webhook_id, dry_run=True)
        page = self._catalog.log.page(EventFilter(actions=webhook.actions or None), newest=1000)
        wanted = [event.id for event in page if webhook.wants(event.action, (event.dataset,))]
        if not wanted:
            raise UsageError(
                "no event matches this webhook",
                hint="Change something in the catalog, or create a webhook for more events.",
            )
        before = self.resume(webhook_id, after=min(webhook.delivered_through, wanted[-1] - 1), dry_run=dry_run)
        end = time.monotonic() + _TEST_SECONDS
        while not dry_run:
            webhook = self.resume(webhook_id, dry_run=True)
            if webhook.failures or webhook.delivered_through >= wanted[-1]:
                return webhook
            if time.monotonic() > end:
                raise UsageError(
                    "no service sent the event within half a minute",
                    hint="Check that registry serve is running with the setting webhook_key: it delivers the events.",
                )
            time.sleep(_PAUSE_SECONDS)
        return before


def verify_webhook(secret: str, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Verify that a catalog's service sent a message in the last five minutes, and return the message.

    Args:
        secret: the secret that ``registry webhook create`` printed, which begins with ``whsec_``.
        headers: the headers of the request, with names in any case.
        body: the body of the request, unchanged.

    Returns:
        ``type``, the kind of the event; ``timestamp``; and ``data``, the event. A message may arrive twice, with the
        same header ``webhook-id``.

    Raises:
        SignatureError: a header is missing, the message is too old, or the signature was not made with this secret.
    """
    values = {name.lower(): value for name, value in headers.items()}
    message_id, timestamp, signatures = (values.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not (message_id and timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 15 and signatures):
        raise SignatureError("the request lacks the headers of a webhook", details={"reason": "headers"})
    if abs(time.time() - int(timestamp)) > _TOLERANCE_SECONDS:
        raise SignatureError(
            "the message of the webhook is older than five minutes, or from the future",
            hint="Check the clock of this machine. An old message may be a replay: refuse it.",
            details={"reason": "timestamp"},
        )
    expected = sign_message(secret, message_id, int(timestamp), body).encode()
    if not any(hmac.compare_digest(expected, each.encode()) for each in signatures.split()):
        raise SignatureError(
            "the signature of the webhook's message is wrong",
            hint="Check the secret: registry webhook secret ID. Pass the body of the request unchanged, byte for byte.",
            details={"reason": "signature"},
        )
    message: dict[str, Any] = json.loads(body)
    return message
