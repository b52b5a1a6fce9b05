"""The tools that change a catalog, for ``registry mcp --allow-publish DIR``: over stdio only, for its owner.

``dry_run`` is true by default, so a change takes two calls, the first of which only shows it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from registry.cli import alias, lifecycle
from registry.cli.add import report_values
from registry.cli.mcp.tools import Ref, Text, Tool, ToolSession, run_command
from registry.cli.progress import show_progress
from registry.errors import UsageError

DryRun = Annotated[bool, Field(description="Only report what would change. Set it to false to make the change.")]


def add(
    session: ToolSession,
    *,
    path: Annotated[str, Field(min_length=1, max_length=1_000, description="A file or folder below an allowed one.")],
    name: Annotated[str, Field(min_length=1, max_length=200, description="The name of the dataset.")],
    reason: Annotated[str, Field(max_length=2_000, description="What changed: the release note.")] = "",
    dry_run: DryRun = True,
) -> None:
    """Publish a file or folder of this machine as the next version of a dataset: CSV, JSON, Parquet, images ...

    The number is the smallest that the changes allow. The same content again publishes nothing.
    """
    source = _below(session.folders, path)
    with session.connect_to_publish(dry_run=dry_run) as catalog, show_progress(session.out) as progress:
        report = catalog.add(str(source), name, reason=reason, dry_run=dry_run, progress=progress)
    session.out.notes(report.notes)
    session.out.present("add", report_values(report))


def deprecate(session: ToolSession, *, reference: Ref, reason: Text, dry_run: DryRun = True) -> None:
    """Deprecate a version: look-ups still find it, and its readers see the reason."""
    run_command(lifecycle.deprecate, session, reference=reference, reason=reason, undo=False, dry_run=dry_run, uses=[])


def set_alias(
    session: ToolSession,
    *,
    alias_name: Annotated[str, Field(min_length=1, max_length=200, description="The alias, without the dataset.")],
    reference: Ref,
    reason: Annotated[str, Field(max_length=2_000)] = "",
    dry_run: DryRun = True,
) -> None:
    """Point an alias, such as paper of mnist@paper, to a version. It moves if it exists."""
    run_command(alias.set_, session, name=alias_name, reference=reference, expect=None, reason=reason, dry_run=dry_run)


CHANGES: Final = {
    tool.name: tool
    for tool in (
        Tool(name="add", function=add, is_heavy=True, hints={"destructive_hint": False, "idempotent_hint": True}),
        Tool(name="deprecate", function=deprecate, hints={"destructive_hint": False, "idempotent_hint": True}),
        Tool(name="set_alias", function=set_alias, hints={"destructive_hint": True, "idempotent_hint": True}),
    )
}
"""The tools that change something."""


def _below(folders: tuple[str, ...], path: str) -> Path:
    """The real path of a source.

    Raises:
        UsageError: the source does not exist, or it or a link in it is outside of the folders.
    """
    roots = [Path(folder).resolve() for folder in folders]
    try:
        candidates = [Path(root, path) for root in roots]  # an absolute path stays absolute
        source = next(filter(Path.exists, candidates), candidates[0]).resolve(strict=True)
        entries = (Path(folder, name) for folder, *names in os.walk(source) for name in (*names[0], *names[1]))
        places = [source, *(link.resolve() for link in entries if link.is_symlink())]
    except (OSError, ValueError, RuntimeError):  # a loop of links, or a NUL
        places = []
    if not places or not all(any(place.is_relative_to(root) for root in roots) for place in places):
        raise UsageError(
            f"{path!r:.200} is not below a folder whose files may be published",
            hint=f"Name an existing file below {', '.join(folders)}. Links to other folders are not allowed.",
        )
    return places[0]
