"""Sources in memory for tests of ``Catalog.add``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from registry.features import Feature
from registry.intake.source import BadRow, Rows, Source, SourcePart


@dataclass(frozen=True)
class Table:
    """Reads a table in pieces of ``step`` rows; ``bad`` rows come with the first piece."""

    table: pa.Table
    step: int = 100
    keys: Sequence[str] | None = None
    bad: tuple[BadRow, ...] = ()

    def __call__(self) -> Iterator[Rows]:
        for start in range(0, max(1, self.table.num_rows), self.step):
            piece = self.table.slice(start, self.step)
            yield Rows(
                table=piece,
                lines=range(start + 1, start + 1 + piece.num_rows),
                keys=None if self.keys is None else self.keys[start : start + self.step],
                bad=self.bad if start == 0 else (),
            )


def source(
    tables: Mapping[str, Any] | Sequence[tuple[str, str, Any]],
    *,
    hints: Mapping[str, Feature] | None = None,
    step: int = 100,
) -> Source:
    """A source of tables by split, or of triples (split, name, table or reader)."""
    triples = [(name, name, one) for name, one in tables.items()] if isinstance(tables, Mapping) else list(tables)
    parts = []
    for split, name, one in triples:
        read = one if isinstance(one, Table) else Table(one if isinstance(one, pa.Table) else pa.table(one), step=step)
        parts.append(SourcePart(split=split, name=name, read=read))
    return Source(kind="table", summary="a table", parts=parts, hints=hints or {})
