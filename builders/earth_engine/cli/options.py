"""The options that several commands share. Each is parsed to the argument of the Python API that it names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from registry.errors import UsageError

_Command = TypeVar("_Command", bound=Callable[..., Any])


def layout_options(command: _Command) -> _Command:
    """Add the options that describe the records of an export: ``--kernel``, ``--depth`` and ``--sequence``."""
    for option in (_SEQUENCE, depth_option, _KERNEL):
        command = option(command)
    return command


def band_option(doing: str) -> Callable[[_Command], _Command]:
    """``--band``, of which the command does something: ``show``."""
    text = f"Band to {doing}; may be repeated.  [default: all]"
    return click.option("--band", "bands", metavar="NAME", multiple=True, callback=read_names, help=text)


def read_names(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> list[str] | None:
    """The values of an option that may be repeated; None if there are none."""
    return list(texts) or None


def read_sides(_context: click.Context, option: click.Parameter, text: str | None) -> list[int] | None:
    """The numbers of an option of the form ``N`` or ``W,H``; None if it is not given."""
    return None if text is None else _numbers(text, option.opts[0])


def read_depths(_context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, int]:
    """The depths of an option ``BAND=N`` that may be repeated."""
    depths = {}
    for name, text in read_pairs(texts, option).items():
        depths[name], *more = _numbers(text, option.opts[0])
        if more:
            raise refuse(option.opts[0], text, "expected one whole number")
    return depths


def read_shapes(_context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, list[int]]:
    """The shapes of an option ``COLUMN=H,W`` that may be repeated."""
    return {name: _numbers(text, option.opts[0]) for name, text in read_pairs(texts, option).items()}


def read_pairs(
    texts: Iterable[str],
    option: click.Parameter,
    *,
    split: Callable[[str, str], tuple[str, str, str]] = str.rpartition,
) -> dict[str, str]:
    """The ``NAME=VALUE`` texts of an option that may be repeated. A name may contain equal signs, as bands may.

    >>> read_pairs(["ndvi=12", "a=b=3"], click.Option(["--depth"], metavar="BAND=N"))
    {'ndvi': '12', 'a=b': '3'}

    Raises:
        UsageError: a text is malformed, or a name occurs twice.
    """
    result: dict[str, str] = {}
    for text in texts:
        name, equals, value = split(text, "=")
        if not (equals and name and value):
            raise refuse(option.opts[0], text, f"expected {option.metavar}")
        if name in result:
            raise refuse(option.opts[0], text, f"{name} occurs twice")
        result[name] = value
    return result


def refuse(option: str, text: str, why: str) -> UsageError:
    """The error for a text that an option cannot have."""
    return UsageError(f"invalid {option} {text!r:.80}: {why}", details={"option": option})


def _numbers(text: str, option: str) -> list[int]:
    """Parse ``N``, ``W,H`` or ``WxH``.

    >>> _numbers("128", "--kernel"), _numbers("3x2", "--kernel")
    ([128], [3, 2])
    """
    parts = [part.strip() for part in text.replace("x", ",").split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise refuse(option, text, "expected a whole number or several, such as 128,128")
    return [int(part) for part in parts]


depth_option = click.option(
    "--depth",
    "tensor_depths",
    metavar="BAND=N",
    multiple=True,
    callback=read_depths,
    help="Depth of an array band; may be repeated.",
)
patch_option = click.option(
    "--patch",
    "patch_dimensions",
    metavar="W,H",
    callback=read_sides,
    help="patchDimensions of an export without a mixer.",
)
_KERNEL = click.option(
    "--kernel",
    "kernel_size",
    metavar="W,H",
    callback=read_sides,
    help="kernelSize of the export, if the margin cannot be inferred.",
)
_SEQUENCE = click.option(
    "--sequence/--no-sequence", default=None, help="Each record is a pixel (or a patch).  [default: inferred]"
)
