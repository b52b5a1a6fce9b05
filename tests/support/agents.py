"""A client of the official SDK for the tools of ``registry mcp``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from registry.cli.mcp.answers import CapturedOutput
from registry.cli.mcp.protocol import make_server
from registry.cli.mcp.tools import TOOLS, ToolSession
from support.warm_python import PROGRAM


def over_stdio(
    work: Callable[[Client], Awaitable[Any]],
    catalog: Path | str,
    *options: str,
    mode: str = "auto",
    log: Any = None,
    **environment: str,
) -> Any:
    """The result of ``work`` with a client of ``registry mcp``, which this starts. ``log`` gets its stderr."""
    parameters = StdioServerParameters(
        command=PROGRAM, args=["mcp", "--catalog", str(catalog), *options], env={**os.environ, **environment}
    )

    async def run() -> Any:
        streams = stdio_client(parameters) if log is None else stdio_client(parameters, errlog=log)
        async with Client(streams, mode=mode) as client:
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
