"""A client of the official SDK for the tools of ``registry mcp``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server

from registry.cli.mcp.answers import CapturedOutput
from registry.cli.mcp.protocol import make_server
from registry.cli.mcp.tools import TOOLS, ToolSession
from support.warm_python import PROGRAM, Popen


def over_stdio(
    work: Callable[[Client], Awaitable[Any]],
    catalog: Path | str,
    *options: str,
    mode: str = "auto",
    log: Any = None,
    **environment: str,
) -> Any:
    """The result of ``work`` with a client of ``registry mcp``, which this starts. ``log`` gets its stderr."""

    @contextlib.asynccontextmanager
    async def streams() -> AsyncIterator[Any]:  # the same over both ends of a pipe, which suits a forked program
        command = [PROGRAM, "mcp", "--catalog", str(catalog), *options]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "encoding": "utf-8"}
        with Popen(command, env={**os.environ, **environment}, **pipes) as process:
            async with stdio_server(anyio.wrap_file(process.stdout), anyio.wrap_file(process.stdin)) as both:
                yield both
                process.stdin.close()  # at which it ends

    async def run() -> Any:
        async with Client(streams(), mode=mode) as client:
            return await work(client)

    return asyncio.run(run())


def in_process(work: Callable[[Client], Awaitable[Any]], catalog: Path | str) -> Any:
    """The result of ``work`` with a client of the tools in this process, without a transport."""

    def open_session() -> ToolSession:
        return ToolSession(url=str(catalog), data_dir=None, out=CapturedOutput(seconds=60))

    async def run() -> Any:
        async with Client(make_server(TOOLS, open_session)) as client:
            return await work(client)

    return asyncio.run(run())


def over_http(
    work: Callable[[Client], Awaitable[Any]], url: str, token: str | None, *, mode: str = "auto", **headers: str
) -> Any:
    """The result of ``work`` with a client of the service at ``url``."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    fields |= {} if token is None else {"Authorization": f"Bearer {token}"}

    async def run() -> Any:
        async with (
            httpx2.AsyncClient(headers=fields, timeout=60) as http,
            Client(streamable_http_client(f"{url}mcp", http_client=http), mode=mode) as client,
        ):
            return await work(client)

    return asyncio.run(run())


def calling(name: str, **arguments: Any) -> Callable[[Client], Awaitable[Any]]:
    """Work that calls one tool; its result is the one of the tool."""

    async def work(client: Client) -> Any:
        return await client.call_tool(name, arguments)

    return work


def calling_each(calls: Mapping[str, tuple[str, dict[str, Any]]]) -> Callable[[Client], Awaitable[dict[str, Any]]]:
    """Work that calls several tools; their results by the name of the call."""

    async def work(client: Client) -> dict[str, Any]:
        return {key: await client.call_tool(name, arguments) for key, (name, arguments) in calls.items()}

    return work
