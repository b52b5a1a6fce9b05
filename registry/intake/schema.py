"""The schema of a source: the feature and the Arrow type of each column, and the conversion of rows to these types.

Rows -> Inference -> Schema;   Rows -> Schema.convert -> Rows of equal types, which the pipeline writes as records
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from registry.errors import SourceError
from registry.features import Feature, FeaturesDict
from registry.intake.column_types import leaf_types, type_word
from registry.intake.conversion import Target, convert_values
from registry.intake.source import Rows
from registry.intake.value_types import nullable_paths
from registry.intake.values import column_array, column_errors, quote
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
        num_nulls: the number of rows in which it is null; None if they were not counted.
        example: one value as text for people, shortened and escaped.
        reason: why it has this feature, for people; may be empty.
        is_requested: whether the user or the source decided on the feature. Text is then parsed as numbers are usually
            written, such as ``007`` and ``1e5``; see ``text_types``.
        is_text: whether the source has text only, so that its numbers are parsed.
        anew: if values must have the type of the version before, the type that they would have without it.
        checks_files: whether the bytes of images and sounds are checked. Readers of folders have checked them already.
        null_as_empty: whether a null is read as an empty list.
        decimals: the paths of texts that were decimals in the source, and their Arrow types.
    """

    name: str
    feature: Feature
    arrow_type: pa.DataType
    num_nulls: int | None = None
    example: str = ""
    reason: str = ""
    is_requested: bool = False
    is_text: bool = False
    anew: str = ""
    checks_files: bool = False
    null_as_empty: bool = False
    decimals: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns that become features, in order, and the names of the columns that are left out."""

    columns: tuple[ColumnSchema, ...]
    skipped: tuple[str, ...] = ()

    def features(self) -> FeaturesDict:
        """The features of a record."""
        return FeaturesDict({column.name: column.feature for column in self.columns})

    def arrow_types(self) -> dict[str, str]:
        """The types that the features do not tell, so that an export can restore them.

        By the path of the feature: the type of times; ``bytes`` for bytes that may be null; and the type of decimals,
        which are stored as text. For example ``{"when": "timestamp[us, tz=UTC]", "price": "decimal128(10, 2)"}``.
        """
        decimals = {path: kind for column in self.columns for path, kind in column.decimals}
        return decimals | {
            path: type_word(kind)
            for column in self.columns
            for path, kind in leaf_types(column.name, column.feature, column.arrow_type)
        }

    def without_values(self, num_rows: int | None) -> list[str]:
        """The columns whose type is not known, because they are null in all of ``num_rows`` rows."""
        return [
            column.name
            for column in self.columns
            if num_rows and column.num_nulls == num_rows and not column.is_requested and not column.anew
        ]

    def nullable_paths(self) -> list[str]:
        """The paths inside of lists at which a list of none or one stores a value that may be null."""
        return [path for column in self.columns for path in nullable_paths(column.name, column.arrow_type)]

    def convert(self, part_name: str, rows: Rows) -> Rows:
        """``rows`` with the columns of this schema, in its order and of its types.

        Args:
            part_name: the name of the part, for the rows that do not fit.
            rows: rows of the source.

        Returns:
            The rows whose values fit. The others are in ``bad``, after the rows that were there.

        Raises:
            SourceError: the rows have a column that is not in the schema.
        """
        names = [column.name for column in self.columns]
        more = sorted(set(rows.table.schema.names) - {*names, *self.skipped})
        if more:
            raise SourceError(
                f"{part_name}: column {quote(more[0])} is not in the schema",
                hint=f"Add it to the schema, with the type `skip` to leave it out. Columns: {', '.join(names[:20])}.",
                details={"column": more[0]},
            )
        arrays: list[Any] = []
        faults: dict[int, tuple[str, str]] = {}
        for column in self.columns:
            target = Target(
                feature=column.feature,
                kind=column.arrow_type,
                is_requested=column.is_requested,
                is_text=column.is_text,
                is_kept=bool(column.anew),
                checks_files=column.checks_files,
                null_as_empty=column.null_as_empty,
            )
            with column_errors(column.name, column.arrow_type):
                array, problems = convert_values(column_array(rows.table, column.name), target)
            arrays.append(array)
            for row, problem in problems.items():
                faults.setdefault(row, (column.name, problem))
        table = import_pyarrow().table(arrays, names=names)
        if not faults:
            return replace(rows, table=table)
        keep = np.ones(table.num_rows, np.bool_)
        keep[list(faults)] = False
        return Rows(
            table=table.filter(import_pyarrow().array(keep)),
            lines=_pick(rows.lines, keep),
            keys=None if rows.keys is None else _pick(rows.keys, keep),
            bad=(
                *rows.bad,
                *(rows.bad_row(part_name, row, column, problem) for row, (column, problem) in sorted(faults.items())),
            ),
        )


def _pick(values: Sequence[Any], keep: Any) -> list[Any]:
    return [value for value, is_kept in zip(values, keep.tolist(), strict=True) if is_kept]
