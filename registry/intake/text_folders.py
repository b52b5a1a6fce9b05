"""Opens folders of text files. Each file is a record with its content in the column ``text``, and a label by folder."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Final

from registry.errors import SourceError
from registry.features import Feature, Text
from registry.intake.accounting import account_for_source, count, in_folders
from registry.intake.file_rows import FilePart, open_parts
from registry.intake.folder_columns import refuse_folder_columns
from registry.intake.folder_labels import find_labels
from registry.intake.kinds import KINDS
from registry.intake.options import AddOptions
from registry.intake.source import PATH, BadFileError, Files, Source
from registry.intake.split_names import find_splits
from registry.shards.arrow_values import import_pyarrow

_OTHER_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def open_text_files(files: Files, options: AddOptions) -> Source:
    """Open text files in UTF-8; see the module. A byte order mark is removed, and newlines are kept.

    Raises:
        SourceError: there is no text file, or the names of splits are ambiguous.
    """
    import_pyarrow()
    kind = KINDS["text"]
    names = [name for name in files.names if name.lower().endswith(kind.extensions)]
    if not names:
        raise SourceError(
            f"{files.location}: no text file among {len(files.names):,} files",
            hint=f"Names of text files end with one of {' '.join(kind.extensions)}",
            details={"location": files.location},
        )
    refuse_folder_columns(names, options.splits, hint="Rename the folders, such as cat instead of label=cat.")
    splits = find_splits(names, options, folders_only=True)
    label, reason = find_labels(splits.files)
    has_path = options.stores_paths()
    hints: dict[str, Feature] = {"text": Text()} | ({} if label is None else {"label": label})
    hints |= {PATH: Text()} if has_path else {}

    def read(some: Sequence[str]) -> FilePart:
        return FilePart(
            store=files.store,
            names=some,
            column="text",
            is_text=True,
            convert=decode_text,
            has_label=label is not None,
            has_path=has_path,
        )

    return Source(
        kind="text",
        summary=f"{count(len(names), kind.noun)}{in_folders(names)}, each of which is a record; "
        f"{reason if label is None else f'label: {reason}'}",
        parts=open_parts(splits.files, files, read),
        hints=hints,
        stores_paths=has_path,
        is_typed=True,
        files=account_for_source(files, splits, kind.noun[0]),
        origins=files.origins,
        split_reason=splits.reason,
    )


def decode_text(name: str, data: bytes) -> str:
    r"""The text of a file.

    >>> decode_text("a.txt", b"\xef\xbb\xbfcaf\xc3\xa9")
    'café'

    Raises:
        BadFileError: it is not UTF-8.
    """
    del name
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        found = "UTF-16" if data.startswith(_OTHER_MARKS) else f"the byte 0x{data[error.start]:02x}"
        line = data.count(b"\n", 0, error.start) + 1
        raise BadFileError(f"expected UTF-8, found {found} in line {line}") from error
