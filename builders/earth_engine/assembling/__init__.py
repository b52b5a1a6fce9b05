"""Assembles patches from records or arrays, without their margins, into a GeoTIFF, a numpy array or a DataArray."""
