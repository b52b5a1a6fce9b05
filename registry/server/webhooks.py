"""``Deliverer``: sends the events of a catalog to its webhooks, as Standard Webhooks describe.

    which are due?  ->  claim one  ->  each of its events: resolve, check the address, POST, read the status  ->  settle

Each worker of a service runs one; the catalog lets one at a time have a webhook (``catalog/webhooks.py``). They are
tasks of the event loop, so a receiver that is slow holds up no other one. What a receiver answers is neither kept nor
shown.

An address that is not public is refused unless the setting ``webhook_hosts`` names it: whoever creates a webhook must
not reach the machine of the service or its network. The host is resolved once, and the connection goes to the address
that was checked. No redirect is followed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import socket
import ssl
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from registry.catalog.service.messages import codec
from registry.errors import RegistryError
from registry.masking import mask
from registry.model import Event, Webhook, sign_message
from registry.server.metrics import Metrics
from registry.storage.consent import Allowed

if TYPE_CHECKING:
    from registry.catalog.webhooks import Claim, SqlWebhooks

_ATTEMPT_SECONDS: Final = 10
_TURN_SECONDS: Final = 20
"""How long a worker sends the events of one webhook before another one may: a third of the lease."""

_PAUSE_SECONDS: Final = 5
"""How often it asks which webhooks are due, also if there is no new event: some are tried again."""

_MOST_AT_ONCE: Final = 50
_MOST_HEAD: Final = 2**16
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d)[ \r]")
_GONE: Final = 410

_logger = logging.getLogger(__name__)


class Refused(Exception):  # noqa: N818 (``Deliverer`` records it)
    """Why an event was not delivered; ``is_final`` if the receiver wants no more."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


