"""What does an export look like? A picture of its patches where they lie in the grid: three bands as colours, or one.

The picture has at most 1600 pixels a side, and 64 patches: of larger grids every second one, or every third, is drawn.
Values are stretched between the 2nd and the 98th hundredth, band by band; what is no number is grey.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from registry.builders.earth_engine.kinds import from_flat
from registry.builders.earth_engine.pictures.plot_layout import BOTTOM, LEFT, MOST_PIXELS, TOP, PlotLayout
from registry.builders.earth_engine.places.tiles import Tile
from registry.builders.earth_engine.stored.export import StoredExport
from registry.errors import AlreadyStoredError, MissingExtraError, UsageError
from registry.storage import open_store
from registry.tfrecord import read_blocks
from registry.wire.codec import decode_features

if TYPE_CHECKING:
    from PIL.Image import Image

_LABEL_WIDTH: Final = 30
_LABEL_HEIGHT: Final = 14
_LEAST_WIDTH: Final = 360
_GREY: Final = (160, 160, 160)
_LINE: Final = (255, 255, 255)
_PAPER: Final = (255, 255, 255)
_CORE: Final = (255, 220, 0)
_INK: Final = (40, 40, 40)
_COLOURS: Final = (("red", "green", "blue"), ("r", "g", "b"), ("b4", "b3", "b2"))
"""Bands that are shown as colours where an export has them, whatever else it has."""

Pixels = npt.NDArray[np.float32]


def check_plot(output: str, *, overwrite: bool = False) -> None:
    """Refuse a picture that cannot be written, before an hour of reading.

    Raises:
        UsageError: no ``.png``.
        AlreadyStoredError: it is there, and ``overwrite`` is False.
        MissingExtraError: Pillow is not installed.
    """
    _import_pillow()
    store, name = _place(output)
    if not name.lower().endswith(".png"):
        raise UsageError(
            f"{output} has no suffix that tells what to draw", hint="Name a .png.", details={"option": "plot"}
        )
    if not overwrite and store.exists(name):
        raise AlreadyStoredError(
            f"{store.locate(name)} is there already",
            hint="Name another file, or replace it: overwrite=True; --overwrite.",
            details={"path": store.locate(name)},
        )


def plot_export(
    export: StoredExport,
    output: str | os.PathLike[str],
    *,
    margin: bool = False,
    overwrite: bool = False,
    advance: Callable[[int], None] | None = None,
) -> None:
    """Draw the patches of an export into a PNG file.

    Args:
        export: as ``open_export(..., count=True)`` gives it. Of its bands those that are named red, green and blue are
            drawn, or three that are all there are, or the first.
        output: the file.
        margin: draw the margin of each patch, too.
        overwrite: replace the file.
        advance: called with the number of records read since the last call.

    Raises:
        UsageError: a table, or pixels with series; or no ``.png``.
        AlreadyStoredError, MissingExtraError: as ``check_plot``.
        As reading records.
    """
    check_plot(os.fspath(output), overwrite=overwrite)
    image = draw_export(export, margin=margin, advance=advance)
    content = io.BytesIO()
    image.save(content, "PNG")
    store, name = _place(os.fspath(output))
    with store.create(name, overwrite=overwrite) as file:
        file.write(content.getvalue())


def draw_export(export: StoredExport, *, margin: bool = False, advance: Callable[[int], None] | None = None) -> Image:
    """The picture as a Pillow image. Arguments and errors as ``plot_export``."""
    _import_pillow()
    tile = export.tile
    if tile is None:
        what = "a table" if export.is_table else "pixels with series"
        raise UsageError(f"this export is {what}, and no patches that could be drawn", details={"option": "plot"})
    total = export.num_records or 1
    columns = math.isqrt(total - 1) + 1 if export.mixer is None else export.mixer.patches_per_row
    rows = -(-total // columns) if export.mixer is None else export.mixer.total_patches // columns
    layout = PlotLayout.of(tile, columns=columns, rows=rows, margin=margin)
    channels = _channels(export)
    canvas: Pixels = np.full((layout.height, layout.width, len(channels)), np.nan, np.float32)
    for (row, column), record in _records(export, layout, advance):
        left, top = layout.corner(row, column)
        cell = layout.thumbnail([_band(record, channel, tile) for channel in channels])
        canvas[top : top + layout.cell_height, left : left + layout.cell_width] = cell
    number = total if export.mixer is None else export.mixer.total_patches
    caption = f"{number:,} {'patch' if number == 1 else 'patches'}; {', '.join(channel.name for channel in channels)}"
    return _paint(layout, _stretch(canvas), caption)


class _Channel(NamedTuple):
    feature: str
    level: int
    name: str


def _channels(export: StoredExport) -> list[_Channel]:
    """One channel, or three that are red, green and blue."""
    known = []
    for band in export.bands:
        depth = band.depth or 1
        names = export.collapsed or ([band.name] if depth == 1 else [f"{band.name}_{n}" for n in range(min(depth, 3))])
        known += [_Channel(band.name, level, name) for level, name in enumerate(names)]
    by_name = {channel.name.lower(): channel for channel in reversed(known)}
    for names in _COLOURS:
        if all(name in by_name for name in names):
            return [by_name[name] for name in names]
    return known if len(known) == 3 else known[:1]


def _records(
    export: StoredExport, layout: PlotLayout, advance: Callable[[int], None] | None
) -> Iterator[tuple[tuple[int, int], dict[str, Any]]]:
    """The records that are drawn, with their cells."""
    done = 0
    for filename in export.found.filenames:
        for block, _ in read_blocks(export.found.store, filename, verify="block"):
            for place, view in enumerate(block.views(), done):
                cell = layout.cell_of(place if export.patches is None else export.patches[place])
                if cell is not None:
                    yield cell, decode_features(view)
            done += block.num_records
            if advance is not None:
                advance(block.num_records)


def _band(record: dict[str, Any], channel: _Channel, tile: Tile) -> npt.NDArray[Any]:
    _, values = from_flat(record.get(channel.feature), channel.feature)
    level: npt.NDArray[Any] = values.reshape(-1, tile.size.height, tile.size.width)[channel.level]
    return level


def _stretch(canvas: Pixels) -> npt.NDArray[np.uint8]:
    """Each band between its 2nd and its 98th hundredth; NaN, and what was not drawn, is grey."""
    out = np.empty((*canvas.shape[:2], 3), np.uint8)
    is_number = np.isfinite(canvas)
    for place in range(3):
        band = canvas[..., place % canvas.shape[-1]]
        known = band[is_number[..., place % canvas.shape[-1]]].astype(np.float64)
        low, high = np.percentile(known, [2, 98]) if known.size else (0.0, 1.0)
        if not high > low:  # of one colour: a middle one
            low, high = low - 1, low + 1
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = np.clip((band - low) / (high - low), 0, 1) * 255
        out[..., place] = np.nan_to_num(scaled, nan=0).astype(np.uint8)
    out[~is_number.all(axis=-1)] = _GREY
    return out


def _paint(layout: PlotLayout, pixels: npt.NDArray[np.uint8], caption: str) -> Image:
    """The cells with lines between them, and the numbers of rows and columns beside them."""
    from PIL import Image, ImageDraw

    cells = [(row, column) for row in range(layout.shown_rows) for column in range(layout.shown_columns)]
    lines = np.ones(pixels.shape[:2], np.bool_)
    for row, column in cells:
        left, top = layout.corner(row, column)
        lines[top : top + layout.cell_height, left : left + layout.cell_width] = False
    pixels[lines] = _LINE
    width = min(max(LEFT + layout.width, _LEAST_WIDTH), MOST_PIXELS)
    image = Image.new("RGB", (width, TOP + layout.height + BOTTOM), _PAPER)
    image.paste(Image.fromarray(pixels), (LEFT, TOP))
    draw = ImageDraw.Draw(image)
    if layout.margin and layout.tile.size != layout.tile.patch:
        for cell in cells:
            left, top, right, bottom = layout.core(*cell)
            if right > left and bottom > top:
                draw.rectangle((LEFT + left, TOP + top, LEFT + right, TOP + bottom), outline=_CORE)
    for column in range(0, layout.shown_columns, -(-_LABEL_WIDTH // layout.cell_width)):
        draw.text((LEFT + layout.corner(0, column)[0] + 2, 5), str(column * layout.column_step), fill=_INK)
    for row in range(0, layout.shown_rows, -(-_LABEL_HEIGHT // layout.cell_height)):
        draw.text((4, TOP + layout.corner(row, 0)[1] + 1), str(row * layout.row_step), fill=_INK)
    every = layout.row_step * layout.column_step
    caption += f"; one patch in {every:,} is shown" if every > 1 else ""
    draw.text((4, TOP + layout.height + 5), caption.encode("ascii", "replace").decode(), fill=_INK)
    return image


def _place(output: str) -> tuple[Any, str]:
    folder, _, name = output.rpartition("/")
    return open_store(folder or ("/" if output.startswith("/") else ".")), name


def _import_pillow() -> None:
    try:
        import PIL  # noqa: F401 - whether it is there
    except ImportError as error:
        raise MissingExtraError(package="pillow", extra="earth-engine", needed_for="a picture of patches") from error
