"""``registry pin``: pins slices, verifies, restores and signs pins. Subcommands are imported when they are run."""

from __future__ import annotations

from typing import Final

import click

from registry.cli.lazy_group import LazyGroup

_COMMANDS: Final = {
    "create": ("registry.cli.pin.making:create", "Pin slices of a version in a new file."),
    "add": ("registry.cli.pin.making:add", "Pin more slices in a file."),
    "show": ("registry.cli.pin.showing:show", "Show the pins of a file."),
    "explain": ("registry.cli.pin.showing:explain", "Explain a pin in sentences."),
    "verify": ("registry.cli.pin.checking:verify", "Prove that stored records are the pinned ones."),
    "read": ("registry.cli.pin.showing:read", "Print pinned examples as JSON lines."),
    "diff": ("registry.cli.pin.showing:diff", "Show how two pin files differ."),
    "update": ("registry.cli.pin.making:update", "Move pins to another version, after showing what changes."),
    "restore": ("registry.cli.pin.moving:restore", "Copy the pinned files from any place that has them."),
    "cite": ("registry.cli.pin.showing:cite", "Print the text for a paper."),
    "from-citation": (
        "registry.cli.pin.checking:from_citation",
        "Find the pin that a paper's text names, and check it.",
    ),
    "audit": ("registry.cli.pin.checking:audit", "Show which pins use yanked or missing data."),
    "bundle": ("registry.cli.pin.moving:bundle", "Pack pins, shards and a verifier into one archive."),
    "keygen": ("registry.cli.pin.moving:keygen", "Make a key pair to sign with."),
    "sign": ("registry.cli.pin.moving:sign", "Sign a pin file."),
    "check": ("registry.cli.pin.moving:check", "Check the signature of a pin file."),
}


@click.group("pin", cls=LazyGroup, table=_COMMANDS)
def pin() -> None:
    """Pin the exact records of a paper in one small file, and prove years later that they are the same.

    A pin file (dataset.lock.yaml) contains one or more slices of dataset versions, with digests of files and records.
    To verify it or to read from it, you need only the file and the shards, not a catalog.
    """
