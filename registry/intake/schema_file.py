"""Reads and writes the YAML file of a schema: ``--schema FILE`` and ``--schema-out FILE``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from registry.errors import PinFormatError, SourceError
from registry.intake.feature_text import Wish, parse_feature
from registry.intake.schema import Schema
from registry.pins.yaml_text import read_yaml, write_yaml


def read_schema_file(path: str | Path) -> Mapping[str, Wish]:
    """The types in a schema file, by column.

    Raises:
        SourceError: the file cannot be read, is not strict YAML, or holds an invalid type; the message names the line.
    """
    try:
        document = read_yaml(Path(path).read_bytes(), str(path))
    except PinFormatError as error:
        raise SourceError(error.message) from error
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from error
    return {name: parse_feature(text) for name, text in document.value["columns"].items()}


def write_schema_file(schema: Schema, stream: TextIO) -> None:
    """Write ``schema`` as YAML that ``read_schema_file`` reads."""
    stream.write(write_yaml({"columns": {column.name: str(column.arrow_type) for column in schema.columns}}))
