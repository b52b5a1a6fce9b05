"""``Description``: metadata that people give for a version, independent of its source. It does not affect records.

registry add --license MIT ...     -> with the version that is published
registry describe digits:1.0.0 ... -> of a published version, which keeps its number
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypedDict

from registry.errors import UsageError, spell, suggest, warn
from registry.model.dataset_version import DatasetMetadata

DESCRIBED_FIELDS: Final = {
    **{name: name for name in ("description", "license", "citation", "homepage")},
    "tags": "config_tags",
    "supervised": "supervised_keys",
}
"""The arguments of a description, and the fields of ``DatasetMetadata`` that they change."""

_MOST_TEXT: Final = 100_000
_MOST_TAGS: Final = 100


class DescriptionArguments(TypedDict, total=False):
    """The fields of ``Description`` as keyword arguments, for type checkers."""

    description: str | None
    license: str | None
    citation: str | None
    homepage: str | None
    tags: Sequence[str]
    supervised: Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """Metadata that people give for a version. None changes nothing; an empty text removes a value.

    Attributes:
        description, citation, homepage: text.
        license: an SPDX licence expression, such as ``CC-BY-4.0`` or ``MIT OR Apache-2.0``.
        tags: tags to add.
        supervised: the names of the input and target features, for ``as_supervised=True``.
        remove_tags: tags to remove.

    Raises:
        UsageError: a text is too long, or a tag is empty.
    """

    description: str | None = None
    license: str | None = None
    citation: str | None = None
    homepage: str | None = None
    tags: Sequence[str] = ()
    supervised: Sequence[str] | None = None
    remove_tags: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in (*DESCRIBED_FIELDS, "remove_tags"):
            value = getattr(self, name)
            texts = [value or ""] if isinstance(value, str | None) else value
            if not all(isinstance(text, str) and len(text) <= _MOST_TEXT for text in texts):
                raise UsageError(f"{name} must be text of at most {_MOST_TEXT:,} characters")
        if len(self.tags) > _MOST_TAGS:
            raise UsageError(f"at most {_MOST_TAGS} tags can be added at once, not {len(self.tags)}")
        for tag in self.tags:
            if not tag or tag != " ".join(tag.split()):
                raise UsageError(f"invalid tag {tag!r:.80}: tags must not be empty or have extra spaces")
        if self.supervised and len(self.supervised) not in (2, 3):
            raise UsageError(
                f"supervised must name two or three features, not {list(self.supervised)!r:.200}",
                hint=f"For example: {spell('supervised', ['image', 'label'])}",
            )
        if self.homepage and not self.homepage.startswith(("https://", "http://")):
            raise UsageError(f"the homepage {self.homepage!r:.200} is not a URL", hint="It begins with https://.")

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        return self == Description()

    def require_features(self, names: Collection[str]) -> None:
        """Raise a UsageError if one of the supervised features is not among ``names``."""
        for name in self.supervised or ():
            if name not in names:
                hint = suggest(name, names, have="The features are:")
                raise UsageError(f"supervised: no feature {name!r:.200}", hint=hint)

    def warn_of_license(self) -> None:
        """Warn if the licence is not an SPDX expression."""
        if self.license and spdx_license(self.license) is None:
            warn(
                f"the licence {self.license!r:.100} is not an SPDX expression such as CC-BY-4.0 or MIT, so other "
                "programs may not recognize it; for a custom licence, write LicenseRef-NAME"
            )

    def apply(self, metadata: DatasetMetadata) -> DatasetMetadata:
        """``metadata`` with these changes."""
        tags = (tag for tag in (*metadata.config_tags, *self.tags) if tag not in self.remove_tags)
        values: dict[str, Any] = {DESCRIBED_FIELDS[name]: getattr(self, name) for name in DESCRIBED_FIELDS}
        values["config_tags"] = tuple(dict.fromkeys(tags))
        if self.supervised is not None:
            values["supervised_keys"] = tuple(self.supervised)
        if self.license:
            values["license"] = spdx_license(self.license) or self.license
        values = {name: value for name, value in values.items() if value is not None}
        removed = {name for name, value in values.items() if not value} - {"config_tags"}
        if "supervised_keys" in removed:
            values["supervised_keys"] = None
        changed = {name for name, value in values.items() if value != getattr(metadata, name)}
        described = sorted({*metadata.described, *changed} - removed)
        return replace(metadata, **values, described=tuple(described))


def described_before(metadata: DatasetMetadata, before: DatasetMetadata) -> DatasetMetadata:
    """``metadata`` of a source, with the metadata that people gave for the previous version."""
    return replace(metadata, **{name: getattr(before, name) for name in before.described}, described=before.described)


def spdx_license(text: str) -> str | None:
    """``text`` as an SPDX licence expression in canonical spelling, or None if it is not one.

    >>> spdx_license("cc-by-4.0"), spdx_license("mit or apache-2.0"), spdx_license("other")
    ('CC-BY-4.0', 'MIT OR Apache-2.0', None)
    """
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        return str(canonicalize_license_expression(text)) if len(text) <= 500 else None
    except InvalidLicenseExpression:
        return None
