"""How is an export shown? As tables for people, and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from registry.cli.output import Output, size

if TYPE_CHECKING:  # numpy is loaded when an export is looked at
    from registry.builders.earth_engine.stored.export import StoredExport

_MOST_FILES = 20


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


def print_export(out: Output, export: StoredExport, *, title: str = "") -> None:
    """Say what an export holds."""
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
    out.fields(rows)
    out.line()
    if data["columns"]:
        out.table(
            ("COLUMN", "KIND", "VALUES", "OPTIONAL"),
            [(c["name"], c["kind"], _some(c["size"]), "yes" if c["optional"] else "") for c in data["columns"]],
        )
    else:
        out.table(
            ("BAND", "KIND", "DTYPE", "DEPTH"),
            [(b["name"], b["kind"], b["dtype"], _some(b["depth"])) for b in data["bands"]],
        )
    out.line()
    files = data["files"]
    shown = [(one["name"], *_count(one["num_records"]), size(one["num_bytes"])) for one in files[:_MOST_FILES]]
    out.table(("FILE", *(("RECORDS",) if records is not None else ()), "BYTES"), shown)
    if len(files) > _MOST_FILES:
        out.line(f"and {len(files) - _MOST_FILES:,} more files")


def _count(number: int | None) -> tuple[int, ...]:
    return () if number is None else (number,)


def _some(number: int | None) -> str:
    """A number; None is one that differs."""
    return "differs" if number is None else str(number)
