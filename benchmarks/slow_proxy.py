"""A proxy in front of a server of this machine: delays requests, limits the bandwidth, counts requests and bytes.

    python benchmarks/slow_proxy.py UPSTREAM_PORT --delay-ms 30 --mb-per-second 50     prints its own port

``GET /_counts`` answers with the requests by method and the bytes of all answers as JSON, and starts to count again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter

_PIECE_BYTES = 2**16


class Link:
    """The shared line to the clients: bytes pass one piece after the other, at a limited rate."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._free_at = 0.0

    async def send(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        """Write ``piece`` once the line is free."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(now, self._free_at) + len(piece) / self._rate
        if self._free_at > now + 0.002:  # shorter pauses are not kept
            await asyncio.sleep(self._free_at - now)
        writer.write(piece)
        await writer.drain()


class Proxy:
    """Passes requests on to the server, one after the other for each connection."""

    def __init__(self, port: int, delay: float, link: Link) -> None:
        self._port = port
        self._delay = delay
        self._link = link
        self._counts: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, each over the same connection to the server."""
        try:
            upstream = await asyncio.open_connection("127.0.0.1", self._port)
            while await self._pass_on(reader, writer, *upstream):
                pass
            upstream[1].close()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        from_server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> bool:
        head = await read_head(reader)
        if not head:
            return False
        method, path, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        if path == "/_counts":
            answer = json.dumps(self._counts).encode()
            self._counts.clear()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))
            await writer.drain()
            return True
        self._counts[method] += 1
        await asyncio.sleep(self._delay)
        to_server.write(head)
        if b"100-continue" in head.lower():
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        async for piece in body_of(head, reader):
            await self._link.send(to_server, piece)
        await to_server.drain()
        answer_head = await read_head(from_server)
        while answer_head.startswith(b"HTTP/1.1 100"):
            answer_head = await read_head(from_server)
        writer.write(answer_head)
        if method != "HEAD" and b" 204 " not in answer_head[:16] and b" 304 " not in answer_head[:16]:
            async for piece in body_of(answer_head, from_server):
                self._counts["bytes"] += len(piece)
                await self._link.send(writer, piece)
        await writer.drain()
        return b"connection: close" not in answer_head.lower()


async def read_head(reader: asyncio.StreamReader) -> bytes:
    """The first line and the headers of a message; b"" if the connection was closed."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


async def body_of(head: bytes, reader: asyncio.StreamReader):  # type: ignore[no-untyped-def]  # an async generator
    """Yield the bytes of a message's body as they are sent, chunk headers included."""
    headers = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
    if headers.get(b"transfer-encoding", b"").strip() == b"chunked":
        while True:
            line = await reader.readuntil(b"\r\n")
            chunk = await reader.readexactly(int(line, 16) + 2)
            yield line + chunk
            if int(line, 16) == 0:
                return
    left = int(headers.get(b"content-length", b"0"))
    while left:
        piece = await reader.read(min(left, _PIECE_BYTES))
        if not piece:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(piece)
        yield piece


async def run(arguments: argparse.Namespace) -> None:
    proxy = Proxy(arguments.port, arguments.delay_ms / 1000, Link(arguments.mb_per_second * 1e6))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=2**20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until the parent ends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("--delay-ms", type=float, default=30)
    parser.add_argument("--mb-per-second", type=float, default=50)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
