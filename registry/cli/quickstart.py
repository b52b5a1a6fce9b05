"""``registry quickstart``: builds, publishes, resolves and reads the digits dataset in one command."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

from registry.cli.commands import Session, session_command
from registry.cli.output import Block, Table, can_print
from registry.cli.progress import show_progress
from registry.cli.publish import describe_promotion, promotion_values
from registry.cli.resolve import FILE_COLUMNS, summarize
from registry.envelope import fields_of
from registry.masking import mask
from registry.splits.plan import file_values

_SHOWN = 5
_SLICE = "train[:10%]"


@session_command("quickstart")
@click.option("--split", default=_SLICE, show_default=True, help="The slice to read.")
def quickstart(session: Session, split: str) -> None:
    """Build the included digits dataset, publish it, resolve a slice and read it.

    It uses your catalog, so later commands find the dataset. Running it again changes nothing.

    Examples:
        registry quickstart
        registry quickstart --catalog try/catalog.db
    """
    from registry.display import Graphics, as_rgb, draw

    with session.connect_to_publish() as catalog:
        with show_progress(session.out) as progress:
            publication = catalog.build("digits", progress=progress)
        # Looked up by number, because a first version is not canonical in a protected catalog.
        dataset = catalog.look_up(publication.version.reference)
        plan = dataset.resolve(split)
        shown = list(islice(dataset.read(split), _SHOWN))
        url, folder = catalog.url, dataset.folder
    value = {
        "catalog": url,
        "folder": folder,
        "dataset": dataset.reference,
        "newly": publication.newly,
        "promotion": promotion_values(publication.promotion),
        "split": plan.expression,
        "num_examples": plan.num_examples,
        "files": [fields_of(file, "filename", "skip", "take") for file in plan],
        "labels": [int(example["label"]) for example in shown],
    }

    def human(it: dict[str, Any]) -> Iterator[Block]:
        version = publication.version
        done = "built and published" if it["newly"] else "already published:"
        yield f"{done} {version.reference}, {version.num_examples:,} real examples"
        yield f"  catalog {it['catalog']}"
        yield f"  shards  {it['folder']}"
        yield describe_promotion(session, version.reference, publication.promotion)
        yield ""
        yield summarize(it["dataset"], plan)
        yield Table([file_values(file) for file in plan], FILE_COLUMNS)
        yield ""
        shades = " ░▒▓█" if can_print("░▒▓█") else " .:*#"
        yield draw([as_rgb(example["image"]) for example in shown], Graphics.SHADES, shades=shades)
        yield "".join(f"{f'label {label}':<20}" for label in it["labels"]).rstrip()
        yield ""
        yield "Try next:"
        is_canonical = publication.promotion.after == version.version
        for line in next_lines(session, "digits" if is_canonical else str(version.reference)):
            yield f"  {line}"

    session.out.present("quickstart", value, human)


def next_lines(session: Session, reference: str) -> list[str]:
    """Commands that read the published dataset from the same catalog."""
    options = session.pasted_options
    named = ("", session.url), ("data_dir=", session.data_dir)
    # A URL with a password is not printed: connect() reads it from the environment.
    arguments = ", ".join(f"{name}{value!r}" for name, value in named if value and mask(value) == value)
    script = f"import registry; print(registry.connect({arguments}).dataset({reference!r}).read('train[:80%]'))"
    return [
        f"registry head {reference}{options}",
        f"registry stats {reference}{options}",
        f"registry resolve {reference} 'train[80%:]'{options}",
        f'python -c "{script}"',
    ]
