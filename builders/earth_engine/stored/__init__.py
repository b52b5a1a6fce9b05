"""Imports exports: finds their files by name, infers their content from records, and publishes a version."""
