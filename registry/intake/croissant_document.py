"""Parses Croissant documents, the JSON-LD of MLCommons: files, sets of files, and record sets with their fields.

The parser follows http://mlcommons.org/croissant/1.0 and 1.1, and reads only what ``croissant_files`` needs. Keys may
have a prefix (``cr:recordSet``) or be complete URLs. Parsing opens no other file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from registry.errors import SourceError
from registry.intake.source import BadFileError
from registry.interop.croissant_terms import ENUMERATION, SPLIT, plain_term
from registry.model import DatasetMetadata

MARK: Final = b"mlcommons.org/croissant"
"""Every document contains this text, in ``conformsTo`` or in the context."""

_SPLIT_TYPES: Final = frozenset({plain_term(SPLIT), "Q3985153"})
"""The data types of splits; the second is of Wikidata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A FileObject, which is a file or an archive, or a FileSet, whose globs choose files; ``*`` also matches ``/``.

    ``url`` is relative to the document unless it is refused later.
    """

    id: str
    is_set: bool
    url: str
    encoding: str
    sha256: str
    includes: tuple[str, ...]
    excludes: tuple[str, ...]
    contained_in: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordField:
    """A column of a record set.

    Attributes:
        id: the complete id.
        name: the name of the column.
        types: the data types without prefixes, such as ``Integer``.
        resource: the id of the file or the set of files of its values; empty for fields with inline data.
        column: the name of the column in the file, or empty.
        file_property: ``content``, ``filename``, ``fullpath`` ... of the file, or empty.
        regexes: regular expressions whose first group is the value.
        unsupported: the part of the source that cannot be read, such as a transform; empty if all is supported.
        references: the id of the field that the values refer to, or empty.
        is_list: whether a value is an array.
        fields: the fields of a struct.
    """

    id: str
    name: str
    types: tuple[str, ...]
    resource: str
    column: str
    file_property: str
    regexes: tuple[str, ...]
    unsupported: str
    references: str
    is_list: bool
    fields: tuple[RecordField, ...]

    @property
    def leaves(self) -> tuple[RecordField, ...]:
        """The fields of a struct, or this field."""
        return self.fields or (self,)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSet:
    """Records with the same fields. ``data`` is None unless they are in the document."""

    id: str
    name: str
    fields: tuple[RecordField, ...]
    types: tuple[str, ...]
    data: tuple[Mapping[str, Any], ...] | None

    @property
    def is_split_set(self) -> bool:
        """Whether the record set lists the splits."""
        return are_splits(self.types)

    @property
    def is_enumeration(self) -> bool:
        """Whether the record set lists the classes of a label, or the splits."""
        return self.is_split_set or plain_term(ENUMERATION) in self.types

    def values(self, field_id: str) -> list[Any]:
        """The values of a field in the document."""
        short = field_id.removeprefix(f"{self.id}/")
        return [row.get(field_id, row.get(short)) for row in self.data or ()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A Croissant document in the file ``name``."""

    name: str
    metadata: DatasetMetadata
    files: Mapping[str, Resource]
    record_sets: tuple[RecordSet, ...]


def are_splits(types: tuple[str, ...]) -> bool:
    """Whether data types are those of splits."""
    return not _SPLIT_TYPES.isdisjoint(types)


