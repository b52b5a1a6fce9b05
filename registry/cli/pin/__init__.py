"""``registry pin``: pin slices for a paper, prove them, hand them on. Subcommands are imported when they are run."""

from __future__ import annotations

from typing import Final

import click

from registry.cli.lazy_group import LazyGroup

_MODULES: Final = {
    "making": ("create", "add", "update"),
    "showing": ("show", "explain", "cite", "diff", "read"),
    "checking": ("verify", "audit", "from-citation"),
    "moving": ("restore", "bundle"),
    "signing": ("keygen", "sign", "check"),
}
_HELP: Final = {
    "create": "Pin slices of a version in a new file.",
    "add": "Pin more slices in a file.",
    "show": "Show the pins of a file.",
    "explain": "Say in sentences what a pin is.",
    "verify": "Prove that stored records are the pinned ones.",
    "read": "Print pinned examples as JSON lines.",
    "diff": "Show how two pin files differ.",
    "update": "Move pins to another version, after showing what changes.",
    "restore": "Get the pinned files, from wherever they are.",
    "cite": "Print the text for a paper.",
    "from-citation": "Find the pin that a paper's text names, and check it.",
    "audit": "Show which pins use yanked or missing data.",
    "bundle": "Pack pins, shards and a verifier into one archive.",
    "keygen": "Make a key pair to sign with.",
    "sign": "Sign a pin file.",
    "check": "Check the signature of a pin file.",
}


def _find(name: str) -> tuple[str, str]:
    """The module of that command's subject; its function is called like the command, with ``_`` for ``-``."""
    subject = next(module for module, names in _MODULES.items() if name in names)
    return f"registry.cli.pin.{subject}", name.replace("-", "_")


@click.group("pin", cls=LazyGroup, commands_help=_HELP, find=_find)
def command() -> None:
    """Pin the exact records of a paper in one small file, and prove in ten years that they are the same.

    A pin file (dataset.lock.yaml) holds one or more slices of dataset versions, with digests of files and records. To
    verify one, or to read from it, takes the file and the shards: no catalog is opened.
    """
