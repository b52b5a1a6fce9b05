"""Finds out what a path or URL contains, and opens it with the reader of its kind.

    path or URL -> listing.list_files -> the kind of most files -> opener of that kind -> Source

To add a kind, write a module with an opener next to the others, and add a row to ``KINDS``.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from typing import Final, cast

from registry.errors import SourceError, UsageError, suggest
from registry.intake.listing import list_files
from registry.intake.source import Opener, Options, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of source.

    Attributes:
        opener: the module below ``registry.intake`` and the function that opens files of this kind.
        extensions: the ends of their names, in lower case.
        about: one line for people.
    """

    opener: str
    extensions: tuple[str, ...]
    about: str

    def open(self) -> Opener:
        """Import the opener."""
        module, _, name = self.opener.partition(":")
        return cast("Opener", getattr(import_module(f"registry.intake.{module}"), name))


KINDS: Final[dict[str, Kind]] = {}


def open_source(location: str | os.PathLike[str], options: Options) -> Source:
    """Open what ``location`` contains.

    Raises:
        SourceError: no kind matches, or several do.
        UsageError: ``options.kind`` is not a kind.
        NotStoredError: nothing has this name.
    """
    if options.kind is not None and options.kind not in KINDS:
        raise UsageError(
            f"{options.kind!r:.60} is not a kind of source", hint=suggest(options.kind, KINDS, have="The kinds are:")
        )
    files = list_files(location)
    found: Counter[str] = Counter()
    for name in files.names:
        found.update(kind for kind, one in KINDS.items() if name.lower().endswith(one.extensions))
    kind = options.kind or next((name for name, _ in found.most_common(1)), None)
    if kind is None:
        raise SourceError(
            f"{files.location}: no file of a known kind",
            hint=f"Name the kind: --from KIND. The kinds are: {', '.join(KINDS)}.",
            details={"location": files.location},
        )
    return KINDS[kind].open()(files, options)
