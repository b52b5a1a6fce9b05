"""Compresses answers with zstd, or with gzip for clients that do not accept zstd. Stored files are sent unchanged."""

from __future__ import annotations

import re
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from registry.catalog.service_index import DATA_PATH

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_LEAST_BYTES: Final = 1000
_GZIP_LEVEL: Final = 5
_ZSTD_LEVEL: Final = 3


def make_compression(app: ASGIApp) -> ASGIApp:
    """``app``, with answers compressed according to ``Accept-Encoding`` (RFC 9110, 12.5.3)."""
    from starlette.middleware.gzip import GZipResponder, IdentityResponder

    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    class ZstdResponder(IdentityResponder):
        content_encoding = "zstd"

        async def send_with_compression(self, message: Any) -> None:
            # Nothing becomes nothing, so that the responder would not say that the rest is compressed.
            if message["type"] != "http.response.body" or message.get("body") or not message.get("more_body"):
                await super().send_with_compression(message)

        async def apply_compression(self, body: bytes, *, more_body: bool) -> bytes:
            if more_body:
                return self.compressor.compress(body, zstd.ZstdCompressor.FLUSH_BLOCK)
            return self.compressor.compress(body, zstd.ZstdCompressor.FLUSH_FRAME)

        @cached_property
        def compressor(self) -> zstd.ZstdCompressor:
            return zstd.ZstdCompressor(level=_ZSTD_LEVEL)

    async def compress(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"].startswith(f"/{DATA_PATH}/"):  # a range is one of the stored bytes
            await app(scope, receive, send)
            return
        accepted = b",".join(value for name, value in scope["headers"] if name == b"accept-encoding")
        coding = choose_coding(accepted.decode("latin-1"))
        responder: Any = IdentityResponder(app, _LEAST_BYTES)  # says that the answer depends on the header
        if coding == "zstd":
            responder = ZstdResponder(app, _LEAST_BYTES)
        elif coding == "gzip":
            responder = GZipResponder(app, _LEAST_BYTES, compresslevel=_GZIP_LEVEL)
        await responder(scope, receive, send)

    return compress


def choose_coding(accepted: str) -> str:
    """The coding of an answer to a client with this ``Accept-Encoding``, or "" if it accepts neither.

    >>> choose_coding("gzip, zstd"), choose_coding("gzip, zstd;q=0.5"), choose_coding("br")
    ('zstd', 'gzip', '')
    """
    sent = {}
    for part in accepted.lower().replace(" ", "").split(","):
        coding, _, weight = part.partition(";q=")
        sent[coding] = float(weight) if re.fullmatch(r"[01](\.[0-9]{0,3})?", weight) else 1.0
    weights = {coding: sent.get(coding, sent.get("*", 0.0)) for coding in ("zstd", "gzip")}
    best = max(weights, key=lambda coding: weights[coding])
    return best if weights[best] else ""
