"""``registry earth-engine inspect``: what an export holds, and a picture of its patches."""

from __future__ import annotations

import click

from registry.builders.earth_engine.cli.describing import export_json, print_export
from registry.builders.earth_engine.cli.option_values import read_number, read_numbers, read_pairs
from registry.cli.commands import Session, examples, session_command
from registry.cli.progress import record_progress


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
    from registry.builders.earth_engine.pictures.plot import check_plot, plot_export
    from registry.builders.earth_engine.stored.export import open_export

    if plot is not None:
        check_plot(plot, overwrite=overwrite)
    with record_progress(session.out, "counting", None) as advance:
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
        with record_progress(session.out, "drawing", export.num_records) as advance:
            plot_export(export, plot, margin=margins, overwrite=overwrite, advance=advance)
    for sentence in export.warnings:
        session.out.note(f"note: {sentence}")

    def human() -> None:
        print_export(session.out, export)
        if plot is not None:
            session.out.line()
            session.out.line(f"drawn in {plot}")

    session.out.result("earth-engine.inspect", export_json(export) | {"plot": plot}, human)
