"""The arguments and options that several commands take, each declared once."""

from __future__ import annotations

import csv
import functools
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, TypeVar, cast

import click

from registry import model
from registry.cli.completion import (
    complete_alias,
    complete_builder,
    complete_experiment,
    complete_name,
    complete_reference,
    complete_split,
    complete_version,
)
from registry.errors import AlreadyStoredError, UsageError
from registry.model import DescriptionArguments, SlicingRule

if TYPE_CHECKING:
    from registry.model import Use
    from registry.order import ReadConfig

_Command = TypeVar("_Command", bound=Callable[..., Any])

PIN_FILE: Final = "dataset.lock.yaml"


class Slicing(TypedDict):
    """How split expressions are resolved; None means the rule that the version was published with."""

    slicing: str | None
    rounding: str | None


class Comparison(TypedDict):
    """How slices are compared: by position, by content, or by a column; and how many pairs are reported."""

    by: str
    show: int


class PinPlaces(NamedTuple):
    """Which places that pins name may be used to fetch files. ``--data-dir`` is in the session."""

    fetch: bool = False
    allow_hosts: tuple[str, ...] = ()


class RecordOptions(NamedTuple):
    """The options of commands that print examples; see ``record_options``."""

    limit: int | None
    columns: list[str] | None
    where: str | None
    names: bool
    pixels: bool
    ids: bool


ANYWHERE: Final = PinPlaces()


def _collect(name: str, make: Callable[..., Any], *options: Callable[..., Any]) -> Callable[[_Command], _Command]:
    """A decorator that adds ``options``, and passes ``make(their values)`` as the argument ``name``."""

    def probe() -> None:
        """Collects the parameters of the options, as click collects them."""

    for option in options:
        option(probe)
    taken = [str(parameter.name) for parameter in probe.__click_params__]  # type: ignore[attr-defined] # set by click

    def decorate(function: _Command) -> _Command:
        @functools.wraps(function)
        def wrapped(*arguments: Any, **values: Any) -> Any:
            result = make(**{one: values.pop(one) for one in taken})
            return function(*arguments, **values, **{name: result})

        for option in reversed(options):  # help lists the last decorator first
            option(wrapped)
        return cast("_Command", wrapped)

    return decorate


reference_argument: Final = click.argument("reference", metavar="REF", shell_complete=complete_reference)
version_argument: Final = click.argument("reference", metavar="REF", shell_complete=complete_version)
dataset_argument: Final = click.argument("dataset", metavar="DATASET", shell_complete=complete_reference)
split_argument: Final = click.argument("split", metavar="SPLIT", shell_complete=complete_split)
splits_argument: Final = click.argument(
    "splits", metavar="SPLIT...", nargs=-1, required=True, shell_complete=complete_split
)
builder_argument: Final = click.argument("builder", metavar="BUILDER", shell_complete=complete_builder)
experiment_argument: Final = click.argument("name", metavar="NAME", shell_complete=complete_experiment)
alias_argument: Final = click.argument("reference", metavar="DATASET@NAME", shell_complete=complete_alias)
file_argument: Final = click.argument("file", metavar="FILE", type=click.Path())
names_argument: Final = click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_name)


def optional_dataset_argument(metavar: str) -> Callable[[_Command], _Command]:
    """Add an optional argument DATASET; without it, the command applies to all datasets."""
    return click.argument("dataset", metavar=metavar, required=False, shell_complete=complete_reference)


def processes_option(purpose: str) -> Callable[[_Command], _Command]:
    """``-j N``, the number of processes; ``purpose`` describes their work."""
    return click.option(
        "-j",
        "--processes",
        type=click.IntRange(min=1),
        metavar="N",
        help=f"{purpose}  [default: by the size of the data]",
    )


