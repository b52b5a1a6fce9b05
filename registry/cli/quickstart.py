"""``registry quickstart``: the main job on real data, in one command."""

from __future__ import annotations

import shlex
import sys
from itertools import islice
from typing import TYPE_CHECKING

import click

from registry.cli.commands import Session, examples, session_command
from registry.cli.progress import build_progress
from registry.cli.publish import describe_promotion, promotion_json
from registry.cli.resolve import summary

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SHOWN = 5
_SLICE = "train[:10%]"


@session_command("quickstart", epilog=examples("registry quickstart", "registry quickstart --catalog try/catalog.db"))
@click.option("--split", default=_SLICE, show_default=True, help="The slice to read.")
def quickstart(session: Session, split: str) -> None:
    """Build the shipped digits dataset, publish it, resolve a slice and read it.

    Uses your catalog, so that what it published is there for the next command. Running it again is harmless.
    """
    out = session.out
    with session.connect() as catalog:
        with build_progress(out) as bars:
            verify = None if bars is None else bars.verify
            publication = catalog.build("digits", progress=bars, advance=verify)
        # By its number: in a protected catalog a first version is not canonical.
        dataset = catalog.look_up(publication.version.reference)
        plan = dataset.resolve(split)
        shown = list(islice(dataset.read(split), _SHOWN))
        url, folder = catalog.url, dataset.folder
    data = {
        "catalog": url,
        "folder": folder,
        "dataset": str(dataset.reference),
        "newly": publication.newly,
        "promotion": promotion_json(publication.promotion),
        "split": plan.expression,
        "num_examples": plan.num_examples,
        "files": [{"filename": file.filename, "skip": file.skip, "take": file.take} for file in plan],
        "labels": [int(example["label"]) for example in shown],
    }

    def human() -> None:
        version = publication.version
        done = "built and published" if publication.newly else "found, published before:"
        out.line(f"{done} {version.reference}, {version.num_examples:,} real examples")
        out.line(f"  catalog {url}")
        out.line(f"  shards  {folder}")
        out.line(describe_promotion(session, version.reference, publication.promotion))
        out.line()
        out.line(summary(str(dataset.reference), plan))
        out.table(
            ("FILE", "SKIP", "TAKE", "OF"),
            [(file.filename, file.skip, file.take, file.examples_in_shard) for file in plan],
        )
        out.line()
        for line in side_by_side([draw(example["image"]) for example in shown]):
            out.line(line)
        out.line("".join(f"{'label ' + str(example['label']):<20}" for example in shown).rstrip())
        out.line()
        out.line("Try next:")
        is_canonical = publication.promotion.after == version.version
        for line in next_lines(session, "digits" if is_canonical else str(version.reference)):
            out.line(f"  {line}")

    out.result("quickstart", data, human)


def next_lines(session: Session, reference: str) -> list[str]:
    """Three commands that read what was just published, from the catalog that was named."""
    named = [("--catalog", session.url), ("--data-dir", session.data_dir)]
    options = "".join(f" {option} {shlex.quote(value)}" for option, value in named if value)
    arguments = ", ".join(
        filter(None, (session.url and repr(session.url), session.data_dir and f"data_dir={session.data_dir!r}"))
    )
    script = f"import registry; print(registry.connect({arguments}).dataset({reference!r}).read('train[:80%]'))"
    return [
        f"registry read {reference} 'train[-1:]'{options}",
        f"registry resolve {reference} 'train[80%:]'{options}",
        f'python -c "{script}"',
    ]


def draw(image: NDArray[np.uint8], *, white: int = 0, black: int = 16) -> list[str]:
    """An image of shape (height, width, 1) as text, two characters a pixel, darker where the value is higher."""
    shades = " ░▒▓█" if _can_print("░▒▓█") else " .:*#"
    span = black - white
    return [
        "".join(shades[min(len(shades) - 1, (int(pixel) - white) * len(shades) // (span + 1))] * 2 for pixel in row)
        for row in image[:, :, 0]
    ]


def side_by_side(pictures: list[list[str]], gap: int = 4) -> list[str]:
    """Pictures of equal height beside each other."""
    return [(" " * gap).join(rows).rstrip() for rows in zip(*pictures, strict=True)]


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