class Deliverer:
    """Sends events until its task is cancelled."""

    def __init__(
        self,
        webhooks: Callable[[], SqlWebhooks],
        in_thread: Callable[..., Awaitable[Any]],
        wait: Callable[[int, float], Awaitable[bool]],
        metrics: Metrics,
        hosts: Sequence[str] = (),
    ) -> None:
        """Nothing is sent yet.

        Args:
            webhooks: those of the catalog.
            in_thread: runs a function in a thread.
            wait: waits for an event after an id, at most some seconds; see ``EventWatch``.
            metrics: counts what was delivered and what failed.
            hosts: addresses and networks that are not public and may be sent to.
        """
        self._webhooks = webhooks
        self._in_thread = in_thread
        self._wait = wait
        self._metrics = metrics
        self._allowed = Allowed.of(fetch=True, hosts=hosts)
        self._turns: dict[str, asyncio.Task[None]] = {}
        self._tls = ssl.create_default_context()

    async def run(self) -> None:
        """Deliver, until the task is cancelled: then what was delivered is noted first."""
        try:
            while await self._look():
                pass
        finally:
            for turn in self._turns.values():
                turn.cancel()
            await asyncio.gather(*self._turns.values(), return_exceptions=True)

    async def _look(self) -> bool:
        """Begin the turns of the webhooks that are due, and wait for the next event; False if the service ends."""
        newest = None
        try:
            due, newest, behind = await self._in_thread(self._webhooks().due)
            self._metrics.events_behind = behind
            for webhook_id in due:
                if webhook_id not in self._turns and len(self._turns) < _MOST_AT_ONCE:
                    turn = self._turns[webhook_id] = asyncio.create_task(self._turn(webhook_id))
                    turn.add_done_callback(lambda _, webhook_id=webhook_id: self._turns.pop(webhook_id))  # type: ignore[misc]  # called later
        except Exception as error:  # noqa: BLE001 (it looks again)
            _log("the catalog does not say which webhooks are due", error)
        if newest is None:
            await asyncio.sleep(_PAUSE_SECONDS)
            return True
        return await self._wait(newest, _PAUSE_SECONDS)

    async def _turn(self, webhook_id: str) -> None:
        """Deliver the next events of a webhook, page after page, until there is none, or one fails."""
        try:
            while True:
                lease = secrets.token_hex(8)
                claim = await self._in_thread(self._webhooks().claim, webhook_id, lease)
                if claim is None or not await self._deliver_page(claim):
                    return
        except Exception as error:  # noqa: BLE001 (the next look begins another turn)
            _log(f"the events of the webhook {webhook_id} are delayed", error)

    async def _deliver_page(self, claim: Claim) -> bool:
        """Deliver the events of a claim and settle it; whether all were delivered."""
        through, error, is_final = claim.webhook.delivered_through, None, False
        signers = self._webhooks().secrets(claim.webhook.id)
        end = time.monotonic() + _TURN_SECONDS
        try:
            for event in claim.events:
                if time.monotonic() > end:
                    break
                try:
                    await self.send(claim.webhook, event, signers)
                except Refused as refused:
                    through, error, is_final = event.id - 1, str(refused), refused.is_final
                    self._metrics.count_delivery(is_delivered=False)
                    break
                through = event.id
                self._metrics.count_delivery(is_delivered=True)
            else:
                through = claim.through
        finally:  # a worker that ends notes what it has delivered
            settle = self._in_thread(self._webhooks().settle, claim, through, error, is_final=is_final)
            is_settled = await asyncio.shield(asyncio.ensure_future(settle))
        return is_settled and error is None

    async def send(self, webhook: Webhook, event: Event, signers: Sequence[str]) -> None:
        """Send one event.

        Raises:
            Refused: it was not delivered.
        """
        body = json.dumps(
            {"type": event.action, "timestamp": event.at.isoformat(), "data": codec(Event).dump(event)}
        ).encode()
        message_id, timestamp = f"evt_{event.hash[:32]}", int(time.time())
        signatures = " ".join(sign_message(secret, message_id, timestamp, body) for secret in signers)
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "User-Agent": "shardbook",
            "Connection": "close",
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signatures,
        }
        try:
            async with asyncio.timeout(_ATTEMPT_SECONDS):
                status = await self._post(webhook.url, headers, body)
        except TimeoutError:
            raise Refused(f"it did not answer within {_ATTEMPT_SECONDS} seconds") from None
        except ssl.SSLError as error:
            raise Refused(f"its certificate is not trusted: {error.reason or 'unknown reason'}"[:200]) from error
        except OSError as error:
            raise Refused(f"the connection failed: {error.strerror or type(error).__name__}"[:200]) from error
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise Refused("its answer is not HTTP, or too long") from error
        if not 200 <= status < 300:
            hint = "; redirects are not followed" if 300 <= status < 400 else ""
            raise Refused(f"it answered with the status {status}{hint}", is_final=status == _GONE)

    async def _post(self, url: str, headers: dict[str, str], body: bytes) -> int:
        """The status of the answer to a POST."""
        parts = urlsplit(url)
        host, is_https = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if is_https else 80)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        head = f"POST {target} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
        reader, writer = await self._connect(parts.scheme, host, port)
        try:
            writer.write(head.encode("ascii") + body)
            await writer.drain()
            while True:
                match = _STATUS.match(await reader.readuntil(b"\r\n\r\n"))
                if match is None:
                    raise Refused("its answer is not HTTP, or too long")
                if (status := int(match[1])) >= 200:  # what follows is not read
                    return status
        finally:
            writer.transport.abort()

    async def _connect(self, scheme: str, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to an address of ``host`` that was checked.

        Raises:
            Refused: one of its addresses is not allowed.
        """
        loop, failure = asyncio.get_running_loop(), OSError("it has no address")
        try:
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise Refused(f"the name {host} has no address") from error
        addresses = [str(info[4][0]) for info in infos]
        for address in addresses:
            if not self._allowed.covers_address(scheme, host, port, address):
                raise Refused(f"{host} has the address {address}, which is not public: see the setting webhook_hosts")
            if scheme != "https" and not _is_loopback(address):
                raise Refused("it has no encryption: other machines must use https")
        for address in addresses:
            try:
                return await asyncio.open_connection(
                    address,
                    port,
                    ssl=self._tls if scheme == "https" else None,
                    server_hostname=host if scheme == "https" else None,
                    limit=_MOST_HEAD,
                )
            except ssl.SSLError:
                raise
            except OSError as error:
                failure = error
        raise failure


def _log(what: str, error: Exception) -> None:
    is_ours = isinstance(error, RegistryError)
    _logger.warning("%s: %s", what, error if is_ours else mask("".join(traceback.format_exception(error))))


def _is_loopback(address: str) -> bool:
    from ipaddress import ip_address

    return ip_address(address.partition("%")[0]).is_loopback