dry_run_option: Final = click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
html_option: Final = click.option(
    "--html", metavar="FILE", type=click.Path(dir_okay=False), help="Also write the result to FILE as an HTML page."
)
force_option: Final = click.option("--force", is_flag=True, help="Replace FILE if it exists.")
promote_option: Final = click.option(
    "--promote/--no-promote",
    default=None,
    help="Make it the canonical version, to which references without a version resolve.  [default: yes, if it is at "
    "least as high as the canonical version (and, for build, the builder's VERSION), unless 'registry config protect' "
    "forbids it]",
)
show_option: Final = click.option(
    "--show",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    metavar="N",
    help="Describe up to N differing records of each split.",
)
columns_option: Final = click.option(
    "--columns",
    metavar="NAME,...",
    callback=lambda _ctx, _param, text: read_names(text),
    help="Only these features; the others are not decoded. Put double quotes around a name with a comma: "
    "'\"a, b\",c'.  [default: all]",
)
where_option: Final = click.option(
    "--where",
    metavar="CONDITION",
    help="Only the examples that match, such as \"price > 10 and label in ('cat', 'dog')\".",
)
keep_columns_option: Final = click.option(
    "--keep-columns",
    is_flag=True,
    help="Afterwards, keep the decoded columns in the cache of this machine, as registry cache build does.",
)
with_columns_option: Final = click.option(
    "--with-columns",
    is_flag=True,
    help="Afterwards, attach the decoded columns to the version, next to its shards, for all readers.",
)
record_options: Final = _collect(
    "records",
    RecordOptions,
    click.option(
        "-n",
        "--limit",
        "--take",
        "limit",
        type=click.IntRange(min=0),
        metavar="N",
        help="Stop after N examples.  [default: all]",
    ),
    columns_option,
    where_option,
    click.option("--names", is_flag=True, help="Print class names, dates and times as text instead of numbers."),
    click.option("--pixels", is_flag=True, help="Decode images and sounds, and print their pixels and samples."),
    click.option("--ids", is_flag=True, help="Print the TFDS id of each example instead, without opening a file."),
)
"""Which examples are printed, and how."""


def read_names(text: str | None) -> list[str] | None:
    """Parse a comma-separated list of names. As in CSV, a name with a comma is in double quotes."""
    try:
        return None if text is None else [*filter(None, next(csv.reader([text]), ()))]
    except csv.Error as error:
        raise UsageError(f"{text!r:.100} is not a list of names: {error}", hint="Write NAME,NAME.") from error


def spell_name(name: str) -> str:
    """Spell ``name`` so that ``read_names`` parses it."""
    quoted = name.replace('"', '""')
    return f'"{quoted}"' if {",", '"'} & {*name} else name


def _load_uses(ctx: click.Context, param: click.Parameter, paths: Sequence[Path]) -> list[Use]:
    """Load the references in use from lists and pin files. A pin names its version exactly.

    Raises:
        UsageError: a file cannot be read as text, or a line is not a reference.
    """
    from registry.api import read_uses
    from registry.api.locations import open_pin_file
    from registry.storage import read_file

    uses = []
    for path in paths:
        if path.suffix in (".yaml", ".yml"):
            uses += [
                model.Use(reference=pin.reference, place=f"{path}: {pin.name}") for pin in open_pin_file(path).values()
            ]
            continue
        try:
            uses += read_uses(io.StringIO(read_file(path).decode()), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{path} cannot be read as text: {error}", hint="Write one reference per line, e.g. mnist:3.*."
            ) from error
    return uses


def _uses_option(effect: str) -> Callable[[_Command], _Command]:
    return click.option(
        "--uses",
        multiple=True,
        callback=_load_uses,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help=f"A file of references in use (one per line, # starts a comment) or a pin file (.yaml): {effect}",
    )


uses_option: Final = _uses_option("show those that change.")
keep_uses_option: Final = _uses_option("the versions that it names keep their files; may be repeated.")

slicing_options: Final = _collect(
    "slicing",
    Slicing,
    click.option(
        "--slicing",
        type=click.Choice([rule.value for rule in SlicingRule]),
        help="The slicing rule.  [default: the rule that the version was published with]",
    ),
    click.option(
        "--rounding",
        type=click.Choice(["closest", "pct1_dropremainder"]),
        help="How percentages are rounded to record numbers.  [default: closest]",
    ),
)

comparison_options: Final = _collect(
    "comparison",
    Comparison,
    click.option(
        "--by",
        metavar="content|COLUMN",
        default="position",
        show_default=True,
        help="Read the records, and check that no two of SPLIT share an equal record (content), or an equal value of "
        "COLUMN, such as a patient. A column named content is /content.",
    ),
    click.option(
        "--show",
        type=click.IntRange(min=0),
        default=5,
        show_default=True,
        metavar="N",
        help="With --by: report up to N pairs of equal records for each two SPLITs.",
    ),
)

pin_data_dir_option: Final = click.option(
    "--data-dir",
    "--data",
    "data_dir",
    metavar="DIR",
    help="Folder with the shards of the pins: a data directory, a version folder, or an unpacked bundle.  [default: "
    "'data' next to FILE, $REGISTRY_DATA_DIR or your data folder, then the locations in the pin]",
)
"""The ``--data-dir`` of commands that read pins, instead of the common one (see ``session_command``)."""

