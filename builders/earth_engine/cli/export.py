"""``registry earth-engine export``: writes a raster or a table in the format of an Earth Engine export."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from registry.builders.earth_engine.cli.options import depth_option, read_sides
from registry.cli import Block, Column, Fields, Note, Session, Table, fields_of, progress_bar, session_command
from registry.cli import size as size_text
from registry.errors import UsageError
from registry.splits import counted

if TYPE_CHECKING:  # numpy is loaded when something is exported
    from registry.builders.earth_engine.exporting.image import Exported
    from registry.builders.earth_engine.exporting.plan import ExportPlan

_ROUNDED = ("int32", "int64", "uint32", "uint64")
"""Integer types with values that float32 rounds."""
_TABLE: Final = frozenset({"columns", "geometry", "include_index", "text"})
"""The arguments that apply only to tables. All others apply only to rasters."""


def _read_bands(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> list[str | int] | dict[str, Any]:
    """Names and numbers, or a mapping if a band is renamed or several form an array band."""
    pairs = [text.rpartition("=") if "=" in text else ("", "", text) for text in texts]
    if not any(new for new, _, _ in pairs):
        return [_number_or_name(which) for _, _, which in pairs]
    result: dict[str, Any] = {}
    for new, _, text in pairs:
        which = _numbers_of(text) if new else _number_or_name(text)
        if not new and isinstance(which, int):
            raise UsageError(
                f"band {which} needs a name, because other bands have one",
                hint=f"For example: --band b{which}={which}.",
            )
        if (new or text) in result:
            raise UsageError(
                f"two bands are called {new or text!r}", hint="Give each band a different name: --band NEW=BAND."
            )
        result[new or text] = which
    return result


def _numbers_of(text: str) -> Any:
    """One band, or the elements of an array band: 1-12, or 3,2,1."""
    span = re.fullmatch(r"(\d{1,6})-(\d{1,6})", text, re.ASCII)
    if span is not None and int(span[1]) <= int(span[2]):
        return list(range(int(span[1]), int(span[2]) + 1))
    if "," in text:
        return [_number_or_name(word) for word in text.split(",")]
    return _number_or_name(text)


def _number_or_name(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _read_transform(_context: click.Context, _option: click.Parameter, text: str | None) -> list[str] | None:
    return None if text is None else text.split(",")


def _read_bytes(_context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    from registry.storage import parse_bytes

    hint = "Write the number alone or with a unit, e.g. --max-file-size 500MB or 64MiB."
    return None if text is None else parse_bytes(text, option.opts[0], hint=hint)


@session_command("export", catalog=False)
@click.argument("source", metavar="FILE")
@click.argument("folder", metavar="DIR")
@click.option("--prefix", metavar="P", help="Prefix of the files to write.  [default: the name of FILE]")
@click.option(
    "--patch",
    "patch_dimensions",
    metavar="N|W,H",
    callback=read_sides,
    help="Width and height of a patch, in pixels.  [default: 256]",
)
@click.option(
    "--kernel",
    "kernel_size",
    metavar="N|W,H",
    callback=read_sides,
    help="Kernel size; each side gets a margin of half of it.  [default: 1]",
)
@click.option(
    "--band",
    "bands",
    metavar="[NEW=]BAND",
    multiple=True,
    callback=_read_bands,
    help="Band by name or number, or several as one array band: ndvi=1-12; may be repeated.",
)
@click.option("--compress/--no-compress", "compressed", default=None, help="Compress with gzip.  [default: compress]")
@click.option(
    "--max-file-size",
    metavar="SIZE",
    callback=_read_bytes,
    help="Maximum size of a file before compression, such as 64MiB.  [default: 1GiB]",
)
@click.option(
    "--default-value",
    metavar="N",
    type=float,
    help="Value of pixels that are masked or outside the raster.  [default: 0]",
)
@depth_option
@click.option("--sequence", "sequence_data", is_flag=True, default=None, help="Write a SequenceExample for each pixel.")
@click.option("--collapse", "collapse_bands", is_flag=True, default=None, help="Write all bands as one feature.")
@click.option(
    "--masked-threshold", metavar="X", type=float, help="Drop patches with a larger masked share.  [default: 1]"
)
@click.option(
    "--encoding",
    type=click.Choice(["float", "native"]),
    help="Store all numbers as float, or by type.  [default: float]",
)
@click.option(
    "--masked", type=click.Choice(["band", "pixel"]), help="A mask hides its band, or the pixel.  [default: band]"
)
@click.option("--mask-band", metavar="NAME", help="Add a band with 1 for pixels without a mask, else 0.")
@click.option("--edge", type=click.Choice(["drop", "pad"]), help="Drop or pad incomplete patches.  [default: drop]")
@click.option("--nodata", metavar="N", type=float, help="Another pixel value that means no data.")
@click.option("--crs", metavar="CRS", help="Replaces the CRS of FILE.")
@click.option("--transform", metavar="A,B,C,D,E,F", callback=_read_transform, help="Replaces the transform of FILE.")
@click.option("--column", "columns", metavar="NAME", multiple=True, help="Table: property to write; may be repeated.")
@click.option("--geometry", type=click.Choice(["lonlat", "geojson"]), help="Table: write the geometry in this form.")
@click.option("--index", "include_index", is_flag=True, default=None, help="Table: write system:index.")
@click.option("--text", metavar="COLUMN", multiple=True, help="CSV: read this column as text.")
@click.option("--overwrite", is_flag=True, help="Replace an export with this prefix once the new one is complete.")
@click.option("--dry-run", is_flag=True, help="Show what would be written; write nothing.")
def command(session: Session, source: str, folder: str, *, prefix: str | None, dry_run: bool, **given: Any) -> None:
    """Write the raster or table FILE to DIR in the format of an Earth Engine export.

    A raster becomes PREFIX-00000.tfrecord.gz and so on, with one record for each patch, and PREFIX-mixer.json. A table
    (.csv, .geojson, .json, .jsonl) becomes PREFIX.tfrecord.gz, with one record for each row.

    Examples:
        registry earth-engine export scene.tif exports/ --patch 256 --kernel 128
        registry earth-engine export scene.tif exports/ --prefix area --band red=3 --band nir=4 --encoding native
        registry earth-engine export scene.tif exports/ --patch 64,32 --masked-threshold 0.5 --mask-band valid
        registry earth-engine export months.tif exports/ --patch 64 --band ndvi=1-12 --depth ndvi=12 --sequence
        registry earth-engine export scene.tif exports/ --dry-run
        registry earth-engine export samples.geojson exports/ --geometry lonlat
    """
    from registry.builders.earth_engine.row_files import is_table_file

    name = Path(source.rstrip("/")).name
    prefix = prefix or (name.rpartition(".")[0] or name)
    overwrite = given.pop("overwrite")
    chosen = {name: value for name, value in given.items() if value is not None and value not in ((), [], {})}
    is_table = is_table_file(source)
    for option in click.get_current_context().command.params:
        if option.name in chosen and (option.name in _TABLE) != is_table:
            others = "rasters" if is_table else "tables"
            raise UsageError(
                f"{option.opts[0]} applies only to {others}",
                hint=f"Remove {option.opts[0]}.",
                details={"option": option.opts[0]},
            )
    (_export_table if is_table else _export_raster)(session, source, folder, prefix, chosen, overwrite, dry_run)


def _export_raster(
    session: Session, source: str, folder: str, prefix: str, options: dict[str, Any], overwrite: bool, dry_run: bool
) -> None:
    from registry.builders.earth_engine.exporting.image import export_image, plan_export

    raster = {name: options.pop(name) for name in ("bands", "transform", "crs", "nodata") if name in options}
    plan = plan_export(source, options, **raster)
    if dry_run:
        _print_plan(session, plan, prefix, folder)
        return
    with progress_bar(session.out, "patches", plan.grid.num_patches) as advance:
        exported = export_image(source, folder, prefix, options=options, overwrite=overwrite, advance=advance, **raster)
    _print_exported(session, exported)


def _print_plan(session: Session, plan: ExportPlan, prefix: str, folder: str) -> None:
    grid, size = plan.grid, plan.record_bytes
    data = {
        "prefix": prefix,
        "folder": folder,
        **_described(plan),
        "num_records": plan.num_records,
        "record_bytes": None if size is None else list(size),
        "num_files": None if plan.num_files is None else list(plan.num_files),
        "num_bytes": None if size is None else [plan.num_records * (bound + 16) for bound in size],
        "mixer": plan.mixer is not None,
    }

    def human(_: object) -> Iterator[Block]:
        yield f"{prefix}: {counted(grid.num_patches, 'patch')}"
        yield ""
        yield from _describe_grid(plan)
        if size is not None and plan.num_files is not None:
            low, high = (size_text(plan.num_records * (bound + 16)) for bound in size)
            fewest, most = plan.num_files
            yield ""
            yield Fields(
                {
                    "records": f"{plan.num_records:,} of {_span(size[0], size[1])} bytes",
                    "files": f"{_span(fewest, most)}, {low if low == high else f'{low} to {high}'} uncompressed",
                }
            )
        yield ""
        yield "nothing was written"

    session.out.present("earth-engine.export.plan", data, human)


def _print_exported(session: Session, exported: Exported) -> None:
    data = {
        **fields_of(exported, "prefix", "folder"),
        **_described(exported),
        **fields_of(exported, "num_written", "num_records", "num_bytes", "filenames", "records"),
        "mixer": exported.mixer_filename,
        "dropped": exported.dropped,
    }

    def human(_: object) -> Iterator[Block]:
        yield (
            f"exported {counted(exported.num_written, 'patch')} in {counted(len(exported.filenames), 'file')}, "
            f"{size_text(exported.num_bytes)}: {exported.folder}"
        )
        if exported.dropped:
            yield f"dropped {len(exported.dropped):,} of {exported.num_patches:,} patches: too many masked pixels"
        yield ""
        yield from _describe_grid(exported)
        yield ""
        for filename, count in zip(exported.filenames, exported.records, strict=True):
            yield f"{filename}  {counted(count, 'record')}"
        yield exported.mixer_filename or "no mixer, because --masked-threshold may drop patches"

    session.out.present("earth-engine.export", data, human)


def _described(plan: ExportPlan) -> dict[str, Any]:
    grid = plan.grid
    return {
        **fields_of(plan, "size", "crs", "transform"),
        **fields_of(grid, "num_patches", "patches_per_row", "patch", "margin", "tile", "covered"),
        "collapsed": plan.collapsed,
        "bands": [{**fields_of(band, "name", "dtype", "kind", "depth"), "array": band.is_array} for band in plan.bands],
    }


def _describe_grid(plan: ExportPlan) -> Iterator[Block]:
    grid = plan.grid
    columns: dict[str, Column] = {
        "BAND": lambda band: band.name,
        "TYPE": lambda band: band.dtype,
        "STORED AS": lambda band: plan.collapsed or band.kind,
        "DEPTH": lambda band: "any" if band.depth is None else band.depth,
    }
    yield Table(plan.bands, columns)
    yield ""
    left = plan.size.width - grid.covered.width, plan.size.height - grid.covered.height
    sides = (counted(left[0], "column") + " on the right", counted(left[1], "row") + " at the bottom")
    yield Fields(
        {
            "raster": f"{_by(plan.size)}, {plan.crs:.60}",
            "patches": f"{grid.patches_per_row:,} x {grid.num_rows:,} of {_by(grid.patch)}",
            "stored": f"{_by(grid.tile)} with a margin of {_by(grid.margin)}" if max(grid.margin) else "",
            "left out": [text for text, number in zip(sides, left, strict=True) if number > 0],
        }
    )
    rounded = [
        band.name for band in plan.bands if (plan.collapsed or band.kind) == "float" and str(band.dtype) in _ROUNDED
    ]
    if rounded:
        yield Note(
            f"note: {', '.join(rounded)}: integers beyond 16,777,216 are rounded, because they are stored as float32; "
            "--encoding native keeps them"
        )


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]:,} x {size[1]:,}"


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _export_table(
    session: Session, source: str, folder: str, prefix: str, chosen: dict[str, Any], overwrite: bool, dry_run: bool
) -> None:
    from registry.builders.earth_engine.row_files import read_rows
    from registry.builders.earth_engine.table import write_table

    rows = read_rows(source, text=chosen.pop("text", ()))
    if dry_run:
        count = sum(1 for _ in rows)
        data: dict[str, Any] = {"prefix": prefix, "folder": folder, "num_rows": count}
        told = f"{prefix}: {counted(count, 'row')}; nothing was written"
        session.out.present("earth-engine.export.plan", data, lambda _: [told])
        return
    with progress_bar(session.out, "rows", None) as advance:
        exported = write_table(rows, folder, prefix, overwrite=overwrite, advance=advance, **chosen)
    data = {
        "prefix": prefix,
        "folder": folder,
        "filenames": [exported.filename],
        **fields_of(exported, "num_rows", "num_bytes", "columns"),
    }

    def human(_: object) -> Iterator[str]:
        yield f"exported {counted(exported.num_rows, 'row')}, {size_text(exported.num_bytes)}: {folder}"
        yield f"{exported.filename}  {', '.join(exported.columns)}"

    session.out.present("earth-engine.export", data, human)
