"""The schema of a source: the feature and the Arrow type of each column, and the conversion of rows to these types.

Rows -> Inference -> Schema;   Rows -> Schema.convert -> Rows of equal types, which the pipeline writes as records
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from registry.features import Feature, FeaturesDict
from registry.intake.source import Rows
from registry.shards.arrow_values import import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSchema:
    """One column.

    Attributes:
        name: its name.
        feature: its feature.
        arrow_type: the type of its values after ``Schema.convert``.
        num_nulls: the number of rows in which it is null.
        example: one value as text for people, shortened and escaped.
        reason: why it has this feature, for people; may be empty.
    """

    name: str
    feature: Feature
    arrow_type: pa.DataType
    num_nulls: int = 0
    example: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns that become features, in order."""

    columns: tuple[ColumnSchema, ...]

    def features(self) -> FeaturesDict:
        """The features of a record."""
        return FeaturesDict({column.name: column.feature for column in self.columns})

    def arrow_types(self) -> dict[str, str]:
        """The Arrow types that the features do not tell, by column, so that an export can restore them.

        For example ``{"when": "timestamp[us, tz=UTC]"}``.
        """
        return {column.name: str(column.arrow_type) for column in self.columns if _needs_type(column.arrow_type)}

    def convert(self, part_name: str, rows: Rows) -> Rows:  # noqa: ARG002 - used for errors
        """``rows`` with the columns of this schema, in its order and of its types.

        Args:
            part_name: the name of the part, for errors.
            rows: rows of the source.

        Returns:
            The rows whose values fit. The others are in ``bad``, in addition to the rows that were there.

        Raises:
            SourceError: the rows have a column that is not in the schema.
        """
        arrow = import_pyarrow()
        columns = [rows.table.column(column.name).cast(column.arrow_type) for column in self.columns]
        return replace(rows, table=arrow.table(columns, names=[column.name for column in self.columns]))


def _needs_type(kind: pa.DataType) -> bool:
    types = import_pyarrow().types
    return bool(types.is_temporal(kind))
