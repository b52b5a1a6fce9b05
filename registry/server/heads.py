"""``HeadLimits``: HTTP/1.1 as uvicorn speaks it, with limits for heads of requests: their time, length and form."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from registry.catalog.service.problems import CONTENT_TYPE, dump_error
from registry.errors import UsageError
from registry.server.gate import HEADERS

_HEAD_SECONDS: Final = 20
_BAD_REQUEST: Final = 400
_REASONS: Final = {
    431: "the head of the request is too long",
    501: "the body of a request must not have another Transfer-Encoding than chunked",
}


class HeadLimits(H11Protocol):
    """Ends a connection whose next request has not begun in time, and answers malformed requests with an error."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(_HEAD_SECONDS, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass on what arrived, and wait for the rest of a head."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(_HEAD_SECONDS, self.timeout_keep_alive_handler)

    def shutdown(self) -> None:
        """Let requests that wait for events end, too."""
        if (watch := self.app_state.get("watch")) is not None:
            watch.stop()
        super().shutdown()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (uvicorn passes it)
        """Answer a malformed request, with the status that h11 suggests."""
        status = getattr(sys.exception(), "error_status_hint", _BAD_REQUEST)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            reason = _REASONS.get(status, "this is not an HTTP request")
            problem = dump_error(UsageError(reason, details={"http_status": status}), request_id="")
            body = json.dumps(problem).encode()
            headers = [*HEADERS.items(), ("Content-Type", CONTENT_TYPE), ("Connection", "close")]
            lines = [(name.encode(), value.encode()) for name, value in headers]
            for event in (h11.Response(status_code=status, headers=lines), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
