"""The options that every command has, and the session they open."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import click

from registry.cli.output import Output

if TYPE_CHECKING:  # sqlalchemy is loaded when a catalog is opened
    from registry.api import Catalog, Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What the common options say: which catalog, which data directory, and how to print."""

    url: str | None
    data_dir: str | None
    out: Output

    def connect(self) -> Catalog:
        """Open the catalog."""
        from registry.api import connect

        return connect(self.url, data_dir=self.data_dir)

    def look_up(self, catalog: Catalog, reference: str) -> Dataset:
        """The dataset that ``reference`` names; notes where it is not simply a supported version."""
        dataset = catalog.dataset(reference)
        for note in dataset.notes:
            self.out.note(f"note: {note}")
        return dataset


def session_command(name: str, **attributes: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """A click command with ``--catalog``, ``--data-dir`` and ``--format``; its function gets a Session first."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        @click.command(name, **attributes)
        @click.option(
            "--catalog",
            "url",
            metavar="URL",
            help="Database URL or SQLite file.  [default: $REGISTRY_CATALOG, else a file in your data folder]",
        )
        @click.option(
            "--data-dir",
            metavar="DIR",
            help="Folder of the shards.  [default: $REGISTRY_DATA_DIR, else 'datasets' beside the catalog]",
        )
        @click.option(
            "--format",
            "output_format",
            type=click.Choice(["human", "json"]),
            default="human",
            help="Print tables, or one JSON value for programs.",
        )
        @functools.wraps(function)
        def wrapped(url: str | None, data_dir: str | None, output_format: str, **arguments: Any) -> Any:
            session = Session(url=url, data_dir=data_dir, out=Output(as_json=output_format == "json"))
            return function(session, **arguments)

        return cast("click.Command", wrapped)

    return decorate


def examples(*lines: str) -> str:
    """The epilog of a help page: command lines to copy."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
