"""How does a raster become an export? Rows of pixels, patches or pixels, records, files, the mixer last.

image -> plan (options, raster) -> strips -> patches | sequences -> record_file -> files
"""
