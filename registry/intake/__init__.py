"""Publishes data that comes without a builder class: files, folders, archives, frames and iterables.

    source -> Source (parts, splits, files) -> schema of all rows -> keyed records -> shards -> proved number -> row

``detect`` finds out what a source is and opens it with the reader of its kind. A reader yields ``Rows``, which are
Arrow tables. ``registry.api`` calls ``add``.
"""
