"""Answers that are compressed with zstd, whole and in pieces, and the client that reads them."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from registry.server.compression import choose_coding, make_compression

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def answer(pieces: list[bytes], accepted: str, path: str = "/api/v1/now") -> tuple[dict[str, str], bytes]:
    """The headers and the body of an application that answers in these pieces."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        for number, piece in enumerate(pieces, 1):
            await send({"type": "http.response.body", "body": piece, "more_body": number < len(pieces)})

    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    scope = {"type": "http", "path": path, "headers": [(b"accept-encoding", accepted.encode())]}
    asyncio.run(make_compression(app)(scope, None, send))  # type: ignore[arg-type]
    headers = {name.decode().lower(): value.decode() for name, value in messages[0]["headers"]}
    return headers, b"".join(message.get("body", b"") for message in messages[1:])


@pytest.mark.parametrize(
    "pieces", [[b"a" * 5000], [b"", b"b" * 10, b"", b"c" * 3000, b""], [b"", b""], [b"d" * 9, b"e"]]
)
def test_a_body_is_the_same_when_it_is_decoded(pieces: list[bytes]) -> None:
    headers, body = answer(pieces, "gzip, zstd")
    whole = b"".join(pieces)
    assert (zstd.decompress(body) if headers.get("content-encoding") == "zstd" else body) == whole
    if len(whole) > 1000:
        assert headers["content-encoding"] == "zstd"
        assert headers["vary"] == "Accept-Encoding"
        assert len(body) < len(whole)


def test_stored_files_and_short_answers_are_sent_as_they_are() -> None:
    for pieces, path in (([b"a" * 5000], "/api/v1/data/digits/1.0.0/x"), ([b"a" * 50], "/api/v1/now")):
        headers, body = answer(pieces, "zstd", path)
        assert "content-encoding" not in headers
        assert body == b"".join(pieces)


def test_what_is_no_request_passes() -> None:
    messages: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "lifespan.startup.complete"})

    async def send(message: Any) -> None:
        messages.append(message)

    asyncio.run(make_compression(app)({"type": "lifespan"}, None, send))  # type: ignore[arg-type]
    assert messages == [{"type": "lifespan.startup.complete"}]


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("zstd", "zstd"),
        ("*", "zstd"),
        ("gzip;q=1.0, zstd;q=0.9", "gzip"),
        ("zstd;q=0, *", "gzip"),
        ("gzip;q=0, zstd;q=0", ""),
        ("identity", ""),
        ("", ""),
        ("zstd;q=2", "zstd"),
        ("br, GZIP", "gzip"),
    ],
)
def test_the_coding_is_the_one_that_the_client_likes_most(accepted: str, coding: str) -> None:
    assert choose_coding(accepted) == coding
