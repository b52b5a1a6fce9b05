"""How does a catalog's schema come about? Alembic's migrations; they import no live code and are never edited."""
