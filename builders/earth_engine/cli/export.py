"""``registry earth-engine export``: writes a raster or a table in the format of an Earth Engine export."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli import Block, Column, Fields, Note, Session, Table, fields_of, progress_bar, session_command
from registry.cli import size as size_text
from registry.errors import UsageError
from registry.splits import counted

if TYPE_CHECKING:  # numpy is loaded when something is exported
    from registry.builders.earth_engine.exporting.image import Exported
    from registry.builders.earth_engine.exporting.plan import ExportPlan

_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE | re.ASCII)

_ROUNDED = ("int32", "int64", "uint32", "uint64")
"""Integer types with values that float32 rounds."""
_TABLE: Final = frozenset({"columns", "geometry", "include_index", "text"})
_SPELLED: Final = {
    "bands": "--band",
    "columns": "--column",
    "compress": "--compress",
    "depths": "--depth",
    "include_index": "--index",
}
_RASTER: Final = frozenset(
    {
        "patch", "kernel", "bands", "compress", "max_file_size", "default_value", "depths", "sequence", "collapse",
        "masked_threshold", "encoding", "masked", "mask_band", "edge", "nodata", "crs", "transform",
    }
)  # fmt: skip


@session_command("export", catalog=False)
@click.argument("source", metavar="FILE")
@click.argument("folder", metavar="DIR")
@click.option("--prefix", metavar="P", help="Prefix of the files to write.  [default: the name of FILE]")
@click.option("--patch", metavar="N|W,H", help="Width and height of a patch, in pixels.  [default: 256]")
@click.option("--kernel", metavar="N|W,H", help="Kernel size; each side gets a margin of half of it.  [default: 1]")
@click.option(
    "--band",
    "bands",
    metavar="[NEW=]BAND",
    multiple=True,
    help="Band by name or number, or several as one array band: ndvi=1-12; may be repeated.",
)
@click.option("--compress/--no-compress", default=None, help="Compress with gzip.  [default: compress]")
@click.option(
    "--max-file-size", metavar="SIZE", help="Maximum size of a file before compression, such as 64MiB.  [default: 1GiB]"
)
@click.option(
    "--default-value",
    metavar="N",
    type=float,
    help="Value of pixels that are masked or outside the raster.  [default: 0]",
)
@click.option("--depth", "depths", metavar="BAND=N", multiple=True, help="Depth of an array band; may be repeated.")
@click.option("--sequence", is_flag=True, default=None, help="Write a SequenceExample for each pixel.")
@click.option("--collapse", is_flag=True, default=None, help="Write all bands as one feature.")
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
@click.option("--transform", metavar="A,B,C,D,E,F", help="Replaces the transform of FILE.")
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
    chosen = {option: value for option, value in given.items() if value is not None and value != ()}
    if is_table_file(source):
        _export_table(session, source, folder, prefix, _of(chosen, _TABLE, "rasters"), overwrite, dry_run)
    else:
        _export_raster(session, source, folder, prefix, _of(chosen, _RASTER, "tables"), overwrite, dry_run)


def _of(chosen: dict[str, Any], wanted: frozenset[str], others: str) -> dict[str, Any]:
    for option in chosen:
        if option not in wanted:
            spelled = _SPELLED.get(option, "--" + option.replace("_", "-"))
            raise UsageError(
                f"{spelled} applies only to {others}", hint=f"Remove {spelled}.", details={"option": spelled}
            )
    return chosen


def _export_raster(
    session: Session, source: str, folder: str, prefix: str, chosen: dict[str, Any], overwrite: bool, dry_run: bool
) -> None:
    from registry.builders.earth_engine.exporting.image import export_image, plan_export

    options = raster_arguments(chosen)
    raster = {name: options.pop(name) for name in ("bands", "transform", "crs", "nodata") if name in options}
    plan = plan_export(source, options, **raster)
    if dry_run:
        _print_plan(session, plan, prefix, folder)
        return
    with progress_bar(session.out, "patches", plan.grid.num_patches) as advance:
        exported = export_image(source, folder, prefix, options=options, overwrite=overwrite, advance=advance, **raster)
    _print_exported(session, exported)


def raster_arguments(chosen: dict[str, Any]) -> dict[str, Any]:
    """Convert options of the command line to arguments of ``export_image``."""
    named: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "patch": ("patch_dimensions", _read_sides),
        "kernel": ("kernel_size", _read_sides),
        "bands": ("bands", _read_bands),
        "compress": ("compressed", bool),
        "max_file_size": ("max_file_size", _read_bytes),
        "depths": ("tensor_depths", _read_depths),
        "sequence": ("sequence_data", bool),
        "collapse": ("collapse_bands", bool),
        "transform": ("transform", _read_transform),
    }
    result = {}
    for option, value in chosen.items():
        name, read = named.get(option, (option, _as_given))
        result[name] = read(value)
    return result


def _as_given(value: Any) -> Any:
    return value


def _read_sides(text: str) -> list[int]:
    sides = re.split(r"[,x]", text)
    if not all(side.strip().isdecimal() for side in sides):
        raise UsageError(
            f"invalid size {text!r:.60}", hint="Give a number of pixels, or width and height: 256 or 256,128."
        )
    return [int(side) for side in sides]


def _read_bytes(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"invalid file size {text!r:.60}", hint="Give a number of bytes, or a number with KiB, MiB or GiB: 64MiB."
        )
    return int(float(match[1]) * _UNITS[(match[2] or "").lower()])


def _read_depths(texts: Iterable[str]) -> dict[str, int]:
    depths = {}
    for text in texts:
        band, sign, depth = text.rpartition("=")
        if not sign or not depth.isdecimal():
            raise UsageError(f"invalid depth {text!r:.60}: expected BAND=N", hint="For example: --depth ndvi=24.")
        depths[band] = int(depth)
    return depths


def _read_bands(texts: Iterable[str]) -> list[str | int] | dict[str, Any]:
    """Return names and numbers, or a mapping if a band is renamed or several form an array band."""
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


def _read_transform(text: str) -> list[str]:
    return text.split(",")


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
        yield f"{prefix}: {_patches(grid.num_patches)}"
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
            f"exported {_patches(exported.num_written)} in {counted(len(exported.filenames), 'file')}, "
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


def _described(plan: ExportPlan | Exported) -> dict[str, Any]:
    grid = plan.grid
    return {
        **fields_of(plan, "size", "crs", "transform"),
        **fields_of(grid, "num_patches", "patches_per_row", "patch", "margin", "tile", "covered"),
        "collapsed": plan.collapsed,
        "bands": [{**fields_of(band, "name", "dtype", "kind", "depth"), "array": band.is_array} for band in plan.bands],
    }


def _describe_grid(plan: ExportPlan | Exported) -> Iterator[Block]:
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


def _patches(number: int) -> str:
    return "1 patch" if number == 1 else f"{number:,} patches"


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
