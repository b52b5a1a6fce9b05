"""Stored exports: their files by name, their form by their records, and the version that is made of them."""
