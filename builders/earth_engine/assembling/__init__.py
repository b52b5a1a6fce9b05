"""How do patches become a raster again? From records or arrays, without their margins: GeoTIFF, numpy, xarray."""
