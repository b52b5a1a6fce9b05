"""``catalog.webhooks``: who gets the events of a shared catalog by HTTP; and ``verify_webhook``, for its receivers."""

from __future__ import annotations

import hmac
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from registry.api.locations import log_actor
from registry.argument_types import typed_methods
from registry.catalog import EventFilter
from registry.errors import SignatureError, UsageError
from registry.model import Webhook, sign_message

if TYPE_CHECKING:
    from registry.catalog.backend import CatalogBackend

_TOLERANCE_SECONDS: Final = 300
_TEST_SECONDS: Final = 30
_PAUSE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWebhook:
    """A webhook that was just created.

    Attributes:
        webhook: what the catalog knows about it.
        secret: what its receiver needs to verify messages; None for a dry run.
    """

    webhook: Webhook
    secret: str | None = field(repr=False)


@typed_methods
class Webhooks:
    """``catalog.webhooks``: URLs to which the service of the catalog sends events. Only admins of every dataset may."""

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
        """Send events to ``url``, each at least once and in order.

        Args:
            url: where they are sent, with https.
            datasets: the datasets whose events it gets: ``name`` or ``name/config``, with ``*`` and ``?``.
            actions: the kinds of events that it gets, e.g. ``["publish"]``; none for all.
            after: the ``id`` of the event to begin after, 0 for all; None for those that happen from now on.
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
        """Every webhook, oldest first, with how far it is and why it fails."""
        return self._calls.list()

    def secret(self, webhook_id: str) -> str:
        """The secret with which the receiver verifies messages, by the newest key of the service."""
        return self._calls.secret(webhook_id)

    def remove(self, webhook_id: str, *, dry_run: bool = False) -> Webhook:
        """Send it no more events.

        Args:
            webhook_id: its id, which ``list`` shows.
            dry_run: only find it.

        Raises:
            WebhookNotFoundError: no webhook has this id; the hint names the nearest.
        """
        return self._calls.remove(webhook_id, actor=log_actor(), dry_run=dry_run)

    def resume(self, webhook_id: str, *, after: int | None = None, dry_run: bool = False) -> Webhook:
        """Try again at once, also if it was disabled.

        Args:
            webhook_id: its id, which ``list`` shows.
            after: continue after the event with this ``id``: an earlier one to send events again, or a later one to
                leave some out; None continues where it is.
            dry_run: only find it.

        Raises:
            WebhookNotFoundError: no webhook has this id.
            UsageError: there is no such event.
        """
        return self._calls.resume(webhook_id, after=after, actor=log_actor(), dry_run=dry_run)

    def test(self, webhook_id: str, *, dry_run: bool = False) -> Webhook:
        """Send the newest event that it wants once more, and wait for the result, up to half a minute.

        The result is in ``failures`` and ``last_error``. A webhook that has not got everything yet is only tried again.

        Args:
            webhook_id: its id, which ``list`` shows.
            dry_run: only find it.

        Raises:
            WebhookNotFoundError: no webhook has this id.
            UsageError: no event of the newest thousand is one that it wants; or no service has tried in this time.
        """
        webhook = self.resume(webhook_id, dry_run=True)
        page = self._catalog.log.page(EventFilter(actions=webhook.actions or None), newest=1000)
        wanted = [event.id for event in page if webhook.wants(event.action, (event.dataset,))]
        if not wanted:
            raise UsageError(
                "there is no event that this webhook wants", hint="Change something, or create one that wants more."
            )
        before = self.resume(webhook_id, after=min(webhook.delivered_through, wanted[-1] - 1), dry_run=dry_run)
        end = time.monotonic() + _TEST_SECONDS
        while not dry_run:
            webhook = self.resume(webhook_id, dry_run=True)
            if webhook.failures or webhook.delivered_through >= wanted[-1]:
                return webhook
            if time.monotonic() > end:
                raise UsageError(
                    "no service has sent the event within half a minute",
                    hint="Webhooks are delivered by registry serve with the setting webhook_key: is one running?",
                )
            time.sleep(_PAUSE_SECONDS)
        return before


def verify_webhook(secret: str, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """The message that a webhook has got, if the service of the catalog has sent it in the last five minutes.

    Args:
        secret: what `registry webhook create` printed; begins with ``whsec_``.
        headers: of the request; their names in any case.
        body: of the request, as it came.

    Returns:
        ``type``, the kind of the event; ``timestamp``; and ``data``, the event. A message may come twice: its header
        ``webhook-id`` is the same then.

    Raises:
        SignatureError: a header is missing, the message is too old, or the signature is not of this secret.
    """
    values = {name.lower(): value for name, value in headers.items()}
    message_id, timestamp, signatures = (values.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not (message_id and timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 15 and signatures):
        raise SignatureError("the request has no headers of a webhook", details={"reason": "headers"})
    if abs(time.time() - int(timestamp)) > _TOLERANCE_SECONDS:
        raise SignatureError(
            "the message of the webhook is older than five minutes, or from the future",
            hint="Compare the clock of this machine with another one. An old message may be a copy: refuse it.",
            details={"reason": "timestamp"},
        )
    expected = sign_message(secret, message_id, int(timestamp), body).encode()
    if not any(hmac.compare_digest(expected, each.encode()) for each in signatures.split()):
        raise SignatureError(
            "the signature of the webhook's message is wrong",
            hint="Check the secret: registry webhook secret ID. The body must be that of the request, byte by byte.",
            details={"reason": "signature"},
        )
    message: dict[str, Any] = json.loads(body)
    return message
