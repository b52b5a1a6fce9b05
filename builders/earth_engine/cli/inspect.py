"""``registry earth-engine inspect``: what an export holds, and a picture of its patches.

``import`` shows exports in the same way and reads the same options, with the functions of this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from registry.cli.commands import Session, examples, session_command
from registry.cli.output import Block, Column, Fields, Table, size
from registry.cli.progress import progress_bar
from registry.errors import UsageError

if TYPE_CHECKING:
    from registry.builders.earth_engine.stored.export import StoredExport
_MOST_FILES = 20


@session_command(
    "inspect",
    catalog=False,
    epilog=examples(
        "registry earth-engine inspect exports/",
        "registry earth-engine inspect exports/ --prefix area --count",
        "registry earth-engine inspect exports/area-mixer.json --plot area.png --band B4 --band B3 --band B2",
    ),
)
@click.argument("folder", metavar="DIR|FILE")
@click.option("--prefix", metavar="P", help="Which export is meant, where the folder holds several.")
@click.option("--count", is_flag=True, help="Read all records: count them, and check that all are alike.")
@click.option("--band", "bands", metavar="NAME", multiple=True, help="A band to show; may be repeated.  [default: all]")
@click.option("--kernel", metavar="W,H", help="The kernelSize of the export, where the margin cannot be told.")
@click.option("--patch", metavar="W,H", help="The patchDimensions of an export that has no mixer.")
@click.option("--depth", "depths", metavar="BAND=N", multiple=True, help="Depth of an array band; may be repeated.")
@click.option("--sequence/--no-sequence", default=None, help="Each record is a pixel, or a patch.  [default: looks]")
@click.option("--plot", metavar="FILE.png", help="Draw the patches where they lie: three bands as colours, or one.")
@click.option("--margins", is_flag=True, help="Draw the margin of each patch, too.")
@click.option("--overwrite", is_flag=True, help="Replace the picture.")
def command(
    session: Session,
    folder: str,
    *,
    prefix: str | None,
    count: bool,
    bands: tuple[str, ...],
    kernel: str | None,
    patch: str | None,
    depths: tuple[str, ...],
    sequence: bool | None,
    plot: str | None,
    margins: bool,
    overwrite: bool,
) -> None:
    """Show what an export holds: its files, bands, patches, and where it lies on the map.

    DIR|FILE is a folder, or one file of an export in it. One record is read; all of them with --count, of a table, and
    for a picture.
    """
    from registry.builders.earth_engine.plot import check_plot, plot_export
    from registry.builders.earth_engine.stored.export import open_export

    if plot is not None:
        check_plot(plot, overwrite=overwrite)
    with progress_bar(session.out, "counting", None) as advance:
        export = open_export(
            folder,
            prefix=prefix,
            bands=list(bands) or None,
            kernel_size=None if kernel is None else read_numbers(kernel, "--kernel"),
            patch_dimensions=None if patch is None else read_numbers(patch, "--patch"),
            tensor_depths={n: read_number(value, "--depth") for n, value in read_pairs(depths, "--depth").items()},
            sequence=sequence,
            count=count or plot is not None,
            advance=advance,
        )
    if plot is not None:
        with progress_bar(session.out, "drawing", export.num_records) as advance:
            plot_export(export, plot, margin=margins, overwrite=overwrite, advance=advance)
    for sentence in export.warnings:
        session.out.note(f"note: {sentence}")

    def human(_: object) -> Iterator[Block]:
        yield from describe_export(export)
        if plot is not None:
            yield ""
            yield f"drawn in {plot}"

    session.out.present("earth-engine.inspect", export_json(export) | {"plot": plot}, human)


def export_json(export: StoredExport) -> dict[str, Any]:
    """What an export holds, as JSON."""
    found, tile, mixer, grid = export.found, export.tile, export.mixer, export.grid
    counts = export.counts or (None,) * len(found.filenames)
    return {
        "folder": found.store.url,
        "prefix": found.prefix,
        "form": form_of(export),
        "num_records": export.num_records,
        "files": [
            {"name": name, "num_records": count, "num_bytes": found.store.size(name)}
            for name, count in zip(found.filenames, counts, strict=True)
        ],
        "bands": [band.to_value() | {"series": band.is_series} for band in export.bands],
        "columns": [column.to_value() for column in export.columns],
        "collapsed": None if export.collapsed is None else list(export.collapsed),
        "patch": list(tile.patch) if tile is not None else list(mixer.patch) if mixer is not None else None,
        "tile": None if tile is None else list(tile.size),
        "margin": None if tile is None else list(tile.margin),
        "kernel_size": None if export.kernel is None else list(export.kernel),
        "mixer": found.mixer_name,
        "crs": None if mixer is None else mixer.crs,
        "transform": None if mixer is None else list(mixer.transform),
        "num_patches": None if grid is None else grid.num_patches,
        "patches_per_row": None if grid is None else grid.patches_per_row,
        "num_rows": None if grid is None else grid.num_rows,
        "size": None if grid is None else list(grid.covered),
        "bounds": None if grid is None or mixer is None else list(mixer.transform.bounds(0, 0, *grid.covered)),
        "warnings": list(export.warnings),
    }


def form_of(export: StoredExport) -> str:
    """What a record of an export is: a row of a table, a pixel with its series, or a patch of an image."""
    if export.is_table:
        return "table"
    return "series" if export.is_sequence else "image"


def describe_export(export: StoredExport, *, title: str = "") -> Iterator[Block]:
    """What an export holds, as fields and tables."""
    data = export_json(export)
    records = data["num_records"]
    rows = [
        ("split", title),
        ("prefix", data["prefix"]),
        ("form", {"table": "a table", "series": "pixels with series", "image": "patches of an image"}[data["form"]]),
        ("records", "" if records is None else f"{records:,}"),
    ]
    if data["num_patches"] is not None:
        covered = data["size"]
        rows += [
            ("patches", f"{data['num_patches']:,}, {data['num_rows']:,} rows of {data['patches_per_row']:,}"),
            ("raster", f"{covered[0]:,} x {covered[1]:,} pixels"),
        ]
    if data["patch"] is not None:
        rows.append(("patch", f"{data['patch'][0]:,} x {data['patch'][1]:,} pixels"))
    if data["tile"] is not None and any(data["margin"]):
        kernel = f", kernelSize {data['kernel_size'][0]} x {data['kernel_size'][1]}"
        margin = f"a margin of {data['margin'][0]} x {data['margin'][1]}"
        rows.append(("tile", f"{data['tile'][0]:,} x {data['tile'][1]:,} pixels: {margin}{kernel}"))
    if data["crs"] is not None:
        a, b, _, d, e, _ = data["transform"]
        turned = f", sheared by {b:.10g} and {d:.10g}" if b or d else ""
        rows += [
            ("crs", data["crs"]),
            ("pixel", f"{a:.10g} x {e:.10g}{turned}"),
            ("bounds", ", ".join(f"{side:.10g}" for side in data["bounds"])),
        ]
    if data["collapsed"]:
        rows.append(("channels", ", ".join(data["collapsed"])))
    yield Fields(dict(rows))
    yield ""
    if data["columns"]:
        columns: dict[str, Column] = {"COLUMN": "name", "KIND": "kind", "VALUES": lambda one: _some(one["size"])}
        yield Table(data["columns"], columns | {"OPTIONAL": lambda one: "yes" if one["optional"] else ""})
    else:
        columns = {"BAND": "name", "KIND": "kind", "DTYPE": "dtype", "DEPTH": lambda one: _some(one["depth"])}
        yield Table(data["bands"], columns)
    yield ""
    counts: dict[str, Column] = {} if records is None else {"RECORDS": "num_records"}
    files: dict[str, Column] = {"FILE": "name", **counts, "BYTES": lambda one: size(one["num_bytes"])}
    yield Table(data["files"], files, limit=_MOST_FILES)


def _some(number: int | None) -> str:
    """A number; None is one that differs."""
    return "differs" if number is None else str(number)


def read_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """``NAME=VALUE`` of an option that may be repeated; the value may have equal signs.

    >>> read_pairs(["train=a", "eval=b=c"], "--prefix")
    {'train': 'a', 'eval': 'b=c'}

    Raises:
        UsageError: one has another form, or a name twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name and value):
            raise _refuse(option, text, "it is written NAME=VALUE")
        if name in found:
            raise _refuse(option, text, f"{name} is there twice")
        found[name] = value
    return found


def read_numbers(text: str, option: str) -> list[int]:
    """``N`` or ``W,H``, also written ``WxH``.

    >>> read_numbers("128", "--kernel"), read_numbers("3x2", "--kernel")
    ([128], [3, 2])

    Raises:
        UsageError: something else.
    """
    parts = [part.strip() for part in text.replace("x", ",").split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise _refuse(option, text, "it is a whole number, or several: 128,128")
    return [int(part) for part in parts]


def read_number(text: str, option: str) -> int:
    """``N``. Raises UsageError where it is something else."""
    numbers = read_numbers(text, option)
    if len(numbers) != 1:
        raise _refuse(option, text, "it is one whole number")
    return numbers[0]


def _refuse(option: str, text: str, why: str) -> UsageError:
    return UsageError(f"{option} {text!r:.80} cannot be read: {why}", details={"option": option})
