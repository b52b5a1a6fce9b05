"""``registry serve`` answers the calls of a catalog over HTTP, for people and programs with access tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from registry.cli.commands import Session, session_command
from registry.errors import UsageError


@session_command("serve")
@click.option("--host", metavar="HOST", help="The address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="The port; 0 is a free one.  [default: 8080]")
@click.option("--workers", type=click.IntRange(1, 256), metavar="N", help="Number of worker processes.  [default: 1]")
@click.option(
    "--config", "config_file", metavar="FILE", type=click.Path(), help="YAML file with these and more settings."
)
@click.option(
    "--anonymous-reads", is_flag=True, default=None, help="Allow clients without a token to read every dataset."
)
@click.option(
    "--init", is_flag=True, help="Create the catalog if needed, and print an admin token unless there is a token."
)
@click.option("--public-url", metavar="URL", help="URL of the service for clients, if it is behind a proxy.")
def serve(session: Session, *, config_file: str | None, init: bool, **options: Any) -> None:
    """Serve the catalog over HTTP, so that clients need only its URL and a token. Stop it with Ctrl-C.

    Clients open it with registry.connect("https://host/"). Each setting can also be an environment variable, such as
    REGISTRY_SERVE_PORT, or a line of the config file. Requests are logged to stderr, one JSON object per line. The
    service speaks plain HTTP: put a proxy with TLS in front of it for other machines.

    Examples:
        registry serve --init
        registry serve --port 8000 --workers 4 --public-url https://data.example.org/
        registry serve --config service.yaml
    """
    from registry.api.locations import log_actor
    from registry.catalog import is_site
    from registry.server.config import load_config, source_of
    from registry.server.serve import is_public, make_first_token, serve

    config = load_config(config_file, catalog=session.url, data_dir=session.data_dir, **options)
    more_routes = None
    if config.mcp:
        from registry.cli.mcp.protocol import agent_routes, require_sdk

        require_sdk()
        more_routes = agent_routes
    given_by = source_of("catalog", config_file, session.url)
    session = replace(session, url=config.catalog, data_dir=config.data_dir, given_by=given_by)
    if is_site(session.catalog_url):
        raise UsageError(
            "registry serve needs the database of a catalog, not a site or a service",
            hint=f"Name a database with --catalog. This catalog comes from {given_by or 'REGISTRY_CATALOG'}.",
        )
    with session.connect(create=init) as catalog:
        if config.data_dir is not None and catalog.backend.locations.data_dir() is None:
            catalog.set_data_dir(config.data_dir)  # otherwise clients would not know where to publish the first version
        token = make_first_token(catalog.backend, log_actor()) if init else None
        is_closed = not (config.anonymous_reads or config.issuers or catalog.backend.access.tokens(limit=1))
        address, catalog_url = session.catalog_url, catalog.url

    def ready(url: str) -> None:
        value = {"url": url, "catalog": catalog_url, "token": token}
        session.out.present("serve", value, lambda it: filter(None, (it["url"], it["token"])))
        if token is not None:
            session.out.note("The admin token is printed only once: store it. Then, on a client: registry login URL")
        if is_closed:
            session.out.note(
                "note: there is no access token, so all calls are refused; to create one: registry serve --init"
            )
        if is_public(config.host) and not config.trusted_proxies:
            session.out.note(
                "note: tokens are sent unencrypted unless a proxy with TLS is in front: see trusted_proxies"
            )
        if is_public(config.host) and config.public_url is None:
            session.out.note(
                "note: clients read the files of versions at --public-url: set it to a URL that they can reach"
            )
        session.out.note("Press Ctrl-C to stop.")

    port_source = source_of("port", config_file, options["port"])
    serve(replace(config, catalog=address), ready=ready, port_source=port_source, more_routes=more_routes)