def parse_document(data: bytes, name: str) -> Document:
    """Parse a document.

    Raises:
        SourceError: it is not JSON, or not a Croissant document; the message names the file.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SourceError(
            f"{name}: it is not JSON: {error}", hint="Correct the file.", details={"file": name}
        ) from error
    try:
        return _document(_plain(document), name)
    except BadFileError as error:
        hint = "Check the file: mlcroissant validate --jsonld FILE"
        raise SourceError(f"{name}: {error}", hint=hint, details={"file": name}) from error


def _document(found: Any, name: str) -> Document:
    if not isinstance(found, dict) or not ({"recordSet", "distribution"} & set(found)):
        raise BadFileError("expected a Croissant dataset with 'distribution' and 'recordSet'")
    files: dict[str, Resource] = {}
    for resource in map(_resource, _dicts(found.get("distribution"))):
        if files.setdefault(resource.id, resource) is not resource:
            raise BadFileError(f"two files have the id {resource.id!r}")
    license_ = found.get("license")
    if isinstance(license_, list):
        license_ = ", ".join(_text(term) for term in license_)
    metadata = DatasetMetadata(
        description=_text(found.get("description")),
        citation=_text(found.get("citeAs") or found.get("citation")),
        homepage=_text(found.get("url")),
        license=_text(license_),
    )
    record_sets = tuple(map(_record_set, _dicts(found.get("recordSet"))))
    return Document(name=name, metadata=metadata, files=files, record_sets=record_sets)


def _resource(found: Mapping[str, Any]) -> Resource:
    place, types = _id(found), _texts(found.get("@type"))
    if not {"FileObject", "FileSet"} & set(types):
        raise BadFileError(f"{place!r}: expected a FileObject or a FileSet, found {', '.join(types) or 'no @type'}")
    return Resource(
        id=place,
        is_set="FileObject" not in types,
        url=_text(found.get("contentUrl")),
        encoding=_text(found.get("encodingFormat")),
        sha256=_text(found.get("sha256")).lower(),
        includes=_texts(found.get("includes")),
        excludes=_texts(found.get("excludes")),
        contained_in=tuple(_references(found.get("containedIn"))),
    )


def _record_set(found: Mapping[str, Any]) -> RecordSet:
    place, data = _id(found), found.get("data")
    return RecordSet(
        id=place,
        name=_text(found.get("name")) or place,
        types=_texts(found.get("dataType")),
        fields=_fields(found.get("field"), place),
        data=None if data is None else tuple(_dicts(data)),
    )


def _fields(found: Any, parent: str) -> tuple[RecordField, ...]:
    return tuple(_field(node, parent) for node in _dicts(found))


def _field(found: Mapping[str, Any], parent: str) -> RecordField:
    place = _id(found)
    source = _dict(found.get("source"))
    extract, references = _dict(source.get("extract")), found.get("references")
    column, unsupported = _text(extract.get("column")), ""
    if path := _text(extract.get("jsonPath")):
        match = re.fullmatch(r"\$?\.?([\w-]+)", path)
        column = match[1] if match else ""
        unsupported = "" if match else f"the jsonPath {path!r}"
    regexes = []
    for node in _dicts(source.get("transform")):
        if set(node) - {"@type"} == {"regex"}:
            regexes.append(_text(node["regex"]))
        else:
            unsupported = f"the transform {', '.join(sorted(set(node) - {'@type'}))}"
    if _references(source.get("recordSet")) or _references(source.get("field")):
        unsupported = "values of another record set"
    resources = [ref for key in ("fileObject", "fileSet", "distribution") for ref in _references(source.get(key))]
    targets = _references(_dict(references).get("field")) or _references(references)
    return RecordField(
        id=place,
        name=(_text(found.get("name")) or place).removeprefix(f"{parent}/"),
        types=_texts(found.get("dataType")),
        resource=next(iter(resources), ""),
        column=column,
        file_property=_text(extract.get("fileProperty")),
        regexes=tuple(regexes),
        unsupported=unsupported,
        references=next(iter(targets), ""),
        is_list=found.get("isArray") in (True, "true") or found.get("repeated") in (True, "true"),
        fields=_fields(found.get("subField"), place),
    )


def _id(found: Mapping[str, Any]) -> str:
    place = _text(found.get("@id")) or _text(found.get("name"))
    if not place:
        raise BadFileError("a file, record set or field has neither '@id' nor 'name'")
    return place


def _plain(value: Any) -> Any:
    """Remove the prefixes from the keys of JSON-LD."""
    if isinstance(value, dict):
        return {plain_term(key): inner if key == "data" else _plain(inner) for key, inner in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [node for node in (value if isinstance(value, list) else [value]) if isinstance(node, dict)]


def _texts(value: Any) -> tuple[str, ...]:
    """Return the texts of a value or of a list, without prefixes."""
    return tuple(plain_term(_text(term)) for term in (value if isinstance(value, list) else [value]) if _text(term))


def _text(value: Any) -> str:
    """A text; the ``name`` or ``@value`` of an object."""
    if isinstance(value, dict):
        value = value.get("@value") or value.get("name") or value.get("@id") or next(iter(value.values()), "")
    return value if isinstance(value, str) else ""


def _references(value: Any) -> list[str]:
    """Return the ids that a value refers to: ``{"@id": "x"}``, ``"x"`` or a list of these."""
    values = value if isinstance(value, list) else [value]
    result = [node.get("@id") if isinstance(node, dict) else node for node in values]
    return [text for text in result if isinstance(text, str)]
