"""Parses Croissant documents, the JSON-LD of MLCommons: files, sets of files, and record sets with their fields.

The parser follows http://mlcommons.org/croissant/1.0 and 1.1, and reads only what ``croissant_files`` needs. Keys may
have a prefix (``cr:recordSet``) or be complete URLs. Parsing opens no other file. ``Resources`` then finds the listed
files next to the document, and checks their digests.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn
from urllib.parse import unquote

from registry.errors import SourceError
from registry.intake.archives import extract, is_archive
from registry.intake.source import Files, root_of
from registry.interop.croissant_terms import ENUMERATION, SPLIT, plain_term
from registry.model import DatasetMetadata

MARK: Final = b"mlcommons.org/croissant"
"""Every document contains this text, in ``conformsTo`` or in the context."""

_WIKIDATA_SPLIT: Final = "Q3985153"


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
    types: tuple[str, ...] = ()
    resource: str = ""
    column: str = ""
    file_property: str = ""
    regexes: tuple[str, ...] = ()
    unsupported: str = ""
    references: str = ""
    is_list: bool = False
    fields: tuple[RecordField, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSet:
    """Records with the same fields. ``data`` is None unless they are in the document."""

    id: str
    name: str
    fields: tuple[RecordField, ...]
    types: tuple[str, ...] = ()
    data: tuple[Mapping[str, Any], ...] | None = None

    @property
    def is_split_set(self) -> bool:
        """Whether the record set lists the splits."""
        return not {plain_term(SPLIT), _WIKIDATA_SPLIT}.isdisjoint(self.types)

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
    """A Croissant document."""

    metadata: DatasetMetadata
    files: Mapping[str, Resource] = field(default_factory=dict)
    record_sets: tuple[RecordSet, ...] = ()


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
    return _DocumentParser(name).document(_plain(document))


class _DocumentParser:
    def __init__(self, name: str) -> None:
        self._name = name

    def document(self, found: Any) -> Document:
        if not isinstance(found, dict) or not ({"recordSet", "distribution"} & set(found)):
            self._fail("expected a Croissant dataset with 'distribution' and 'recordSet'")
        files: dict[str, Resource] = {}
        for node in _dicts(found.get("distribution")):
            resource = self._resource(node)
            if resource.id in files:
                self._fail(f"two files have the id {resource.id!r}")
            files[resource.id] = resource
        sets = tuple(self._record_set(node) for node in _dicts(found.get("recordSet")))
        license_ = found.get("license")
        if isinstance(license_, list):
            license_ = ", ".join(_text(term) for term in license_)
        metadata = DatasetMetadata(
            description=_text(found.get("description")),
            citation=_text(found.get("citeAs") or found.get("citation")),
            homepage=_text(found.get("url")),
            license=_text(license_),
        )
        return Document(metadata=metadata, files=files, record_sets=sets)

    def _resource(self, found: Mapping[str, Any]) -> Resource:
        types = _texts(found.get("@type"))
        if not {"FileObject", "FileSet"} & set(types):
            found_types = ", ".join(types) or "no @type"
            self._fail(f"{self._id(found)!r}: expected a FileObject or a FileSet, found {found_types}")
        return Resource(
            id=self._id(found),
            is_set="FileObject" not in types,
            url=_text(found.get("contentUrl")),
            encoding=_text(found.get("encodingFormat")),
            sha256=_text(found.get("sha256")).lower(),
            includes=tuple(_texts(found.get("includes"))),
            excludes=tuple(_texts(found.get("excludes"))),
            contained_in=tuple(_references(found.get("containedIn"))),
        )

    def _record_set(self, found: Mapping[str, Any]) -> RecordSet:
        place = self._id(found)
        data = found.get("data")
        return RecordSet(
            id=place,
            name=_text(found.get("name")) or place,
            types=tuple(_texts(found.get("dataType"))),
            fields=tuple(self._field(node, place) for node in _dicts(found.get("field"))),
            data=None if data is None else tuple(_dicts(data)),
        )

    def _field(self, found: Mapping[str, Any], parent: str) -> RecordField:
        place = self._id(found)
        name = (_text(found.get("name")) or place).removeprefix(f"{parent}/")
        source = found.get("source")
        source = source if isinstance(source, dict) else {}
        extract = source.get("extract")
        extract = extract if isinstance(extract, dict) else {}
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
        references = found.get("references")
        targets = _references(references.get("field")) if isinstance(references, dict) and "field" in references else []
        resources = [ref for key in ("fileObject", "fileSet", "distribution") for ref in _references(source.get(key))]
        return RecordField(
            id=place,
            name=name,
            types=tuple(_texts(found.get("dataType"))),
            resource=resources[0] if resources else "",
            column=column,
            file_property=_text(extract.get("fileProperty")),
            regexes=tuple(regexes),
            unsupported=unsupported,
            references=(targets or _references(references) or [""])[0],
            is_list=found.get("isArray") in (True, "true") or found.get("repeated") in (True, "true"),
            fields=tuple(self._field(node, place) for node in _dicts(found.get("subField"))),
        )

    def _id(self, found: Mapping[str, Any]) -> str:
        place = _text(found.get("@id")) or _text(found.get("name"))
        if not place:
            self._fail("a file, record set or field has neither '@id' nor 'name'")
        return place

    def _fail(self, problem: str) -> NoReturn:
        raise SourceError(
            f"{self._name}: {problem}",
            hint="Check the file: mlcroissant validate --jsonld FILE",
            details={"file": self._name},
        )


def _plain(value: Any) -> Any:
    """Remove the prefixes from the keys of JSON-LD."""
    if isinstance(value, dict):
        return {plain_term(key): inner if key == "data" else _plain(inner) for key, inner in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [node for node in (value if isinstance(value, list) else [value]) if isinstance(node, dict)]


def _texts(value: Any) -> list[str]:
    """Return the texts of a value or of a list, without prefixes."""
    return [plain_term(_text(term)) for term in (value if isinstance(value, list) else [value]) if _text(term)]


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


OTHER: Final = "Add the files themselves instead, without the document."
CHECK: Final = "Check the document: mlcroissant validate --jsonld FILE"
BESIDE: Final = f"A document names files relative to its own folder: put it next to them. {CHECK}"

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Resources:
    """The files of a document.

    Args:
        document: the document.
        name: its file name.
        folder: the files next to it, and the document itself.

    Attributes:
        used: the names of the files of ``folder`` that were resolved, and of the document.
    """

    def __init__(self, document: Document, name: str, folder: Files) -> None:
        self.used: set[str] = {name}
        self._document = document
        self._name = name
        self._folder = folder

    def resolve(self, resource: str) -> Files:
        """The files of a FileObject or FileSet; archives are extracted.

        Raises:
            SourceError: the document does not list the resource; a file is missing, has another sha256, or is not next
                to the document; or an archive is damaged.
        """
        return self._resolve_within(resource, ())

    def fail(self, problem: str, hint: str | None) -> NoReturn:
        """Raise a SourceError that names the document."""
        raise SourceError(f"{self._name}: {problem}", hint=hint, details={"file": self._name})

    def _resolve_within(self, resource: str, outer: tuple[str, ...]) -> Files:
        if resource in outer:
            self.fail(f"the file set {resource!r} contains itself", CHECK)
        found = self._document.files.get(resource)
        if found is None:
            self.fail(f"'distribution' does not list the file {resource!r}, which is read", CHECK)
        if not found.is_set:
            files = self._file(found)
            return files if not is_archive(files.names[0]) else extract(files, files.names)
        listed = [self._document.files[name] for name in found.contained_in if name in self._document.files]
        # Documents of Hugging Face name a Git repository. The folder of the document is its clone.
        containers = [container for container in listed if not container.encoding.startswith("git")]
        if containers and all(container.is_set for container in containers):
            inside = {
                name
                for container in containers
                for name in self._resolve_within(container.id, (*outer, resource)).names
            }
            # A name inside of an archive is not the file of that name in the folder.
            base = self._folder.only([name for name in self._folder.names if name in inside])
        elif containers:
            if len(containers) > 1:
                self.fail(f"the file set {found.id!r} is in several archives, which is not supported", OTHER)
            base = self._resolve_within(containers[0].id, (*outer, resource))
        else:
            base = self._folder.only([name for name in self._folder.names if name != self._name])
        patterns = [re.compile(fnmatch.translate(pattern)) for pattern in found.includes or ("*",)]
        without = [re.compile(fnmatch.translate(exclude)) for exclude in found.excludes]
        names = [
            name
            for name in base.names
            if any(pattern.fullmatch(name) for pattern in patterns)
            and not any(pattern.fullmatch(name) for pattern in without)
        ]
        if not names:
            self.fail(f"no file matches {', '.join(found.includes) or '*'}, the file set {found.id!r}", BESIDE)
        if base.store is self._folder.store:
            self.used.update(names)
            self._check_listed(names)
        return base.only(names)

    def _file(self, file: Resource) -> Files:
        url = unquote(file.url)
        if file.contained_in:
            self.fail(f"the file {file.id!r} is in an archive, which is supported for file sets only", OTHER)
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url) or url.startswith(("/", "~")) or ".." in url.split("/"):
            self.fail(
                f"the file {file.id!r} is not next to the document: {url[:200]!r}",
                "Download it into the folder of the document, and write its relative path into contentUrl.",
            )
        name = url.removeprefix("./")
        if name not in set(self._folder.names):
            self.fail(f"the file {name!r} is missing", "Download it into the folder of the document.")
        self.used.add(name)
        self._check_sha256(name, file.sha256)
        return self._folder.only([name])

    def _check_listed(self, names: Sequence[str]) -> None:
        """Check the files of a set whose digests the document states as well."""
        digests = {unquote(file.url): file.sha256 for file in self._document.files.values() if not file.is_set}
        for name in names:
            self._check_sha256(name, digests.get(name, ""))

    def _check_sha256(self, name: str, expected: str) -> None:
        if not _SHA256.fullmatch(expected):  # the digest is often a placeholder, such as the URL of a GitHub issue
            return
        with (root_of(self._folder.store) / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != expected:
            raise SourceError(
                f"{name}: sha256 mismatch: expected {expected}, as in {self._name}, found {digest}",
                hint="Download the file again, or correct the document.",
                details={"file": name, "expected": expected, "found": digest},
            )
