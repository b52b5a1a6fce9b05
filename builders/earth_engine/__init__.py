"""Earth Engine's TFRecords: written, cataloged, read, and brought back to the map, without Earth Engine and TensorFlow.

    from registry.builders import earth_engine

    raster -> export_image -> files, mixer -> import_export -> Patches -> write_predictions -> assemble -> raster
    rows -> write_table -> file -> read_table -> rows

Exact behaviour follows Earth Engine's guide to TFRecord and what real exports hold; docs/earth-engine.md lists the
points that the guide leaves open, and what was chosen.
"""
