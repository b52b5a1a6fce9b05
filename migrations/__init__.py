"""Alembic's migrations of the catalog's schema. They import no code of the registry and are never edited."""
