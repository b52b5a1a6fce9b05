"""Opens Croissant documents: the records of a record set, from local files next to the document.

    croissant.json -> Document -> files of the record set (checked by sha256) -> reader of their kind -> Source

Tables are read by column, and files such as images as one record each. The splits are those of the field that refers
to the record set of splits. URLs, absolute paths and ``..`` are refused: nothing is downloaded.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NoReturn
from urllib.parse import unquote

from registry.errors import SourceError, suggest
from registry.features import ClassLabel, Feature, Image, Text
from registry.intake.archives import extract, is_archive
from registry.intake.croissant_document import (
    MARK,
    Document,
    RecordField,
    RecordSet,
    Resource,
    are_splits,
    parse_document,
)
from registry.intake.feature_text import parse_feature
from registry.intake.file_parts import FilePart, combine_splits, decode_text, open_parts
from registry.intake.kinds import kind_of, open_kind
from registry.intake.listing import list_folder
from registry.intake.media_bytes import CheckMedia
from registry.intake.object_tables import read_in_steps
from registry.intake.options import AddOptions
from registry.intake.python_values import ValueConverter, columns_of, convert_block
from registry.intake.source import Files, Rows, Source, SourcePart, account_for, explain_choice, root_of
from registry.intake.value_types import column_array, python_values
from registry.shards.arrow_values import import_pyarrow

KIND: Final = "croissant"
NAMES: Final = ("croissant.json", "metadata.json", "croissant_metadata.json")
"""The names by which a document is recognized in a folder. A document with another name is passed by its path."""

_MOST_BYTES: Final = 64 * 2**20
_MOST_SHOWN: Final = 10
_HEAD_BYTES: Final = 2**16
_ENCODINGS: Final = {
    "text/csv": "csv",
    "text/tab-separated-values": "csv",
    "application/json": "json",
    "application/jsonlines": "json",
    "application/x-jsonlines": "json",
    "application/jsonlines+json": "json",
    "application/x-parquet": "parquet",
    "application/vnd.apache.parquet": "parquet",
}
_NUMBERS: Final = {"Integer": "int64", "Float": "float64", "Boolean": "bool", "Number": "float64"}
_PRECISE: Final = re.compile(r"(?:Int|UInt|Float)(?:8|16|32|64)")
_PATHS: Final = ("filename", "fullpath")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_OTHER: Final = "Add the files themselves instead, without the document."
_CHECK: Final = "Check the document: mlcroissant validate --jsonld FILE"
_BESIDE: Final = f"A document names files relative to its own folder: put it next to them. {_CHECK}"


def find_document(files: Files) -> str | None:
    """Return the name of the Croissant document of a source, or None if there is no document."""
    names = files.names if len(files.names) == 1 else [name for name in NAMES if name in files.names]
    for name in names:
        if name.lower().endswith(".json"):
            with files.store.open(name) as file:
                head = file.read(_HEAD_BYTES)
            if MARK in head and b'"@context"' in head:  # data may mention Croissant, too
                return name
    return None


def open_croissant(files: Files, options: AddOptions) -> Source:
    """Open a record set of a Croissant document.

    Raises:
        SourceError: the document is malformed or needs an unsupported feature; it has several record sets, and
            ``options.records`` names none of them; a file is missing, has another sha256, or is not next to the
            document; or the reader of the files raises it.
    """
    name = find_document(files)
    if name is None:
        raise SourceError(
            f"{files.location}: no Croissant document",
            hint=f"Name the file, or call it {NAMES[0]}.",
            details={"location": files.location},
        )
    document = parse_document(files.store.read_bytes(name, limit=_MOST_BYTES), name)
    is_alone = len(files.names) == 1  # the caller passed the document, whose files are next to it
    folder = list_folder(root_of(files.store), files.location) if is_alone else files
    return _Opener(document, folder).open(options)


class _Opener:
    """Opens one record set: its columns, the field of its splits if there is one, and the files that have them.

    Args:
        document: the document.
        folder: the files next to it, and the document itself.
    """

    _columns: Sequence[RecordField]
    _split: RecordField | None
    _split_reason: str
    _read: Files
    _encoding: str

    def __init__(self, document: Document, folder: Files) -> None:
        self._document = document
        self._folder = folder
        self._used: set[str] = {document.name}

    def _fail(self, problem: str, hint: str | None) -> NoReturn:
        """Raise a SourceError that names the document."""
        name = self._document.name
        raise SourceError(f"{name}: {problem}", hint=hint, details={"file": name})

    def open(self, options: AddOptions) -> Source:
        record_set = self._choose(options.records)
        if record_set.data is not None:
            source = self._open_inline(record_set)
        else:
            self._plan(record_set)
            is_tables = not any(field.file_property == "content" for field in self._columns)
            source = self._open_tables() if is_tables else self._open_contents()
        # A document that the caller names by its path may be a hidden file, which the listing of the folder skips.
        name = self._document.name
        document = account_for([(name, self._folder.store.size(name))], "metadata", reason="the Croissant document")
        others = [file for file in self._folder.names if file not in self._used]
        skipped = self._folder.uses(others, "skipped", reason=f"not in the record set {record_set.name!r}")
        return replace(
            source,
            kind=KIND,
            summary=f"Croissant record set {record_set.name!r}: {source.summary}",
            files=[*source.files, *document, *skipped, *self._folder.skipped],
            metadata=self._document.metadata,
        )

    def _choose(self, name: str | None) -> RecordSet:
        """Return the record set ``name``, or the only record set."""
        sets = [each for each in self._document.record_sets if not each.is_enumeration and each.fields]
        stored = [record_set for record_set in sets if record_set.data is None]
        sets = stored or sets  # small tables in the document describe the others
        if not sets:
            self._fail("the document has no record set with fields", _OTHER)
        names = [record_set.name for record_set in sets]
        chosen = [record_set for record_set in sets if name in (record_set.name, record_set.id)]
        if name is None and len(sets) == 1:
            chosen = sets
        if not chosen:
            problem, hint = explain_choice(name, names, noun="record set", option="records")
            self._fail(f"the document {problem}", hint)
        return chosen[0]

    def _plan(self, record_set: RecordSet) -> None:
        """Find out what is read for a record set."""
        self._split = next((field for field in record_set.fields if self._is_split(field)), None)
        self._split_reason = (
            f"the field {self._split.name!r}" if self._split else "the record set has no field of splits"
        )
        self._columns = [field for field in record_set.fields if field is not self._split]
        leaves = [leaf for field in record_set.fields for leaf in field.leaves]
        for leaf in leaves:
            if leaf.unsupported:
                self._fail(f"field {leaf.id!r}: {leaf.unsupported} is not supported", _OTHER)
        resources = list(dict.fromkeys(leaf.resource for leaf in leaves))
        if len(resources) != 1:
            listing = ", ".join(map(repr, resources))
            self._fail(f"the record set {record_set.name!r} combines {listing}, which is not supported", _OTHER)
        self._read = self._resolve(resources[0], ())
        self._encoding = self._document.files[resources[0]].encoding

    def _resolve(self, resource: str, outer: tuple[str, ...]) -> Files:
        """Return the files of a FileObject or FileSet, in the file sets ``outer``; archives are extracted."""
        if resource in outer:
            self._fail(f"the file set {resource!r} contains itself", _CHECK)
        found = self._document.files.get(resource)
        if found is None:
            self._fail(f"'distribution' does not list the file {resource!r}, which is read", _CHECK)
        if not found.is_set:
            files = self._file(found)
            return files if not is_archive(files.names[0]) else extract(files, files.names)
        listed = [self._document.files[name] for name in found.contained_in if name in self._document.files]
        # Documents of Hugging Face name a Git repository. The folder of the document is its clone.
        containers = [container for container in listed if not container.encoding.startswith("git")]
        inside = (*outer, resource)
        if all(container.is_set for container in containers):
            # A name inside of an archive is not the file of that name in the folder.
            chosen = {name for container in containers for name in self._resolve(container.id, inside).names}
            others = [name for name in self._folder.names if name != self._document.name]
            base = self._folder.only([name for name in others if name in chosen] if containers else others)
        elif len(containers) > 1:
            self._fail(f"the file set {found.id!r} is in several archives, which is not supported", _OTHER)
        else:
            base = self._resolve(containers[0].id, inside)
        excluded = set(_matches(base.names, found.excludes))
        names = [name for name in _matches(base.names, found.includes or ("*",)) if name not in excluded]
        if not names:
            globs = ", ".join(found.includes) or "*"
            self._fail(f"no file matches {globs}, the file set {found.id!r}", _BESIDE)
        if base.store is self._folder.store:
            resources = self._document.files.values()
            self._take(names, {unquote(file.url): file.sha256 for file in resources if not file.is_set})
        return base.only(names)

    def _file(self, file: Resource) -> Files:
        url = unquote(file.url)
        if file.contained_in:
            self._fail(f"the file {file.id!r} is in an archive, which is supported for file sets only", _OTHER)
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url) or url.startswith(("/", "~")) or ".." in url.split("/"):
            self._fail(
                f"the file {file.id!r} is not next to the document: {url[:200]!r}",
                "Download it into the folder of the document, and write its relative path into contentUrl.",
            )
        name = url.removeprefix("./")
        if name not in set(self._folder.names):
            self._fail(f"the file {name!r} is missing", "Download it into the folder of the document.")
        self._take([name], {name: file.sha256})
        return self._folder.only([name])

    def _take(self, names: Sequence[str], digests: Mapping[str, str]) -> None:
        """Use files of the folder, and check those whose digests the document states."""
        self._used.update(names)
        for name in names:
            expected = digests.get(name, "")
            if not _SHA256.fullmatch(expected):  # often a placeholder, such as the URL of a GitHub issue
                continue
            digest = self._folder.store.sha256(name)
            if digest != expected:
                raise SourceError(
                    f"{name}: sha256 mismatch: expected {expected}, as in {self._document.name}, found {digest}",
                    hint="Download the file again, or correct the document.",
                    details={"file": name, "expected": expected, "found": digest},
                )

    def _is_split(self, field: RecordField) -> bool:
        target = self._target(field)
        return are_splits(field.types) or (target is not None and target.is_split_set)

    def _target(self, field: RecordField) -> RecordSet | None:
        """The record set in the document that a field refers to."""
        if not field.references:
            return None
        sets = self._document.record_sets
        of_field = (record_set for record_set in sets if any(each.id == field.references for each in record_set.fields))
        return next(of_field, None) or next((each for each in sets if each.id == field.references), None)

    def _open_tables(self) -> Source:
        columns = {field.name: self._column_of(field) for field in self._columns}
        kind = self._kind_of()
        splits, split_by = {"train": list(self._read.names)}, ""
        if self._split is not None and self._split.file_property:
            splits = self._splits_by_name(self._split)
        elif self._split is not None:
            split_by = self._split.name
            columns[split_by] = self._split.column
        sources = {
            split: open_kind(kind, self._read.only(names), AddOptions(splits={split: "*"}, has_csv_options=False))
            for split, names in splits.items()
        }
        source = combine_splits(sources, split_reason=self._split_reason)
        first = source.first_rows()
        known = [] if first is None else first.table.column_names
        if missing := [name for name in columns.values() if name not in known]:
            self._fail(f"the files have no column {missing[0]!r}", suggest(missing[0], known, have="The columns are:"))
        own = {column: source.hints[column] for column in columns.values() if column in source.hints}
        is_untyped = source.is_text or kind == "json"
        hints = self._hints(self._columns, is_untyped=is_untyped) | {
            field.name: own[columns[field.name]] for field in self._columns if columns[field.name] in own
        }
        listed = self._listed_splits(self._split) if self._split is not None and split_by else frozenset()
        parts = [part.mapped(partial(_select, columns, split_by, listed)) for part in source.parts]
        left = [name for name in known if name not in columns.values()]
        about = f"; not in the record set: {', '.join(map(repr, left[:_MOST_SHOWN]))}" if left else ""
        return replace(source, parts=parts, split_by=split_by, hints=hints, summary=f"{source.summary}{about}")

    def _column_of(self, field: RecordField) -> str:
        """Return the column of the file with the values of a field; for a struct, the column of its fields."""
        found = {leaf.column.partition("/")[0] if field.fields else leaf.column for leaf in field.leaves}
        column = found.pop() if len(found) == 1 else ""
        if not column or any(leaf.regexes or leaf.file_property for leaf in field.leaves):
            self._fail(f"field {field.id!r}: only whole columns of tables are supported", _OTHER)
        return column

    def _kind_of(self) -> str:
        """Return the kind of a table by its encoding or extension."""
        if self._encoding in _ENCODINGS:
            return _ENCODINGS[self._encoding]
        name = self._read.names[0]
        kind = kind_of(name)
        if kind not in ("csv", "json", "parquet", "arrow"):
            hint = "For a folder of TFDS, use: registry import tfds DIR" if "tfrecord" in name.lower() else _OTHER
            self._fail(f"records cannot be read from {name} ({self._encoding})", hint)
        return kind

    def _listed_splits(self, field: RecordField) -> frozenset[str]:
        """Return the splits that the record set of ``field`` lists, or an empty list."""
        target = self._target(field)
        rows = () if target is None else target.data or ()
        values = [] if target is None else target.values(field.references)
        if not any(value is not None for value in values):  # the reference names the record set, not a field
            values = [next(iter(row.values()), None) for row in rows]
        return frozenset(str(value) for value in values if value is not None)

    def _splits_by_name(self, field: RecordField) -> dict[str, list[str]]:
        """Return the files of each split, which a regular expression over their names decides."""
        result: dict[str, list[str]] = {}
        for name in self._read.names:
            result.setdefault(self._value_of(field, name), []).append(name)
        target = self._target(field)
        listed = [] if target is None else map(str, target.values(field.references))
        return {split: result[split] for split in dict.fromkeys([*listed, *sorted(result)]) if split in result}

    def _value_of(self, field: RecordField, name: str) -> str:
        """Return the name or path of a file, cut by regular expressions."""
        if field.file_property not in _PATHS:
            self._fail(f"field {field.id!r}: the file property {field.file_property!r} is not supported", _OTHER)
        value = name if field.file_property == "fullpath" else name.rpartition("/")[2]
        for regex in field.regexes:
            try:
                match = re.search(regex, value)
            except re.error as error:
                self._fail(f"field {field.id!r}: invalid regular expression {regex!r}: {error}", _CHECK)
            if match is None:
                self._fail(f"field {field.id!r}: {regex!r} does not match the file {name!r}", _CHECK)
            value = next((group for group in match.groups() if group is not None), match[0])
        return value

    def _open_contents(self) -> Source:
        """Open each file as a record of its content and of values from its name."""
        contents = [field for field in self._columns if field.file_property == "content"]
        if len(contents) != 1 or contents[0].regexes:
            self._fail("a record set needs exactly one field with the content of the file", _OTHER)
        content = contents[0]
        others = [field for field in self._columns if field is not content]
        splits = {"train": list(self._read.names)} if self._split is None else self._splits_by_name(self._split)
        is_text = "Text" in content.types
        picture = Image(shape=(None, None, None)) if "ImageObject" in content.types else None
        pa = import_pyarrow()

        def make(names: Sequence[str]) -> FilePart:
            values = {field.name: [self._value_of(field, name) for name in names] for field in others}
            return FilePart(
                store=self._read.store,
                names=names,
                column=content.name,
                is_text=is_text,
                convert=decode_text if is_text else CheckMedia(picture=picture),
                metadata=pa.table({name: pa.array(value, pa.string()) for name, value in values.items()})
                if values
                else None,
            )

        hints = self._hints(others)
        if picture is not None:
            hints[content.name] = picture
        return Source(
            kind=KIND,
            summary=f"{len(self._read.names):,} files",
            parts=open_parts(splits, make),
            hints=hints,
            files=[use for split, names in splits.items() for use in self._read.uses(names, "records", split=split)],
            split_reason=self._split_reason,
        )

    def _open_inline(self, record_set: RecordSet) -> Source:
        """Open the records in the document itself."""
        values = {field.name: record_set.values(field.id) for field in record_set.fields}
        rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        columns, lines, name = columns_of(rows), range(1, len(rows) + 1), self._document.name

        def read() -> Iterator[Rows]:
            convert = partial(convert_block, columns, converter=ValueConverter(), name=name, lines=lines)
            return read_in_steps(len(rows), lambda start, stop: convert(start=start, stop=stop))

        return Source(
            kind=KIND,
            summary=f"{len(rows):,} records in the document",
            parts=[SourcePart(split="train", name=name, read=read)],
            hints=self._hints(record_set.fields),
        )

    def _hints(self, fields: Sequence[RecordField], *, is_untyped: bool = True) -> dict[str, Feature]:
        """The features that the document defines, by column."""
        hints = {field.name: self._hint(field, is_untyped=is_untyped) for field in fields}
        return {name: hint for name, hint in hints.items() if hint is not None}

    def _hint(self, field: RecordField, *, is_untyped: bool) -> Feature | None:
        """Return the feature that the document defines: a ClassLabel, or a type for values that are text."""
        target = self._target(field)
        if target is not None and target.data is not None and (names := _class_names(target, field.references)):
            return ClassLabel(names=names)
        if not is_untyped or field.is_list or field.fields:
            return None
        for kind in field.types:
            if _PRECISE.fullmatch(kind):
                return parse_feature(kind.lower()).feature
            if kind in _NUMBERS:
                return parse_feature(_NUMBERS[kind]).feature
        return Text() if "Text" in field.types else None


def _matches(names: Iterable[str], globs: Sequence[str]) -> list[str]:
    patterns = [re.compile(fnmatch.translate(glob)) for glob in globs]
    return [name for name in names if any(pattern.fullmatch(name) for pattern in patterns)]


def _class_names(target: RecordSet, field_id: str) -> list[str]:
    """Return the names of the classes that a field refers to by number or by name, or an empty list."""
    if not target.is_enumeration or target.is_split_set:
        return []
    values = target.values(field_id)
    if values and all(isinstance(value, str) for value in values):
        return values
    if [value for value in values if type(value) is int] == list(range(len(values))):
        others = (target.values(field.id) for field in target.fields if field.id != field_id)
        return next((texts for texts in others if texts and all(isinstance(text, str) for text in texts)), [])
    return []


def _select(columns: Mapping[str, str], split_by: str, listed: frozenset[str], rows: Rows) -> Rows:
    """The rows with the columns of the record set. Each split must be one of those that are listed, if any are."""
    values = python_values(column_array(rows.table, columns[split_by])) if listed else []
    for place, value in enumerate(values):
        if value is not None and str(value) not in listed:
            raise SourceError(
                f"row {rows.lines[place]}: the split {str(value)!r:.80} is not one of {', '.join(sorted(listed))}",
                hint="List it in the record set of the splits.",
            )
    table = import_pyarrow().table([rows.table.column(column) for column in columns.values()], names=list(columns))
    return replace(rows, table=table)
