"""``registry mcp``: tools for agents, over the Model Context Protocol."""

from __future__ import annotations

import click

from registry.cli.commands import Session, session_command


@session_command("mcp")
@click.option(
    "--allow-publish",
    "folders",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="Add tools that change the catalog and publish files below DIR; may be repeated.",
)
def mcp(session: Session, folders: tuple[str, ...]) -> None:
    """Serve the catalog to an agent, over the Model Context Protocol, on stdin and stdout.

    The tools find datasets, show versions, rows and statistics, compare and pin. They are read-only unless you add
    --allow-publish. Configure the agent to start this command.

    Examples:
        registry mcp
        registry mcp --catalog https://catalog.example/
        registry mcp --allow-publish ./data
    """
    from registry.cli.mcp.protocol import require_sdk, serve_stdio

    require_sdk()
    from registry.cli.mcp.publishing import CHANGES
    from registry.cli.mcp.tools import TOOLS

    serve_stdio(TOOLS | (CHANGES if folders else {}), session.url, session.data_dir, folders)
