"""``registry login`` and ``registry logout``: store and delete the access token for a catalog's service."""

from __future__ import annotations

import sys
from typing import Any

import click

from registry.cli.commands import Session, session_command
from registry.errors import UsageError
from registry.masking import remove_secrets

_MOST_TOKEN = 200
_MOST_ID_TOKEN = 20_000


@session_command("login", catalog=False)
@click.argument("service", metavar="URL")
@click.option("--oidc", is_flag=True, help="Sign in with your account, in the browser.")
@click.option("--issuer", metavar="NAME", help="With --oidc: the issuer of your account, if there are several.")
@click.option("--ci", is_flag=True, help="Sign in as this job of GitHub Actions or GitLab CI.")
@click.option(
    "--id-token-file", metavar="FILE", type=click.File(), help="Sign in with the ID token in FILE; - is standard input."
)
def login(session: Session, service: str, *, oidc: bool, issuer: str | None, ci: bool, id_token_file: Any) -> None:
    """Store your access token for the catalog at URL.

    An admin of the catalog gives you the token: registry token create. It is read from the terminal or from standard
    input, checked with the catalog, and stored in the system's keyring, or else in a file that only you can read.
    Programs may set REGISTRY_TOKEN instead.

    If the catalog accepts accounts of other issuers, --oidc gets a token for your account. A CI job gets a token for
    15 minutes: in GitHub Actions with the permission id-token, elsewhere with the ID token in REGISTRY_ID_TOKEN or a
    file.

    Examples:
        registry login https://catalog.example
        registry login https://catalog.example < token
        registry login https://catalog.example --oidc
        registry login https://catalog.example --ci
    """
    from registry.api.locations import logins, team_settings
    from registry.api.logins import log_in
    from registry.catalog.service import sign_in
    from registry.catalog.web_urls import site_url

    site_url(remove_secrets(service))  # before a token is asked for
    if oidc + ci + (id_token_file is not None) > 1:
        raise UsageError("--oidc, --ci and --id-token-file cannot be combined", hint="Use only one of them.")
    if oidc:
        token = sign_in.sign_in_with_browser(
            service, issuer, lambda address: _open(session, address), _pasted if _has_terminal() else None
        )
    elif ci or id_token_file is not None:
        id_token = sign_in.ci_id_token(service) if ci else id_token_file.read(_MOST_ID_TOKEN).strip()
        token = sign_in.sign_in_with_id_token(service, id_token)
    elif sys.stdin.isatty():
        token = click.prompt("Access token", hide_input=True, err=True)
    else:
        token = sys.stdin.read(_MOST_TOKEN).strip()
    if not token:
        raise UsageError("standard input contains no access token", hint=f"Try: registry login {service} < token")
    place, url = log_in(service, token, logins())
    team_settings().keep(url)
    value = {"url": url, "kept_in": place}
    session.out.present("login", value, lambda it: [f"logged in to {it['url']}; token stored in {it['kept_in']}"])


def _open(session: Session, address: str) -> None:
    """Show an address to the person: in the terminal and, if possible, in a browser.

    The browser is opened in a thread, because a text browser runs until its user quits it.
    """
    import threading
    import webbrowser

    session.out.note(f"Sign in at {address}")
    if _has_terminal():
        session.out.note(
            "If your browser is on another machine, it then shows an error at an address that begins with "
            "http://127.0.0.1: paste this address here."
        )
    threading.Thread(
        target=webbrowser.open, args=(address,), daemon=True
    ).start()  # a text browser blocks until its user quits it


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()  # None if the parent process closed it


def _pasted(seconds: float) -> str:
    """Return the line that the user enters, or "" if none comes within ``seconds``."""
    import select

    return sys.stdin.readline() if select.select([sys.stdin], [], [], seconds)[0] else ""


@session_command("logout", catalog=False)
@click.argument("service", metavar="URL")
def logout(session: Session, service: str) -> None:
    """Delete your access token for the catalog at URL from this machine. It stays valid until an admin revokes it.

    Examples:
        registry logout https://catalog.example
    """
    from registry.api.locations import logins, team_settings
    from registry.catalog.web_urls import site_url

    url = remove_secrets(site_url(service))
    logins().forget(url)
    team_settings().forget(url)
    session.out.present("logout", {"url": url}, lambda it: [f"logged out of {it['url']}"])
