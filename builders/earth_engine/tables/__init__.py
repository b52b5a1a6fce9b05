"""How do rows become a TFRecord, and a TFRecord rows? The table, and files of rows: CSV, GeoJSON, JSON, lines."""
