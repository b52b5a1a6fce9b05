"""The words of Croissant documents: ``croissant`` writes them, and ``intake`` reads them.

http://mlcommons.org/croissant/1.1
"""

from __future__ import annotations

import re
from typing import Final

CONFORMS_TO: Final = "http://mlcommons.org/croissant/1.1"

NAMESPACES: Final = {
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
}
STATISTICS: Final = {"ddi-stats": "http://rdf-vocabulary.ddialliance.org/cv/SummaryStatisticType/2.1.2/"}
"""The prefix of the terms of statistics."""

CARDINALITY: Final = "http://www.wikidata.org/entity/Q4049983"
"""The type of an annotation with the number of records of a record set."""

ENUMERATION: Final = "sc:Enumeration"
"""The type of a record set that lists the names of classes."""

SPLIT: Final = "cr:Split"
"""The type of a record set that lists splits."""

_OTHER_PREFIXES: Final = ("ml", "schema", "wd")
_PLACES: Final = (re.escape(namespace.partition("://")[2]) for namespace in sorted(NAMESPACES.values(), reverse=True))
_PREFIX: Final = re.compile(f"(?:{'|'.join((*NAMESPACES, *_OTHER_PREFIXES))}):|https?://(?:{'|'.join(_PLACES)})")


def plain_term(term: str) -> str:
    """A term without its prefix or namespace.

    >>> plain_term("cr:recordSet"), plain_term("https://schema.org/name"), plain_term("schema:url"), plain_term("name")
    ('recordSet', 'name', 'url', 'name')
    """
    match = _PREFIX.match(term)
    return term if match is None else term[match.end() :]
