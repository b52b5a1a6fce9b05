"""Converts frozen values to rows and back, and computes the digests that seal rows.

JSON is stored as text, the same bytes on both databases: ASCII, sorted keys, no spaces.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

from registry import model
from registry.errors import UsageError
from registry.masking import has_secret, mask, mask_all, remove_secrets
from registry.model import (
    DESCRIBED_FIELDS,
    DatasetMetadata,
    DatasetVersion,
    LocationStep,
    Reference,
    SlicingRule,
    Version,
    VersionState,
    read_code_version,
)

if TYPE_CHECKING:
    from registry.model import Attachment, Split, SplitFingerprint

_METADATA_TEXTS = ("description", "homepage", "citation", "license", "config_description")


_OF_VERSION: Final = ("location", "metadata_json", "release_notes_json", "version_to_prepare")

_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)

_OF_SPLIT: Final = ("num_bytes", "filename_template", "filename_dataset", "filename_format")


def by_bytes(kind: str, *columns: sa.ColumnElement[Any]) -> list[sa.ColumnElement[Any]]:
    """What sorts by ``columns``: texts by their bytes, independent of PostgreSQL's collation."""
    collation = "C" if kind == "postgresql" else "BINARY"
    return [sa.collate(column, collation) if isinstance(column.type, sa.Text) else column for column in columns]


