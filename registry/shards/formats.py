"""Which formats of shard files can be read, and in which order are they meant to be?"""

from __future__ import annotations

from typing import Final

from registry.errors import PreparedFormatError, suggest

FILE_FORMATS: Final = ("tfrecord", "array_record", "parquet", "parquet_columns")
"""What ``open_shard`` opens."""

STORED_ORDER: Final = ("array_record", "parquet_columns")
"""Formats whose files are read one after the other unless a read config says otherwise.

TFDS reads ArrayRecord files only as a data source, which has no interleaving; folders of Parquet columns come from
software that has none either.
"""


def check_file_format(file_format: str, where: str) -> str:
    """``file_format`` where it can be read; ``where`` names the folder or file.

    Raises:
        PreparedFormatError: it is riegeli, which TFDS writes and nothing here reads, or not known at all.
    """
    if file_format in FILE_FORMATS:
        return file_format
    if file_format == "riegeli":
        raise PreparedFormatError(
            f"{where}: riegeli shards cannot be read",
            hint="Prepare the dataset again with file_format='tfrecord', or convert it with TFDS: "
            "python -m tensorflow_datasets.scripts.convert_format",
            details={"file_format": file_format},
        )
    raise PreparedFormatError(
        f"{where}: unknown file format {file_format[:80]!r}",
        hint=suggest(file_format[:80], FILE_FORMATS),
        details={"file_format": file_format[:80]},
    )
