"""Where is pyarrow? Imported when the first Parquet file is opened; who has none of these never needs it."""

from __future__ import annotations

from typing import Any

from registry.errors import MissingExtraError


def import_pyarrow() -> Any:
    """The package ``pyarrow``; MissingExtraError where it is not installed."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtraError(package="pyarrow", extra="arrow", needed_for="reading Parquet files") from error
    return pa