def canonical_json(value: Any) -> str:
    """``value`` as canonical JSON text.

    Raises:
        UsageError: it contains NaN, infinity, or a value without a JSON form.
    """
    try:
        return _CANONICAL.encode(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the metadata cannot be stored as JSON: {error}") from error


def encode_metadata(metadata: DatasetMetadata) -> str:
    """``metadata`` as JSON; release notes have a column of their own.

    Secrets in the URLs of facts are masked, e.g. of downloads; texts that people wrote are stored as they are.
    """
    return canonical_json(
        {
            **{name: getattr(metadata, name) for name in _METADATA_TEXTS},
            "homepage": remove_secrets(metadata.homepage),
            "supervised_keys": None if metadata.supervised_keys is None else list(metadata.supervised_keys),
            "config_tags": list(metadata.config_tags),
            "extra": mask_all(dict(metadata.extra)),
            **({"custom": mask_all(dict(metadata.custom))} if metadata.custom else {}),
            **({"described": list(metadata.described)} if metadata.described else {}),
        }
    )


def decode_metadata(text: str, release_notes: str) -> DatasetMetadata:
    """The metadata stored as ``text`` and ``release_notes``; fields added by a newer registry are ignored."""
    stored = json.loads(text)
    keys = stored.get("supervised_keys")
    return DatasetMetadata(
        **{name: require_text(stored.get(name, "")) for name in _METADATA_TEXTS},
        supervised_keys=None if keys is None else tuple(map(require_text, keys)),
        config_tags=tuple(map(require_text, stored.get("config_tags", ()))),
        release_notes={
            require_text(version): require_text(note) for version, note in json.loads(release_notes).items()
        },
        custom=dict(stored.get("custom", {})),
        extra=dict(stored.get("extra", {})),
        described=tuple(name for name in stored.get("described", ()) if name in DESCRIBED_FIELDS.values()),
    )


def version_values(version: DatasetVersion) -> dict[str, Any]:
    """Columns of ``dataset_version`` that come from ``version``; the config, time and actor are the writer's.

    Raises:
        UsageError: text that no database stores (a NUL, a lone surrogate), or an invalid digest.
    """
    check_digest(version.content_digest, "content digest")
    return {
        "major": version.version.major,
        "minor": version.version.minor,
        "patch": version.version.patch,
        "state": version.state.value,
        "state_message": check_text(version.state_message, "state message"),
        "superseded_by": None if version.superseded_by is None else str(version.superseded_by),
        "release_notes_json": canonical_json(dict(version.metadata.release_notes)),
        "version_to_prepare": _code_version(version.version_to_prepare),
        "slicing": version.slicing.value,
        "file_format": check_text(version.file_format, "file format"),
        "disable_shuffling": version.disable_shuffling,
        "features_json": check_text(version.features_json, "feature schema"),
        "labels_json": canonical_json({stem: list(names) for stem, names in version.labels.items()}),
        "metadata_json": encode_metadata(version.metadata),
        "location": check_location(version.location),
        "content_digest": version.content_digest,
    }


def read_version(row: sa.Row[*tuple[Any, ...]], splits: Sequence[Split]) -> DatasetVersion:
    """The dataset version of a row of ``selection.find_version``."""
    return DatasetVersion(
        **read_identity(row),
        splits=tuple(_named_files(split, row.builder_name) for split in splits),
        features_json=require_text(row.features_json),
        labels=dict(_read_labels(row.labels_json)),
        location=require_text(row.location),
        content_digest=row.content_digest,
        location_steps=read_steps(row.location_steps),
        names=read_names(row),
        state=VersionState(row.state),
        state_message=row.state_message,
        superseded_by=read_number(row.superseded_by),
        canonical=read_canonical(row),
        file_format=row.file_format,
        slicing=SlicingRule(row.slicing),
        disable_shuffling=row.disable_shuffling,
        version_to_prepare=_code_version(row.version_to_prepare),
        # SQLite stores booleans as 0 and 1. Without overrides: an empty object, or NULL on PostgreSQL.
        experiments={name: bool(enabled) for name, enabled in (read_json(row.experiments) or {}).items()},
        metadata=decode_metadata(row.metadata_json, row.release_notes_json),
        published_at=row.published_at,
        published_by=row.published_by,
    )


def read_identity(row: sa.Row[*tuple[Any, ...]]) -> dict[str, Any]:
    """The values ``name``, ``config`` and ``version`` of a row of ``builder``, ``builder_config`` and a number."""
    number = Version(row.major, row.minor, row.patch)
    return {"name": row.builder_name, "config": row.config_name or None, "version": number}


def read_reference(row: sa.Row[*tuple[Any, ...]]) -> Reference:
    """The exact reference of such a row."""
    return Reference.exactly(**read_identity(row))


def read_attachment(values: Mapping[str, Any] | sa.RowMapping) -> Attachment:
    """The attachment in a row or in an event."""
    return model.Attachment(**{name: values[name] for name in ("kind", "name", "num_bytes", "sha256")})


@lru_cache(2)  # a class label may have a million names, and each page looks its version up
def _read_labels(text: str) -> dict[str, tuple[str, ...]]:
    return {stem: tuple(map(require_text, names)) for stem, names in json.loads(text).items()}


def _named_files(split: Split, name: str) -> Split:
    """``split``; its file names do not depend on the name of the dataset if it was renamed since."""
    return split if split.files.dataset == name else replace(split, files=split.files.with_literal_dataset())


def read_steps(value: Any) -> tuple[LocationStep, ...]:
    """The changes of locations in the column ``location_steps``; None is an empty one on PostgreSQL."""
    steps = (text.partition(" ") for text in read_json(value) or ())
    return tuple(LocationStep(kind, location) for kind, _, location in steps)


def read_names(row: sa.Row[*tuple[Any, ...]]) -> tuple[str, ...]:
    """The names in the column ``names``; see ``names.names_column``."""
    return tuple(map(require_text, read_json(row.names) or ()))


def _code_version(value: Any) -> str | None:
    return None if value is None else read_code_version(value)


def require_text(value: Any) -> str:
    """``value`` if it is a text. Raises TypeError otherwise: SQLite may have stored any type."""
    if not isinstance(value, str):
        raise TypeError(f"expected a text, not {type(value).__name__}")
    return value


def read_number(text: str | None) -> Version | None:
    """Parse the version in a nullable column."""
    return None if text is None else Version.parse(text)


def read_canonical(row: sa.Row[*tuple[Any, ...]]) -> Version | None:
    """The canonical version in the columns ``canonical_major``, ``canonical_minor``, ``canonical_patch``."""
    if row.canonical_major is None:
        return None
    return Version(row.canonical_major, row.canonical_minor, row.canonical_patch)


def read_usable_canonical(row: sa.Row[*tuple[Any, ...]]) -> dict[str, Version | None]:
    """The values ``canonical`` and ``withdrawn`` of a list: look-ups without a version refuse a withdrawn version."""
    number = read_canonical(row)
    is_withdrawn = bool(row.is_canonical_withdrawn)
    return {"canonical": None if is_withdrawn else number, "withdrawn": number if is_withdrawn else None}


def check_text(text: str, column: str) -> str:
    """``text`` if both databases can store it."""
    if "\0" in text or (not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)):
        raise UsageError(f"the {column} contains a NUL or a lone surrogate, which databases cannot store")
    return text


