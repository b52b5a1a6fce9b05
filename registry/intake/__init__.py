"""Publishes data that comes without a builder class: files, folders, archives, frames and iterables.

    source -> Source (parts, splits, files) -> schema of all rows -> keyed records -> shards -> proved number -> row

``detect`` finds out what a source is and opens it with the reader of its kind. A reader yields ``Rows``, which are
Arrow tables. ``registry.api`` calls ``add``.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.intake.detect import open_source
    from registry.intake.options import AddOptions
    from registry.intake.source import Source
    from registry.intake.text_types import parse_texts

__all__ = ["AddOptions", "Source", "open_source", "parse_texts"]

__getattr__, __dir__ = lazy_exports(
    __name__, {"detect": "open_source", "options": "AddOptions", "source": "Source", "text_types": "parse_texts"}
)
