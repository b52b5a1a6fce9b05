"""Exports a raster: rows of pixels -> patches or pixels -> records -> files, and the mixer last.

image -> plan (options, raster, strips) -> records -> record_file -> files
"""
