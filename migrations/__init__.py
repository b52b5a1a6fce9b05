"""Alembic's migrations of the catalog's schema. They import no code of the registry.

A published migration is edited only where an upgrade would fail or lose rows: of datasets that a later schema lets
people rename (``renames.py``), or where somebody dropped a trigger that is replaced.
"""
