"""``registry earth-engine assemble``: writes patches or predictions to a GeoTIFF, or a table to CSV or JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from registry.builders.earth_engine.cli.options import band_option, layout_options, read_names, read_pairs, read_sides
from registry.cli import Block, Fields, Session, Table, fields_of, progress_bar, session_command
from registry.cli import size as size_text
from registry.errors import UsageError
from registry.splits import counted

if TYPE_CHECKING:  # numpy is loaded when something is assembled
    from registry.builders.earth_engine.assembling.assembly import Assembly

_SUFFIXES = (".tif", ".tiff")


def _read_dtypes(_context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> Any:
    """One dtype for all bands, or a mapping of band to dtype; None if there are none."""
    if len(texts) == 1 and "=" not in texts[0]:
        return texts[0]
    return read_pairs(texts, option) or None


@session_command("assemble", catalog=False)
@click.argument("predictions", metavar="PREDICTIONS...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    help="File to write: .tif for an image; .csv, .geojson, .json or .jsonl for a table.",
)
@click.option("--mixer", metavar="FILE", help="Mixer of the export.  [default: the one next to the files]")
@click.option("--prefix", metavar="P", help="Prefix of the export, if the folder contains several.")
@band_option("write")
@click.option(
    "--name",
    "names",
    metavar="NAME",
    multiple=True,
    callback=read_names,
    help="New name of each band, in order; may be repeated.",
)
@layout_options
@click.option(
    "--dtype",
    "dtypes",
    metavar="[BAND=]T",
    multiple=True,
    callback=_read_dtypes,
    help="Data type of the raster: uint8, int16, float32, ...",
)
@click.option("--nodata", metavar="N", type=float, help="Pixel value that means no data.")
@click.option("--crs", metavar="CRS", help="Replaces the CRS of the mixer.")
@click.option(
    "--size",
    metavar="W,H",
    callback=read_sides,
    help="Size of the raster in pixels, if it was exported with --edge pad.",
)
@click.option(
    "--compress",
    type=click.Choice(["deflate", "lzw", "zstd", "none"]),
    default="deflate",
    show_default=True,
    help="Compression of the GeoTIFF.",
)
@click.option(
    "--predictor",
    type=click.IntRange(1, 3),
    metavar="N",
    help="TIFF predictor: 2 or 3 make files of smooth images smaller.",
)
@click.option(
    "--block", metavar="N", type=int, default=256, show_default=True, help="Side of the GeoTIFF's tiles, in pixels."
)
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@click.option(
    "--dry-run", is_flag=True, help="Read the mixer and the first record, and show the result; write nothing."
)
def command(
    session: Session,
    predictions: tuple[str, ...],
    output: str,
    *,
    prefix: str | None,
    bands: list[str] | None,
    overwrite: bool,
    dry_run: bool,
    **given: Any,
) -> None:
    """Assemble TFRecords into a georeferenced GeoTIFF, or write a table's TFRecord as CSV, GeoJSON or JSON.

    PREDICTIONS is a folder, one file of an export, the common prefix of its files, or several files in order. They
    contain one record for each patch of the export, in its order, in any number of files, gzipped or not, with or
    without the margin. One row of patches is in memory at a time.

    Examples:
        registry earth-engine assemble predictions/ -o classes.tif
        registry earth-engine assemble predictions.tfrecord --mixer exports/area-mixer.json -o classes.tif --nodata 0
        registry earth-engine assemble exports/ --prefix area --kernel 128 --band B4 --band B3 --band B2 -o rgb.tif
        registry earth-engine assemble samples.tfrecord.gz -o samples.csv
    """
    from registry.builders.earth_engine.row_files import is_table_file

    if is_table_file(output):
        _write_table(session, predictions, output, bands, prefix=prefix, overwrite=overwrite, dry_run=dry_run)
        return
    if Path(output).suffix.lower() not in _SUFFIXES:
        raise UsageError(
            f"expected an output file that ends in .tif, .tiff, .csv, .geojson, .json or .jsonl, found {output}",
            hint="Write an image to a GeoTIFF: -o FILE.tif; write a table to -o FILE.csv or -o FILE.geojson.",
            details={"option": "output"},
        )
    from registry.builders.earth_engine.assembling.assemble import assemble
    from registry.builders.earth_engine.assembling.geotiff import check_output, read_crs

    geotiff = {name: given.pop(name) for name in ("compress", "predictor", "block")} | {"overwrite": overwrite}
    check_output(output, **geotiff)
    source = predictions[0] if len(predictions) == 1 else list(predictions)
    assembly = assemble(source, prefix=prefix, bands=bands, **given)
    if bands is None and len(assembly.bands) > 1 and assembly.is_sorted:
        session.out.note("note: the bands are sorted by name; to choose another order, repeat --band NAME")
    if dry_run:
        read_crs(assembly.crs)
        _print(session, assembly, output, None)
        return
    with progress_bar(session.out, "assembling", assembly.mixer.total_patches) as advance:
        path = assembly.write_geotiff(output, advance=advance, **geotiff)
    _print(session, assembly, output, Path(path).stat().st_size)


def _print(session: Session, assembly: Assembly, output: str, num_bytes: int | None) -> None:
    """Print what was written; ``num_bytes`` is None for a dry run."""
    width, height = assembly.size
    data = {
        "output": output,
        "written": num_bytes is not None,
        "num_bytes": num_bytes,
        "width": width,
        "height": height,
        "num_patches": assembly.mixer.total_patches,
        "patches_per_row": assembly.mixer.patches_per_row,
        **fields_of(assembly, "crs", "transform", "bounds", "dtype", "nodata"),
        "bands": [fields_of(band, "name", "dtype") for band in assembly.bands],
    }

    def human(it: dict[str, Any]) -> Iterator[Block]:
        grid = assembly.grid
        yield f"would write {output}" if num_bytes is None else f"wrote {output}, {size_text(num_bytes)}"
        yield Fields(
            {
                "size": f"{width:,} x {height:,} pixels of {it['dtype']}",
                "patches": f"{grid.num_patches:,}, {grid.num_rows:,} rows of {grid.patches_per_row:,}",
                "crs": it["crs"],
                "bounds": [f"{side:.10g}" for side in it["bounds"]],
                "nodata": "" if it["nodata"] is None else f"{it['nodata']:g}",
            }
        )
        yield ""
        bands = [{"number": number, **band} for number, band in enumerate(it["bands"], 1)]
        yield Table(bands, {"BAND": "number", "NAME": "name", "DTYPE": "dtype"})

    session.out.present("earth-engine.assemble", data, human)


def _write_table(
    session: Session,
    files: tuple[str, ...],
    output: str,
    columns: list[str] | None,
    *,
    prefix: str | None,
    overwrite: bool,
    dry_run: bool,
) -> None:
    from registry.builders.earth_engine.row_files import write_rows
    from registry.builders.earth_engine.table import read_table

    if len(files) > 1:
        raise UsageError(
            f"expected one file of a table, found {len(files)}",
            hint="Run the command once for each file, each with its own -o FILE.",
            details={"option": "predictions"},
        )
    table = read_table(_find_table(files[0], prefix), columns=columns)
    if dry_run:
        written = sum(1 for _ in table)
    else:
        with progress_bar(session.out, "writing", None) as advance:
            written = write_rows(table, output, overwrite=overwrite, advance=advance)
    session.out.present(
        "earth-engine.assemble",
        {"output": output, "written": not dry_run, "num_rows": written},
        lambda _: [f"{'would write' if dry_run else 'wrote'} {output}, {counted(written, 'row')}"],
    )


def _find_table(given: str, prefix: str | None) -> str:
    """Return the file of a table; ``given`` is that file or the folder that contains it."""
    from registry.builders.earth_engine.stored.found_files import find_export
    from registry.storage import expand_home

    if prefix is None and not os.path.isdir(expand_home(given)):  # noqa: PTH112 (of any length)
        return given
    export = find_export(given, prefix=prefix)
    if not export.is_table:
        raise UsageError(
            f"expected the export of a table, found the export of an image: {export.prefix!r} in {given}",
            hint="Write its patches to a GeoTIFF: -o FILE.tif.",
            details={"option": "output"},
        )
    return export.store.locate(export.filenames[0])
