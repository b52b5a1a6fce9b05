"""The page of a service on which people sign in with an access token. The server checks the token."""

from __future__ import annotations

from registry.errors import NotFoundError
from registry.pages.page import Page, Visit


def sign_in(visit: Visit) -> Page:
    """A form; ``next`` is the address below the root where the visitor wanted to go."""
    if visit.visitor is None:
        raise NotFoundError("these pages do not require signing in", hint="Begin at the home page.")
    return Page(name="sign_in", title="Sign in", values={"next": visit.query.get("next", ""), "problem": None})
