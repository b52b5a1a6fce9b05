"""Writes, catalogs and reads TFRecords of Earth Engine and assembles predictions, without Earth Engine or TensorFlow.

    from registry.builders import earth_engine

    raster -> export_image -> files, mixer -> import_export -> Patches -> write_predictions -> assemble -> raster
    rows -> write_table -> file -> read_table -> rows

The behaviour follows Earth Engine's guide to TFRecord and files that Earth Engine exported. docs/earth-engine.md lists
the points that the guide leaves open and what this package does. Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.builders.earth_engine.assembling.assemble import assemble
    from registry.builders.earth_engine.assembling.assembly import Assembly
    from registry.builders.earth_engine.assembling.predictions import WrittenPredictions, write_predictions
    from registry.builders.earth_engine.exporting.geotiff_raster import GeoTiffRaster
    from registry.builders.earth_engine.exporting.image import Exported, export_image, plan_export
    from registry.builders.earth_engine.exporting.options import ExportOptions
    from registry.builders.earth_engine.exporting.raster import ArrayRaster, Band, BandRows, Raster
    from registry.builders.earth_engine.exporting.version import ExportedSplit, export_version
    from registry.builders.earth_engine.grid import Bounds, Grid, Size, Transform, Window
    from registry.builders.earth_engine.mixer import Mixer
    from registry.builders.earth_engine.patch_reader import Patch, PatchBatch, Patches
    from registry.builders.earth_engine.pixel_series import PixelSeries
    from registry.builders.earth_engine.row_files import read_rows, write_rows
    from registry.builders.earth_engine.stored.export import StoredExport, open_export
    from registry.builders.earth_engine.stored.found_files import FoundExport, find_export
    from registry.builders.earth_engine.stored.importing import import_export, preview_export
    from registry.builders.earth_engine.table import ExportedTable, Table, read_table, write_table

__all__ = [
    "ArrayRaster",
    "Assembly",
    "Band",
    "BandRows",
    "Bounds",
    "ExportOptions",
    "Exported",
    "ExportedSplit",
    "ExportedTable",
    "FoundExport",
    "GeoTiffRaster",
    "Grid",
    "Mixer",
    "Patch",
    "PatchBatch",
    "Patches",
    "PixelSeries",
    "Raster",
    "Size",
    "StoredExport",
    "Table",
    "Transform",
    "Window",
    "WrittenPredictions",
    "assemble",
    "export_image",
    "export_version",
    "find_export",
    "import_export",
    "open_export",
    "plan_export",
    "preview_export",
    "read_rows",
    "read_table",
    "write_predictions",
    "write_rows",
    "write_table",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "assembling.assemble": "assemble",
        "assembling.assembly": "Assembly",
        "assembling.predictions": "WrittenPredictions write_predictions",
        "exporting.geotiff_raster": "GeoTiffRaster",
        "exporting.image": "Exported export_image plan_export",
        "exporting.options": "ExportOptions",
        "exporting.raster": "ArrayRaster Band BandRows Raster",
        "exporting.version": "ExportedSplit export_version",
        "grid": "Bounds Grid Size Transform Window",
        "mixer": "Mixer",
        "patch_reader": "Patch PatchBatch Patches",
        "pixel_series": "PixelSeries",
        "row_files": "read_rows write_rows",
        "stored.export": "StoredExport open_export",
        "stored.found_files": "FoundExport find_export",
        "stored.importing": "import_export preview_export",
        "table": "ExportedTable Table read_table write_table",
    },
)
