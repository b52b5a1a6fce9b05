"""Arguments and options that several commands take, and what the shell offers for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from registry.cli.completion import (
    complete_alias,
    complete_builder,
    complete_experiment,
    complete_file,
    complete_name,
    complete_reference,
    complete_split,
    complete_version,
)
from registry.model import SlicingRule


def reference_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """REF: ``name[/config][:request | @alias]``."""
    return click.argument("reference", metavar="REF", shell_complete=complete_reference)(function)


def dataset_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """DATASET: ``name[/config]``."""
    return click.argument("dataset", metavar="DATASET", shell_complete=complete_reference)(function)


def split_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """SPLIT: a split expression."""
    return click.argument("split", metavar="SPLIT", shell_complete=complete_split)(function)


def splits_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """SPLIT...: split expressions, one or more."""
    return click.argument("splits", metavar="SPLIT...", nargs=-1, required=True, shell_complete=complete_split)(
        function
    )


def rounding_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--rounding: how the percents of SPLIT become record numbers."""
    return click.option(
        "--rounding",
        type=click.Choice(["closest", "pct1_dropremainder"]),
        help="How percents become record numbers.  [default: closest]",
    )(function)


def slicing_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--slicing: the rule by which SPLIT is resolved."""
    return click.option(
        "--slicing",
        type=click.Choice([rule.value for rule in SlicingRule]),
        help="The slicing rule, instead of the one that was published with the version.",
    )(function)


def builder_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """BUILDER: ``name[/config][:request]`` of an installed builder, or of ``package.module:Class``."""
    return click.argument("builder", metavar="BUILDER", shell_complete=complete_builder)(function)


def experiment_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """NAME: an experiment of the catalog."""
    return click.argument("name", metavar="NAME", shell_complete=complete_experiment)(function)


def alias_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """DATASET@NAME: an alias of the catalog."""
    return click.argument("reference", metavar="DATASET@NAME", shell_complete=complete_alias)(function)


def change_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--dry-run and --uses: what a change would do, and to whom."""
    function = click.option(
        "--uses",
        "use_files",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="References in use, one a line, # comments, or a pin file (.yaml): name those that change.",
    )(function)
    return click.option("--dry-run", is_flag=True, help="Change nothing: show which references would change.")(function)


def version_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """REF: one version, ``name[/config]:x.y.z`` or ``name[/config]@alias``."""
    return click.argument("reference", metavar="REF", shell_complete=complete_version)(function)


def promote_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--promote and --no-promote."""
    return click.option(
        "--promote/--no-promote",
        default=None,
        help="Make it the version that an unversioned look-up gives.  [default: where it is the highest, unless "
        "'registry config protect' keeps the present one]",
    )(function)


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


def show_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--show: how many differing records are described."""
    return click.option(
        "--show",
        type=click.IntRange(min=0),
        default=5,
        show_default=True,
        metavar="N",
        help="Describe up to N differing records of each split.",
    )(function)


DEFAULT_FILE: Final = "dataset.lock.yaml"


def file_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """FILE: a pin file."""
    return click.argument("file", metavar="FILE", type=click.Path(), shell_complete=complete_file)(function)


def names_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """[NAME]...: pins of the file; none means all."""
    return click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_name)(function)


def data_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--data: where the shards lie."""
    return click.option(
        "--data",
        metavar="DIR",
        help="Where the shards lie: a data directory, their own folder, or an unpacked bundle.  [default: 'data' "
        "beside FILE, $REGISTRY_DATA_DIR or your data folder, then where the pin says]",
    )(function)


def fetch_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--fetch and --allow-host: which places that pins name may be asked."""
    for option in (
        click.option(
            "--allow-host",
            "allow_hosts",
            multiple=True,
            metavar="HOST",
            help="Ask this host where a pin names it: example.org, example.org:8443, 10.0.0.0/8, s3://bucket or "
            "file:///folder; may be repeated.  [also: $REGISTRY_ALLOWED_HOSTS]",
        ),
        click.option("--fetch", is_flag=True, help="Ask every place that a pin names, if its address is public."),
    ):
        function = option(function)
    return function
