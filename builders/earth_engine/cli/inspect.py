"""``registry earth-engine inspect``: shows the content of an export.

``cli/import_.py`` uses this module to describe exports and to parse the same options.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from registry.builders.earth_engine.cli.options import band_option, layout_options, patch_option
from registry.cli import Block, Column, Fields, Session, Table, progress_bar, session_command, size

if TYPE_CHECKING:
    from registry.builders.earth_engine.stored.export import StoredExport
_MOST_FILES = 20


@session_command("inspect", catalog=False)
@click.argument("folder", metavar="DIR|FILE")
@click.option("--prefix", metavar="P", help="Prefix of the export, if the folder contains several.")
@click.option("--count", is_flag=True, help="Read all records: count them and check that their features agree.")
@band_option("show")
@patch_option
@layout_options
def command(
    session: Session,
    folder: str,
    *,
    prefix: str | None,
    count: bool,
    **layout: Any,
) -> None:
    """Show the files, bands, patches and location of an export.

    DIR|FILE is a folder, or one file of an export in it. One record is read; all records are read for a table, and
    with --count. To see the picture of an image: registry earth-engine assemble

    Examples:
        registry earth-engine inspect exports/
        registry earth-engine inspect exports/ --prefix area --count
        registry earth-engine inspect exports/area-mixer.json --band B4 --band B3 --band B2
    """
    from registry.builders.earth_engine.stored.export import open_export

    with progress_bar(session.out, "counting", None) as advance:
        export = open_export(folder, prefix=prefix, count=count, advance=advance, **layout)
    session.out.notes(export.warnings)
    session.out.present("earth-engine.inspect", export_json(export), lambda _: describe_export(export))


def export_json(export: StoredExport) -> dict[str, Any]:
    """Return the content of an export as JSON values."""
    result, tile, mixer, grid = export.found, export.tile, export.mixer, export.grid
    counts = export.counts or (None,) * len(result.filenames)
    return {
        "folder": result.store.url,
        "prefix": result.prefix,
        "form": form_of(export),
        "num_records": export.num_records,
        "files": [
            {"name": name, "num_records": count, "num_bytes": result.store.size(name)}
            for name, count in zip(result.filenames, counts, strict=True)
        ],
        "bands": [band.to_value() | {"series": band.is_series} for band in export.bands],
        "columns": [column.to_value() for column in export.columns],
        "collapsed": None if export.collapsed is None else list(export.collapsed),
        "patch": list(tile.patch) if tile is not None else list(mixer.patch) if mixer is not None else None,
        "tile": None if tile is None else list(tile.size),
        "margin": None if tile is None else list(tile.margin),
        "kernel_size": None if export.kernel is None else list(export.kernel),
        "mixer": result.mixer_name,
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
    """Return what one record is: ``table`` (a row), ``series`` (a pixel) or ``image`` (a patch)."""
    if export.is_table:
        return "table"
    return "series" if export.is_sequence else "image"


def describe_export(export: StoredExport, *, title: str = "") -> Iterator[Block]:
    """Yield the content of an export as fields and tables."""
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
        columns: dict[str, Column] = {"COLUMN": "name", "KIND": "kind", "VALUES": lambda row: _some(row["size"])}
        yield Table(data["columns"], columns | {"OPTIONAL": lambda row: "yes" if row["optional"] else ""})
    else:
        columns = {"BAND": "name", "KIND": "kind", "DTYPE": "dtype", "DEPTH": lambda row: _some(row["depth"])}
        yield Table(data["bands"], columns)
    yield ""
    counts: dict[str, Column] = {} if records is None else {"RECORDS": "num_records"}
    files: dict[str, Column] = {"FILE": "name", **counts, "BYTES": lambda row: size(row["num_bytes"])}
    yield Table(data["files"], files, limit=_MOST_FILES)


def _some(number: int | None) -> str:
    """Format a number; None means that records differ."""
    return "differs" if number is None else str(number)
