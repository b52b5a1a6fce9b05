"""Reads text files in which each line is a record, such as a corpus with a sentence per line.

    names -> Source of one part per file -> blocks of lines -> the column ``text``

No file is read like this unless the caller asks for the kind ``lines``. A blank line is a record with an empty text, so
that the lines of parallel files keep their numbers.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from registry.features import Text
from registry.intake.csv_files import check_encoding
from registry.intake.file_parts import Reader, make_parts
from registry.intake.kinds import KINDS
from registry.intake.options import AddOptions
from registry.intake.source import Files, Rows, Source, cut_rows
from registry.intake.text_files import BLOCK_BYTES, find_last_line_end, find_line_ends, open_text, read_blocks
from registry.shards.arrow_values import import_pyarrow
from registry.splits import counted
from registry.storage import Store


def open_lines(files: Files, options: AddOptions, *, block_bytes: int = BLOCK_BYTES) -> Source:
    """Open text files, also compressed.

    Args:
        files: the files.
        options: how they are opened.
        block_bytes: how much of a file is read at once.

    Raises:
        UsageError: the encoding is unknown.
        SourceError: no file has a line, or a file is not text.
        StorageError: a file cannot be read.
        MissingExtraError: pyarrow is not installed.
    """
    check_encoding(options)
    encodings: list[str] = []

    def open_file(name: str) -> Reader | None:
        with open_text(files.store, name, options) as stream:
            if not stream.read(1):
                return None
            encodings.append(stream.encoding)
        return partial(_read, files.store, name, options, block_bytes)

    source = make_parts(files, options, "lines", open_file)
    told = " or ".join(dict.fromkeys(encodings))
    summary = f"{counted(len(encodings), KINDS['lines'].noun)} ({told}), each line of which is a record"
    return replace(source, summary=summary, hints={**source.hints, "text": Text()})


def _read(store: Store, name: str, options: AddOptions, block_bytes: int) -> Generator[Rows, None, None]:
    with open_text(store, name, options) as stream:
        for block in read_blocks(stream, find_last_line_end, block_bytes=block_bytes):
            stream.check(block)
            table = import_pyarrow().table({"text": _split_lines(block.data)})
            yield from cut_rows(table, range(block.line, block.line + table.num_rows))


def _split_lines(data: bytes) -> Any:
    r"""Return the lines as an Arrow array of strings, without their ends.

    >>> _split_lines(b"a\r\n\nb").to_pylist()
    ['a', '', 'b']
    """
    text = np.frombuffer(data, np.uint8)
    ends = find_line_ends(data)
    is_text = np.ones(text.size, np.bool_)
    is_text[ends - 1] = False
    pairs = ends[(text[ends - 1] == ord("\n")) & (ends > 1)] - 2
    is_text[pairs[text[pairs] == ord("\r")]] = False
    stops = ends if data.endswith((b"\n", b"\r")) or not data else np.append(ends, text.size)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_text)[stops - 1]]).astype(np.int32)
    arrow = import_pyarrow()
    return arrow.StringArray.from_buffers(stops.size, arrow.py_buffer(offsets), arrow.py_buffer(text[is_text]))
