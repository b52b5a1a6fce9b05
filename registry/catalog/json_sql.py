"""How do rows become JSON inside a query? Two functions that SQLite and PostgreSQL have under different names.

They put what belongs to a row beside it, where a join would repeat the row: a million numbers come as one text, several
times faster than as a million rows.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction


class json_object_agg(GenericFunction[Any]):  # noqa: N801 (the name that SQL gives it)
    """An aggregate of names and values into one JSON object; SQLite calls it json_group_object."""

    type = sa.types.NullType()
    inherit_cache = True


class json_agg(GenericFunction[Any]):  # noqa: N801 (the name that SQL gives it)
    """An aggregate of values into one JSON array, in the order of the subquery they come from.

    SQLite calls it json_group_array. Both databases keep that order where the aggregate stands alone over the subquery.
    """

    type = sa.types.NullType()
    inherit_cache = True


@compiles(json_object_agg, "sqlite")
def _sqlite_object(element: json_object_agg, compiler: Any, **options: Any) -> str:
    return f"json_group_object{compiler.process(element.clause_expr, **options)}"


@compiles(json_agg, "sqlite")
def _sqlite_array(element: json_agg, compiler: Any, **options: Any) -> str:
    return f"json_group_array{compiler.process(element.clause_expr, **options)}"


def read_json(value: Any) -> Any:
    """What a function of this module gave: SQLite answers with text, psycopg with values."""
    return json.loads(value) if isinstance(value, str) else value