def check_location(location: str) -> str:
    """``location`` if both databases can store it and it contains no secret."""
    if has_secret(location):
        raise UsageError(
            f"the location {mask(location)[:200]} contains a password or another secret, which is never stored",
            hint="Remove it from the URL, and set it in the environment when the data is read.",
        )
    return check_text(location, "location")


def check_digest(digest: str, column: str) -> str:
    """``digest`` if it is a sha256 in 64 lower-case hex digits."""
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise UsageError(f"the {column} {digest[:80]!r} is not a sha256: expected 64 lower-case hex digits")
    return digest


class json_object_agg(GenericFunction[Any]):  # noqa: N801 (the name that SQL gives it)
    """An aggregate of names and values into one JSON object; SQLite calls it json_group_object."""

    type = sa.types.NullType()
    inherit_cache = True


class json_agg(GenericFunction[Any]):  # noqa: N801 (the name that SQL gives it)
    """An aggregate of values into one JSON array, in the order of the subquery they come from.

    SQLite calls it json_group_array. Both databases keep that order if only the aggregate is selected.
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
    """Parse the result of an aggregate of this module: SQLite returns text, psycopg returns values."""
    return json.loads(value) if isinstance(value, str) else value


def version_seal(version: Mapping[str, Any], splits: Iterable[Mapping[str, Any]], overrides: Mapping[str, bool]) -> str:
    """sha256, 64 hex digits, over columns of a version, of its splits in order, and the experiments it overrides."""
    return _digest(
        {
            **{name: version[name] for name in _OF_VERSION},
            "published_at": version["published_at"].astimezone(UTC).isoformat(timespec="microseconds"),
            "splits": [[split[name] for name in _OF_SPLIT] for split in splits],
            "overrides": dict(overrides),
        }
    )


def fingerprint_seals(fingerprints: Mapping[str, SplitFingerprint]) -> dict[str, str]:
    """sha256, 64 hex digits, over the fingerprint of each split, blocks and all, by the split's name."""
    return {
        name: _digest({path: [feature.digest, *feature.blocks] for path, feature in field.features.items()})
        for name, field in fingerprints.items()
    }


class TagsSeal:
    """sha256 over the ETags of the shards of a version, split by split."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._has_tags = False

    def start_split(self, name: str) -> None:
        """The shards of the split ``name`` follow, in order."""
        self._digest.update(f"{canonical_json([name])}\n".encode("ascii"))

    def add(self, tags: Iterable[str | None]) -> None:
        """The next shards, each with its tag; None without one."""
        for tag in tags:
            self._has_tags = self._has_tags or tag is not None
            self._digest.update(f"{canonical_json(tag)}\n".encode("ascii"))

    def hexdigest(self) -> str | None:
        """64 hex digits; None if no shard has a tag."""
        return self._digest.hexdigest() if self._has_tags else None


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(dict(value)).encode("ascii")).hexdigest()
