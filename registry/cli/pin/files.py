"""What the commands about pins share: the file, the pins that are named, where the shards lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from registry.errors import RegistryError

if TYPE_CHECKING:  # numpy and pydantic are loaded when a pin file is read
    from registry.pins import Pin, PinFile

DEFAULT_FILE: Final = "dataset.lock.yaml"


def file_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """FILE: a pin file."""
    return click.argument("file", metavar="FILE", type=click.Path(), shell_complete=complete_file)(function)


def names_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """[NAME]...: pins of the file; none means all."""
    return click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=_complete_name)(function)


def data_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--data: where the shards lie."""
    return click.option(
        "--data",
        metavar="DIR",
        help="Where the shards lie: a data directory, their own folder, or an unpacked bundle.  [default: 'data' "
        "beside FILE, $REGISTRY_DATA_DIR or your data folder, then where the pin says]",
    )(function)


def open_pins(file: str, data: str | None = None) -> PinFile:
    """The pin file at ``file``, with its shards in ``data``."""
    from registry.api import load_pin

    return load_pin(file, data_dir=data)


def choose_pins(pins: PinFile, names: Sequence[str]) -> list[Pin]:
    """The pins of these names, each once, or all."""
    return list(dict.fromkeys(pins[name] for name in names)) if names else list(pins.values())


def pin_json(pin: Pin) -> dict[str, Any]:
    """What identifies a pin, for programs."""
    return {
        "name": pin.name,
        "dataset": pin.reference.dataset,
        "version": str(pin.version.version),
        "split": pin.split,
        "slicing": pin.entry.slicing,
        "num_examples": pin.num_examples,
        "records": {"ordered": pin.entry.records.ordered, "unordered": pin.entry.records.unordered},
    }


def count_bytes(pins: Sequence[Pin]) -> int:
    """Bytes of the files of these pins."""
    return sum(file.num_bytes for pin in pins for file in pin.entry.files)


def complete_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files: the shell knows best."""
    return [CompletionItem(incomplete, type="file")]


def _complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The pins of the file named before."""
    try:
        names = list(open_pins(str(ctx.params["file"])))
    except (RegistryError, KeyError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
