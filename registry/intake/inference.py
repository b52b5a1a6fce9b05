"""Infers the schema of a source from all of its rows. The pipeline creates one ``Inference`` in each worker process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from registry.features import Feature
from registry.intake.feature_text import Wish, feature_of_type
from registry.intake.schema import ColumnSchema, Schema
from registry.intake.source import Rows


class Inference:
    """What the rows seen so far say about each column. It uses bounded memory and can be pickled.

    Args:
        is_text: whether values are text whose types have to be inferred, as in a CSV.
        hints: features that the source itself defines, by column.
        wishes: types that the user requests, by column.
    """

    def __init__(
        self, *, is_text: bool, hints: Mapping[str, Feature], wishes: Mapping[str, Wish] | None = None
    ) -> None:
        self._is_text = is_text
        self._hints = dict(hints)
        self._wishes = dict(wishes or {})
        self._types: dict[str, Any] = {}

    def update(self, part_name: str, rows: Rows) -> None:  # noqa: ARG002 - used for errors
        """Take the rows of a part into account. Rows of one part may come in any order."""
        for field in rows.table.schema:
            self._types.setdefault(field.name, field.type)

    def merge(self, other: Inference) -> None:
        """Take everything into account that ``other`` has seen, such as the rows of other parts."""
        for name, kind in other._types.items():
            self._types.setdefault(name, kind)

    def schema(self) -> Schema:
        """The schema of all rows.

        Raises:
            SourceError: values of a column contradict each other, or a request cannot be fulfilled; the message names
                the file and line of each value.
        """
        columns = []
        for name, kind in self._types.items():
            feature = self._hints.get(name) or feature_of_type(kind, name)
            columns.append(ColumnSchema(name=name, feature=feature, arrow_type=kind))
        return Schema(tuple(columns))
