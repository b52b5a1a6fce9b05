"""The options that say in which order records are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:  # numpy is loaded when something is read
    from registry.order import ReadConfig


def order_options(
    *, seed: str = "[default: a new one each time]"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """--cycle-length, --block-length, --shuffle and --shuffle-seed; ``seed`` says what a shuffle without one is."""
    options = (
        click.option("--shuffle-seed", type=int, metavar="N", help=f"The seed of the shuffle.  {seed}"),
        click.option(
            "--shuffle",
            type=click.Choice(["files", "global"]),
            help="Shuffle the files as tf.data does, or all records.  [default: files with --shuffle-seed, else none]",
        ),
        click.option(
            "--block-length",
            type=click.IntRange(min=1),
            metavar="N",
            help="Take N records of a file at a time.  [default: 16]",
        ),
        click.option(
            "--cycle-length",
            type=click.IntRange(min=1),
            metavar="N",
            help="Read N files in turns.  [default: 16, as TFDS]",
        ),
    )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in options:
            function = option(function)
        return function

    return decorate


def make_read_config(
    cycle_length: int | None, block_length: int | None, shuffle: str | None, seed: int | None
) -> ReadConfig | None:
    """The config that the options ask for; None where they ask for nothing, for the version has a default."""
    from registry.order import ReadConfig

    options: dict[str, Any] = {}
    if cycle_length is not None:
        options["interleave_cycle_length"] = cycle_length
    if block_length is not None:
        options["interleave_block_length"] = block_length
    if shuffle == "global":
        options |= {"shuffle": "global", "seed": seed}
    elif shuffle == "files" or seed is not None:
        options |= {"shuffle_files": True, "shuffle_seed": seed}
    return ReadConfig(**options) if options else None
