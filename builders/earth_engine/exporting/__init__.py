"""Exports a raster: rows of pixels -> patches or pixels -> records -> files, then the mixer.

image -> plan (options, raster, strips) -> records -> record_file -> files
"""
