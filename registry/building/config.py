"""What does an author write about one config of a dataset? And how are versions in author code read?

Authors write versions as text; everything past this module sees ``Version``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from registry.errors import ReferenceSyntaxError, RegistryError, UsageError
from registry.model import Version, check_config

_LIKE_A_VERSION = re.compile(r"v?[0-9]+(\.[0-9]+)+")


@dataclass(frozen=True, kw_only=True)
class BuilderConfig:
    """One variant of a dataset. Subclass it as a frozen dataclass to add fields of your own.

    Attributes:
        name: letters, digits, ``_ + . -``; never one that reads as a version.
        version: the config's own canonical version; None takes the builder's ``VERSION``.
        supported_versions: the other versions that can be built; empty takes the builder's ``SUPPORTED_VERSIONS``.
        release_notes: version -> what changed; empty takes the builder's ``RELEASE_NOTES``.
        description, tags: for people and for search.

    >>> BuilderConfig(name="en", version="2.0.0").version
    Version(major=2, minor=0, patch=0)

    Raises:
        UsageError: an attribute is not of its form; the message names config and attribute.
    """

    name: str
    version: Version | str | None = None
    supported_versions: tuple[Version | str, ...] = ()
    release_notes: Mapping[Version | str, str] | Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        owner = f"{type(self).__name__}(name={self.name!r})"
        check_config_name(self.name, owner=owner)
        if self.version is not None:
            object.__setattr__(self, "version", read_version(self.version, f"{owner}.version"))
        versions = read_versions(self.supported_versions, f"{owner}.supported_versions")
        object.__setattr__(self, "supported_versions", versions)
        object.__setattr__(self, "release_notes", read_notes(self.release_notes, f"{owner}.release_notes"))
        read_text(self.description, f"{owner}.description")
        object.__setattr__(self, "tags", read_texts(self.tags, f"{owner}.tags"))


def check_config_name(name: object, *, owner: str) -> str:
    """``name`` if it may name a config and cannot be taken for a version, as ``mnist/1.0.0`` would be."""
    if not isinstance(name, str):
        raise bad_attribute(f"{owner}.name", name, "a config name is text")
    try:
        check_config(name)
    except ReferenceSyntaxError as error:
        raise bad_attribute(f"{owner}.name", name, error.message, hint=error.hint) from error
    if _LIKE_A_VERSION.fullmatch(name):
        raise bad_attribute(
            f"{owner}.name",
            name,
            "it reads as a version",
            hint="A version stands behind a colon: name/config:version. Give the config a name with a word in it.",
        )
    return name


def read_version(value: object, where: str) -> Version:
    """The version an author wrote as text or as a ``Version``; ``where`` names class and attribute."""
    if isinstance(value, Version):
        return value
    if not isinstance(value, str):
        raise bad_attribute(where, value, "a version is text like '3.0.1'")
    try:
        return Version.parse(value)
    except ReferenceSyntaxError as error:
        raise bad_attribute(where, value, error.message, hint=error.hint) from error


def read_versions(values: object, where: str) -> tuple[Version, ...]:
    """The versions an author listed, in the author's order; each once."""
    if isinstance(values, str | Version) or not isinstance(values, Iterable):
        raise bad_attribute(where, values, "it is a list of versions, e.g. ['2.0.0', '1.0.0']")
    versions = tuple(read_version(value, where) for value in values)
    if len(set(versions)) != len(versions):
        raise bad_attribute(where, [str(version) for version in versions], "a version is listed twice")
    return versions


def read_notes(notes: object, where: str) -> dict[str, str]:
    """Release notes by version, highest first: the spelling of each version is checked."""
    if not isinstance(notes, Mapping):
        raise bad_attribute(where, notes, "release notes are a dict of version -> text")
    read = {read_version(version, where): read_text(text, where) for version, text in notes.items()}
    return {str(version): read[version] for version in sorted(read, reverse=True)}


def read_text(value: object, where: str) -> str:
    """``value`` if it is text."""
    if not isinstance(value, str):
        raise bad_attribute(where, value, f"it is text, not {type(value).__name__}")
    return value


def read_texts(values: object, where: str) -> tuple[str, ...]:
    """``values`` as a tuple if it is a list or tuple of text."""
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise bad_attribute(where, values, "it is a list or tuple of text")
    return tuple(values)


def read_json_object(values: object, where: str) -> dict[str, Any]:
    """``values`` if it is a dict of names to values of JSON."""
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise bad_attribute(where, values, "it is a dict of name -> value")
    try:
        json.dumps(dict(values), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise bad_attribute(where, values, f"its values are those of JSON: {error}") from error
    return dict(values)


def read_sources(values: object, where: str) -> dict[str, str]:
    """``values`` if it is a dict of URL -> sha256, 64 hex digits in lower case."""
    if not isinstance(values, Mapping) or not all(isinstance(url, str) and url for url in values):
        raise bad_attribute(where, values, "it is a dict of URL -> sha256")
    for url, digest in values.items():
        if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
            raise bad_attribute(
                f"{where}[{url!r}]",
                digest,
                "a sha256 has 64 hex digits in lower case",
                hint="sha256sum FILE prints it.",
            )
    return dict(values)


def bad_attribute(where: str, value: object, problem: str, *, hint: str | None = None) -> RegistryError:
    """The error for an attribute of author code: ``where`` is ``Class.ATTRIBUTE``."""
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:79] + "…"
    return UsageError(f"{where} = {shown}: {problem}", hint=hint, details={"attribute": where, "value": shown})
