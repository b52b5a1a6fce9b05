"""The attachments of published versions in SQL: their rows are written with the version, or later with an event.

The event of a publication lists the attachments, and an ``attach`` event names one that was added later, so the log
covers all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.queries import find_version_id
from registry.catalog.rows import read_attachment
from registry.catalog.selection import lock_reference
from registry.catalog.session import transact
from registry.catalog.tables import attachment as table
from registry.catalog.values import stored_values
from registry.errors import ConflictError, UsageError, VersionNotFoundError
from registry.model import Attachment, DatasetVersion

ATTACH: Final = "attach"


def attach(engine: sa.Engine, version: DatasetVersion, *attachments: Attachment, actor: str) -> bool:
    """See ``CatalogBackend.attach``."""

    def action(connection: sa.Connection) -> bool:
        version_id = find_version_id(connection, version.name, version.config, version.version)
        if version_id is None:
            raise VersionNotFoundError(
                f"{version.reference} is not published", hint="Publish it, then attach files to it."
            )
        from registry.catalog.events import append_event, check_clock
        from registry.catalog.removals import refuse_removed

        # From here on, no other transaction can attach to this dataset.
        reference = lock_reference(connection, version.reference)
        refuse_removed(connection, reference)
        by_name = {(present.kind, present.name): present for present in load_attachments(connection, version_id)}
        new = [attachment for attachment in attachments if attachment not in by_name.values()]
        for attachment in new:
            if (present := by_name.get((attachment.kind, attachment.name))) is not None:
                raise ConflictError(
                    f"{version.reference} already has other {attachment.kind} with the name {attachment.name}: "
                    f"expected sha256 {present.sha256[:12]}, found {attachment.sha256[:12]}",
                    hint="Attachments never change. Attach the new bytes under another name.",
                    details={"attached": present.sha256, "offered": attachment.sha256},
                )
        if not new:
            return False
        now = check_clock(connection)
        insert_attachments(connection, version_id, new, at=now, actor=actor)
        for attachment in new:
            append_event(connection, ATTACH, reference, asdict(attachment), actor=actor, rows_at=now)
        return True

    return transact(engine, action, actor=actor)


def insert_attachments(
    connection: sa.Connection, version_id: int, attachments: Sequence[Attachment], *, at: datetime, actor: str
) -> None:
    """Write the rows of attachments of a version."""
    rows = [{"version_id": version_id, "added_at": at, "added_by": actor, **asdict(value)} for value in attachments]
    if rows:
        connection.execute(sa.insert(table), rows)


def attachments_of(connection: sa.Connection, version: DatasetVersion) -> tuple[Attachment, ...]:
    """See ``CatalogBackend.attachments``."""
    version_id = find_version_id(connection, version.name, version.config, version.version)
    return () if version_id is None else load_attachments(connection, version_id)


def load_attachments(connection: sa.Connection, version_id: int) -> tuple[Attachment, ...]:
    """The attachments of a version, by kind and name."""
    query = sa.select(table).where(table.c.version_id == version_id)
    with stored_values():
        return tuple(sorted(map(read_attachment, connection.execute(query).mappings())))


def listed_attachments(attachments: Sequence[Attachment]) -> dict[str, Any]:
    """The event details that list the attachments of a published version; empty without attachments.

    Raises:
        UsageError: two attachments have the same kind and name.
    """
    if len({(value.kind, value.name) for value in attachments}) != len(attachments):
        raise UsageError("two attachments of a version have the same kind and name")
    return {"attachments": [asdict(value) for value in sorted(attachments)]} if attachments else {}
