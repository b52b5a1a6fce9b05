"""Puts patches of records or arrays together, without their margins: as a GeoTIFF, a numpy array or for xarray."""
