"""``registry login`` and ``registry logout``: keep the access token for a service of a catalog."""

from __future__ import annotations

import sys

import click

from registry.cli.commands import Session, examples, session_command
from registry.errors import UsageError
from registry.masking import remove_secrets

_MOST_TOKEN = 200


@session_command(
    "login",
    catalog=False,
    epilog=examples("registry login https://catalog.example", "registry login https://catalog.example < token"),
)
@click.argument("service", metavar="URL")
def login(session: Session, service: str) -> None:
    """Keep your access token for the catalog at URL.

    An admin of the catalog gives you the token: registry token create. It is read from the terminal, or from standard
    input, checked with the catalog, and kept in the system's keyring, else in a file that only you can read. Programs
    may set REGISTRY_TOKEN instead.
    """
    from registry.api.locations import logins
    from registry.api.logins import log_in

    if sys.stdin.isatty():
        token = click.prompt("Access token", hide_input=True, err=True)
    else:
        token = sys.stdin.read(_MOST_TOKEN).strip()
    if not token:
        raise UsageError("there is no access token on standard input", hint=f"Try: registry login {service} < token")
    place, url = log_in(service, token, logins())
    value = {"url": url, "kept_in": place}
    session.out.present("login", value, lambda it: [f"logged in to {it['url']}; the token is kept in {it['kept_in']}"])


@session_command("logout", catalog=False, epilog=examples("registry logout https://catalog.example"))
@click.argument("service", metavar="URL")
def logout(session: Session, service: str) -> None:
    """Delete your access token for the catalog at URL from this machine. It stays valid until an admin revokes it."""
    from registry.api.locations import logins
    from registry.catalog.web_urls import site_url

    url = remove_secrets(site_url(service))
    logins().forget(url)
    session.out.present("logout", {"url": url}, lambda it: [f"logged out of {it['url']}"])
