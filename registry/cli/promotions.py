"""What a publication did to the canonical version: one option, one line for people, one object for programs."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from registry.cli.options import Session
from registry.model import Reference

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.catalog import Promotion


def promote_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--promote and --no-promote."""
    return click.option(
        "--promote/--no-promote",
        default=None,
        help="Make it the version that an unversioned look-up gives.  [default: where it is the highest, unless "
        "'registry config protect' keeps the present one]",
    )(function)


def describe_promotion(session: Session, published: Reference, promotion: Promotion) -> str:
    """The last line of a publication: what became canonical and what it replaced, or why nothing did."""
    dataset, before, after = published.dataset, promotion.before, promotion.after
    version = published.request.exact if published.request else None
    if promotion.reason is None:
        return f"canonical: {published}, " + ("the first" if before in (None, after) else f"replacing {before}")
    if after == version:
        return f"canonical: {published}, as before"
    stays = f"canonical: {dataset}:{after}, as before" if after is not None else f"canonical: no version of {dataset}"
    return f"{stays}, because {_reason(published, promotion)}. To change it: {_promote_line(session, published)}"


def promotion_json(promotion: Promotion) -> dict[str, Any]:
    """The same for programs."""
    return {
        "before": None if promotion.before is None else str(promotion.before),
        "after": None if promotion.after is None else str(promotion.after),
        "reason": None if promotion.reason is None else promotion.reason.value,
        "protected": promotion.protected,
    }


def _reason(published: Reference, promotion: Promotion) -> str:
    version = published.request.exact if published.request else None
    match promotion.reason:
        case "protected":
            return f"{promotion.protected or 'the whole catalog'} is protected"
        case "lower":
            return f"{version} is lower"
        case "experimental":
            return f"{version} is not the VERSION of its builder"
        case "published_before":
            return f"{version} was published before"
        case _:
            return f"{version} was published with --no-promote"


def _promote_line(session: Session, published: Reference) -> str:
    catalog = f" --catalog {shlex.quote(session.url)}" if session.url else ""
    return f"registry promote {published}{catalog}"