places_options: Final = _collect(
    "places",
    PinPlaces,
    click.option("--fetch", is_flag=True, help="Fetch from every place that a pin names, if its address is public."),
    click.option(
        "--allow-host",
        "allow_hosts",
        multiple=True,
        metavar="HOST",
        help="Fetch from this host if a pin names it: example.org, example.org:8443, 10.0.0.0/8, s3://bucket or "
        "file:///folder; may be repeated.  [also: $REGISTRY_ALLOWED_HOSTS]",
    ),
)


description_options: Final = _collect(
    "description",
    DescriptionArguments,
    click.option("--description", metavar="TEXT", help="A description for people."),
    click.option("--license", metavar="SPDX", help="The licence, such as CC-BY-4.0 or 'MIT OR Apache-2.0'."),
    click.option("--citation", metavar="TEXT", help="The citation, usually BibTeX."),
    click.option("--homepage", metavar="URL", help="The home page of the dataset."),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag to add; may be repeated."),
    click.option(
        "--supervised",
        callback=lambda _ctx, _param, text: read_names(text),
        metavar="INPUT,TARGET",
        help="The names of the input and target features, such as image,label.",
    ),
)


def confirm(change: str) -> bool:
    """Ask the user to confirm a change.

    Raises:
        UsageError: there is no terminal to ask on.
    """
    if not sys.stdin.isatty():
        raise UsageError(f"{change}: not confirmed", hint="Add --yes to make the change, or --dry-run to show it.")
    return click.confirm("Write it?", err=True)


def check_output(output: str, *, option: str, force: bool) -> None:
    """Refuse an output file that cannot be written, before the work begins.

    Raises:
        UsageError: its folder does not exist.
        AlreadyStoredError: the file exists, and ``force`` is not set.
    """
    from registry.storage import expand_home

    path = expand_home(output)
    if not path.parent.is_dir():
        raise UsageError(f"the folder {path.parent} does not exist", hint="Create it, or name another file.")
    if path.exists() and not force:
        raise AlreadyStoredError(
            f"{output} already exists",
            hint=f"Name another file with {option}, or replace it with --force.",
            details={"path": output},
        )


def write_file(output: str, data: bytes, *, force: bool, option: str = "-o") -> str:
    """Write the file ``output`` atomically, and return its path. A file with the same content is not touched.

    Raises:
        AlreadyStoredError: the file has other content, and ``force`` is not set.
    """
    from registry.storage import expand_home, open_store

    place = expand_home(output).absolute()
    store = open_store(place.parent)
    with store.exclusive(place.name):
        if place.is_file() and place.stat().st_size == len(data) and place.read_bytes() == data:
            return str(place)
        try:
            with store.create(place.name, overwrite=force) as file:
                file.write(data)
        except AlreadyStoredError as error:
            raise AlreadyStoredError(
                f"{output} already exists with different content",
                hint=f"Name another file with {option}, or replace it with --force.",
                details={"path": output},
            ) from error
    return str(place)


def order_options(*, seed: str = "[default: a new one each time]") -> Callable[[_Command], _Command]:
    """Options for the order of records, passed as ``order``; ``seed`` describes the default seed in the help."""
    return _collect(
        "order",
        _make_read_config,
        click.option(
            "--cycle-length",
            type=click.IntRange(min=1),
            metavar="N",
            help="Interleave N files.  [default: 16, as in TFDS]",
        ),
        click.option(
            "--block-length",
            type=click.IntRange(min=1),
            metavar="N",
            help="Read N records of a file at a time.  [default: 16]",
        ),
        click.option(
            "--shuffle",
            type=click.Choice(["files", "global"]),
            help="Shuffle the files as tf.data does, or all records.  [default: files with --shuffle-seed, else none]",
        ),
        click.option("--shuffle-seed", type=int, metavar="N", help=f"The seed of the shuffle.  {seed}"),
    )


def _make_read_config(
    cycle_length: int | None, block_length: int | None, shuffle: str | None, shuffle_seed: int | None
) -> ReadConfig | None:
    """The ReadConfig of the options, or None without options, so that the default of the version applies."""
    from registry.order import ReadConfig

    options: dict[str, Any] = {}
    if cycle_length is not None:
        options["interleave_cycle_length"] = cycle_length
    if block_length is not None:
        options["interleave_block_length"] = block_length
    if shuffle == "global":
        options |= {"shuffle": "global", "seed": shuffle_seed}
    elif shuffle == "files" or shuffle_seed is not None:
        options |= {"shuffle_files": True, "shuffle_seed": shuffle_seed}
    return ReadConfig(**options) if options else None
