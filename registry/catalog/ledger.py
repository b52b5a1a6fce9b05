"""Is a version number used, and for what? The ledger remembers each one for good."""

from __future__ import annotations

import sqlalchemy as sa

from registry.catalog.queries import find_digest, find_version_id
from registry.errors import VersionExistsError
from registry.model import Reference


def is_published(connection: sa.Connection, exactly: Reference, content_digest: str) -> bool:
    """Whether that content is published under the number; False where the number is free.

    Raises:
        VersionExistsError: other content is, or it was published and deleted.
    """
    number = exactly.request.exact if exactly.request is not None else None
    if number is None:
        raise AssertionError("an exact reference has a number")
    digest = find_digest(connection, exactly.name, exactly.config, number)
    if digest is None:
        return False
    exists = find_version_id(connection, exactly.name, exactly.config, number) is not None
    if exists and digest == content_digest:
        return True
    what = (
        f"is published with other content (sha256 {digest[:12]}, not {content_digest[:12]})"
        if exists
        else "was published and deleted"
    )
    raise VersionExistsError(
        f"{exactly} {what}",
        hint="A number is never used twice. Raise the version: PATCH for the same records, "
        "MINOR for added features, MAJOR for anything else.",
        details={"published": digest, "offered": content_digest},
    )
