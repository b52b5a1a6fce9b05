"""``registry export croissant``: a version as a Croissant document, for stdout or a file."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from registry.cli.arguments import reference_argument
from registry.cli.options import Session, examples, session_command
from registry.errors import AlreadyStoredError


@session_command(
    "croissant",
    at=True,
    locked=True,
    epilog=examples(
        "registry export croissant digits > croissant.json",
        "registry export croissant mnist:3.* -o croissant.json --url https://example.org/mnist/3.0.1",
    ),
)
@reference_argument
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="Write FILE.  [default: stdout]")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option(
    "--url",
    "base_url",
    metavar="BASE",
    help="The address of the folder that has the shards.  [default: files are named relative to the document]",
)
@click.option(
    "--creator", "creators", metavar="NAME", multiple=True, help="A person who made the dataset; may be repeated."
)
def command(
    session: Session, reference: str, output: str | None, force: bool, base_url: str | None, creators: tuple[str, ...]
) -> None:
    """Print a version as Croissant 1.1 JSON-LD.

    It has the version, its licence and citation, every file with its size and sha256, the splits, the names of labels,
    and a field for each feature. What Croissant requires and the version does not have is named on stderr.
    """
    with session.connect_unless_pinned() as catalog:
        document = session.look_up(catalog, reference).croissant(base_url=base_url, creators=creators)
    from registry.interop.croissant import croissant_to_json, json_for_page, missing_properties

    if missing := missing_properties(document):
        session.out.note(f"note: Croissant asks every dataset for {_listed(missing)}, which this version does not have")
    path = None if output is None else _write(output, croissant_to_json(document).encode(), force=force)

    def human() -> None:
        if output is None:
            session.out.json_document(partial(json_for_page, document))
        else:
            session.out.line(f"wrote {output}")

    session.out.result("export.croissant", {"path": path, "document": document}, human)


def _write(output: str, data: bytes, *, force: bool) -> str:
    """Write the file in one step; the path. A file with the same content is left as it is."""
    from registry.storage import open_store

    place = Path(output).expanduser().absolute()
    store = open_store(place.parent)
    with store.exclusive(place.name):
        if place.is_file() and place.stat().st_size == len(data) and place.read_bytes() == data:
            return str(place)
        try:
            with store.create(place.name, overwrite=force) as file:
                file.write(data)
        except AlreadyStoredError as error:
            raise AlreadyStoredError(
                f"{output} already exists and holds something else",
                hint="Name another file with -o, or replace it with --force.",
                details={"path": output},
            ) from error
    return str(place)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
